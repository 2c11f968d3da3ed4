"""Queue pairs set up out of band: what ends tell, what is negotiated, and what is refused, in one line."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from fanin.base.errors import InputError
from fanin.host.rdma_setup import End, Rendezvous, negotiate, source_port
from fanin.rdma.driver import RdmaDriver
from fanin.rdma.facts import FIRST_QUEUE_PAIR, Connection, RdmaConfig, Region
from fanin.wire.ethernet import Endpoint
from tests.fanin.host.self_connection import SelfConnecting

OURS = End(0x100, 5, "::ffff:10.0.0.1", "02:00:00:00:00:01", 4096, rkey=7, address=4096, length=8192)
THEIRS = End(0x45A7C, 9, "::ffff:10.0.0.2", "0c:42:a1:00:00:02", 1024, rkey=0x1234, address=1 << 40, length=1)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_both_ends_come_to_the_same_connection():
    ours, theirs = negotiate(OURS, THEIRS, window=16, retries=3), negotiate(THEIRS, OURS)
    assert ours == Connection(0x45A7C, send_psn=5, receive_psn=9, mtu=1024, window=16, retries=3)
    assert theirs == Connection(0x100, send_psn=9, receive_psn=5, mtu=1024)
    assert THEIRS.endpoint(0xC001) == Endpoint(0x0C42A1000002, 0x0A000002, 0xC001)


@pytest.mark.parametrize(
    ("ours", "theirs", "why"),
    [
        ({}, {"gid": "fe80::1"}, "the GID fe80::1 is not an IPv4 address"),
        ({}, {"gid": OURS.gid}, "the peer has the same address, ::ffff:10.0.0.1"),
        ({}, {"mac": OURS.mac}, "the peer has this end's MAC address"),
        ({}, {"mac": "01:00:5e:00:00:01"}, "not that of one station"),
        ({}, {"mac": "00:00:00:00:00:00"}, "not that of one station"),
        ({"vlan": 5}, {}, "VLAN 5 here, no VLAN at the peer"),
        ({"vlan": 5}, {"vlan": 6}, "VLAN 5 here, VLAN 6 at the peer"),
        ({}, {"address": (1 << 64) - 1, "length": 2}, "has no end"),
    ],
)
def test_ends_that_cannot_be_connected_are_refused(ours, theirs, why):
    with pytest.raises(InputError, match=why) as caught:
        negotiate(replace(OURS, **ours), replace(THEIRS, **theirs))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"window": 3}, "window must be a power of two"),
        ({"retries": 8}, "retries must be 0 to 7"),
        ({"traffic_class": 256}, "traffic_class must be 0 to 255"),
        ({"priority": 8}, "priority must be 0 to 7"),
        ({"priority": 1}, "priority 1 needs vlan"),
    ],
)
def test_what_is_this_end_s_own_is_checked_too(settings, why):
    with pytest.raises(InputError, match=why):
        negotiate(OURS, THEIRS, **settings)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"queue_pair": 1}, "peer: queue_pair must be 2 to 0xffffff, not 1"),
        ({"psn": 1 << 24}, "peer: psn must be 0 to 0xffffff"),
        ({"psn": True}, "peer: psn must be"),
        ({"rkey": "7"}, "peer: rkey must be"),
        ({"mtu": 1500}, "peer: mtu must be one of 256, 512, 1024, 2048, 4096, not 1500"),
        ({"mtu": "1024"}, "peer: mtu must be one of"),
        ({"gid": "10.0.0.1"}, "peer: gid must be an IPv6 address"),
        ({"gid": None}, "peer: gid must be an IPv6 address"),
        ({"mac": "02:00:00:00:00"}, "peer: mac must be like"),
        ({"vlan": 4095}, "peer: vlan must be 0 to 0xffe"),
        ({"format": "other"}, "peer: not an end of a queue pair: no format 'fanin-rdma 1'"),
    ],
)
def test_a_line_that_says_something_else_is_refused(change, why):
    said = json.loads(THEIRS.to_json()) | change
    with pytest.raises(InputError, match=why):
        End.from_json(json.dumps(said), source="peer")


def test_a_line_that_is_not_json_or_misses_something_is_refused():
    said = json.loads(THEIRS.to_json())
    del said["psn"]
    for line, why in (
        (json.dumps(said), "missing psn"),
        ("0000:000012", "not a line of JSON"),
        ("[" * 100_000, "not a line of JSON"),
        ("[1]", "format"),
    ):
        with pytest.raises(InputError, match=why):
            End.from_json(line, source="peer")
    assert End.from_json(json.dumps(json.loads(THEIRS.to_json()) | {"more": 1}), source="peer") == THEIRS


def test_two_ends_tell_one_another_and_go_on_together():
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(Rendezvous.listen, port, timeout=10)
        with Rendezvous.connect("127.0.0.1", port, timeout=10) as here, listening.result() as there:
            heard = pool.submit(there.exchange, THEIRS)
            assert here.exchange(OURS) == THEIRS
            assert heard.result() == OURS
            waits = pool.submit(there.wait, "ready")
            assert not waits.done()
            here.wait("ready")
            waits.result()
            waits = pool.submit(there.wait, "ready")
            with pytest.raises(InputError, match="the peer sent 'ready' instead of 'written'"):
                here.wait("written")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"", "the peer closed the connection"),
        (b"x" * 5000, "a line of more than 4096 bytes"),
        (None, "no answer for 0.2 s"),
        (b"\xff\xfe\n", "not a line of JSON"),
    ],
)
def test_a_peer_that_says_no_line_is_given_up(said, why):
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def answer():
            stream, _ = server.accept()
            with closing(stream):
                stream.recv(4096)
                if said is None:
                    stop.wait(10)
                else:
                    stream.sendall(said)

        pool.submit(answer)
        port = server.getsockname()[1]
        with (
            Rendezvous.connect("127.0.0.1", port, timeout=0.2) as here,
            pytest.raises(InputError, match=f"127.0.0.1:{port}: {why}"),
        ):
            here.exchange(OURS)
        stop.set()


def test_an_end_waits_on_this_machine_alone_unless_it_is_told():
    port = free_port()
    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(Rendezvous.listen, port, timeout=1)
        with pytest.raises(InputError, match=f"127.0.0.2:{port}: no listener"):
            Rendezvous.connect("127.0.0.2", port, timeout=0.5)
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: no connection"):
            listening.result()


def test_nobody_there_is_an_error_within_its_time():
    port = free_port()
    with pytest.raises(InputError, match="no listener"):
        Rendezvous.connect("127.0.0.1", port, timeout=0.2)
    with pytest.raises(InputError, match="no connection within"):
        Rendezvous.listen(port, host="127.0.0.1", timeout=0.1)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(InputError, match="cannot listen"):
        Rendezvous.listen(port, host="127.0.0.1", timeout=0.1)
    with pytest.raises(InputError, match="cannot connect"):
        Rendezvous.connect("no-such-host.invalid", port, timeout=0.2)


def test_an_end_that_waits_does_not_call_itself(monkeypatch):
    monkeypatch.setattr(socket, "socket", SelfConnecting)
    with pytest.raises(InputError, match="no listener"):
        Rendezvous.connect("127.0.0.1", free_port(), timeout=0.3)


def test_a_node_s_end_and_the_registers_for_its_peer():
    region = Region(0x1000, 0x2000, 0xABCD, frozenset([FIRST_QUEUE_PAIR + 3]))
    end = End.of_node(3, Endpoint(0x02_00_00_00_00_01, 0x0A_00_00_01), region, psn=77, vlan=5)
    assert end == End(
        0x103, 77, end.gid, "02:00:00:00:00:01", 4096, rkey=0xABCD, address=0x1000, length=0x2000, vlan=5
    )
    assert end.ipv4 == 0x0A_00_00_01
    theirs = replace(THEIRS, vlan=5)
    connection = negotiate(end, theirs, traffic_class=104, priority=3)
    peer = theirs.endpoint(source_port(end, theirs))
    driver = RdmaDriver(RdmaConfig(vlan=True))
    written = {o.address: o.data for o in driver.connect(3, connection, peer).operations}
    assert written[driver.registers.offset("peer_number")] == 0x45A7C
    assert written[driver.registers.offset("marks")] == 104 | 1 << 8 | (3 << 13 | 5) << 9
    with pytest.raises(ValueError, match=r"vlan 5: this node has no tags"):
        RdmaDriver(RdmaConfig()).connect(3, connection, peer)


def test_source_ports_are_those_that_roce_may_send_from():
    ports = {source_port(replace(OURS, queue_pair=n), THEIRS) for n in range(256, 512)}
    assert len(ports) > 200
    assert all(0xC000 <= port <= 0xFFFF for port in ports)
    # by hand: 0x100 * 0x45A7C is 0x45A7C00; its bits from 20 on, 0x45, flip the lowest ones: 0xA7C45
    label = 0xA7C45
    assert source_port(OURS, THEIRS) == 0xC000 | (label & 0x3FFF) ^ (label >> 14)
