"""A switch outside the simulation: frames out by interfaces, and in when they come; what cannot be opened."""

from itertools import pairwise

import pytest

from fanin.base.errors import InputError
from fanin.host.ethernet import BATCH
from fanin.link import LinkConfig
from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange, TakenFrame
from fanin.sim.cosim.watch import Watch
from fanin.sim.network import MAX_WAITING, Network
from fanin.sim.nic import outside
from fanin.sim.nic.outside import InterfaceSwitch, check_interfaces
from fanin.sim.nic.pace import BUSY_PS, IDLE_PS, Pace
from fanin.sim.nic.stopping import Stop
from tests.sim.switch.service.served import FakeInterface

QUICK = LinkConfig(delay_ns=0, gbps=float("inf"))


@pytest.fixture
def switch(monkeypatch):
    interfaces = {name: FakeInterface() for name in ("one", "two")}
    monkeypatch.setattr(outside, "open_interface", interfaces.__getitem__)
    switch = InterfaceSwitch(2, names=list(interfaces), pace=Pace(1))
    switch.hosts = [interface.host for interface in interfaces.values()]
    yield switch
    for interface in interfaces.values():
        interface.close()


def test_each_node_has_an_interface(switch):
    network = Network(switch=switch, ports=2, link=QUICK)
    network.send(1, b"from node 1".ljust(60), 0)
    network.advance(0)
    assert switch.hosts[1].recv(2000) == b"from node 1".ljust(60)
    switch.hosts[0].send(b"for node 0".ljust(60))
    time = network.next_time
    (reception,) = network.advance(time)
    assert (reception.port, reception.arrival.frame) == (0, b"for node 0".ljust(60))
    assert reception.arrival.time == time
    assert not network.carries


def test_it_is_looked_at_more_seldom_while_nothing_comes_and_often_when_something_goes(switch):
    times = [0]
    for _ in range(8):
        switch.poll(times[-1])
        times.append(switch.next_poll)
    gaps = [after - before for before, after in pairwise(times)]
    assert gaps[0] == 2 * BUSY_PS
    assert gaps == sorted(gaps)
    assert gaps[-1] == IDLE_PS
    switch.inject(0, bytes(60), times[-2] + 1)
    assert switch.next_poll == times[-2] + 1 + BUSY_PS
    switch.hosts[1].send(bytes(60))
    now = switch.next_poll
    assert len(switch.poll(now)) == 1
    assert switch.next_poll == now + BUSY_PS


def test_a_look_before_its_time_does_not_wait(switch):
    switch.poll(0)
    switch.hosts[0].send(bytes(60))
    assert switch.poll(switch.next_poll - 1) == []
    assert len(switch.poll(switch.next_poll)) == 1


def test_frames_that_an_interface_does_not_take_are_counted(switch):
    for _ in range(10_000):
        switch.inject(0, bytes(1500), 0)
    assert switch.counters().lost > 0


def test_an_interface_is_not_read_while_its_node_has_not_taken_what_it_got(switch):
    """Port 0 is flooded; its node takes nothing, then everything. Port 1 goes on."""
    flood = [(0, bytes(60))] * BATCH
    switch._interfaces[0].receive = lambda: list(flood)
    network = Network(switch=switch, ports=2, link=QUICK)
    clock = Clock(BUSY_PS)
    exchange = Exchange(network, clock, Watch(2))
    received = []
    for cycle in range(3 * MAX_WAITING // BATCH):
        received += exchange.serve(cycle, [], [])
    assert MAX_WAITING <= len(received) < MAX_WAITING + BATCH
    assert switch.next_poll <= clock.time(cycle + 1) + BUSY_PS  # it looks often, as there are frames
    switch.hosts[1].send(bytes(60))
    other = exchange.serve(cycle + 1, [], [])
    assert [one.node for one in other] == [1]
    taken = [TakenFrame(cycle + 1, one.tag) for one in received]
    more = exchange.serve(cycle + 2, [], taken) + exchange.serve(cycle + 3, [], [])
    assert {one.node for one in more} == {0}


def test_interfaces_are_checked_before_a_run(monkeypatch):
    with pytest.raises(InputError, match=r"lo, lo: an interface is named twice"):
        check_interfaces(["lo", "lo"])
    with pytest.raises(InputError, match="no-such: no such interface"):
        check_interfaces(["no-such"])


def test_a_stop_is_seen_by_whoever_has_its_path(tmp_path):
    stop, other = Stop(tmp_path / "stop"), Stop(tmp_path / "stop")
    assert not stop.requested
    other.request()
    assert Stop(tmp_path / "stop").requested
