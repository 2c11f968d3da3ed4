"""Forwarding under load of controllers: pauses, share of the rate, memory; the switch has its own process.

The machine runs other programs, too. Pauses and shares are therefore measured in processor time of the
forwarding thread: of its longest visit to the control plane, and of all visits.
"""

import contextlib
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest
from finsy.proto import p4r

from tests.sim.switch.service.apart import CELLS, Apart
from tests.sim.switch.service.client import DELETE, DEVICE, INSERT, LIMIT, MODIFY, Client, Set, write_request
from tests.sim.switch.service.served import frame_to
from tests.support import slow

PAUSE = 0.010  # seconds of processor time for which the control plane may stop frames
SHARE = 0.10  # of the processor time, which the control plane may take while frames wait
FRONT_KB = 250_000  # memory of the process that speaks gRPC
ENTRIES = 200_000
STATION = b"\x20"


@pytest.fixture
def apart(request):
    """A large program for long tests, a small one for the others."""
    name = "large" if request.node.get_closest_marker("slow") else "small"
    with contextlib.closing(Apart(name)) as apart:
        yield apart


@pytest.fixture
def primary(apart):
    with contextlib.closing(Client(apart)) as client:
        for mac, port in ((STATION, b"\0"), (b"\x10", b"\2")):
            assert client.write(INSERT, table_entry=client.station(mac, port=port)) == 0
        yield client


class Echo(threading.Thread):
    """Frames, one after the other, that the switch sends back; none may be lost."""

    def __init__(self, host):
        super().__init__(daemon=True)
        self._host = host
        self._stopped = threading.Event()
        self.count = 0

    def run(self):
        while not self._stopped.is_set():
            frame = frame_to(0x20, payload=self.count.to_bytes(8, "big"))
            self._host.send(frame)
            if self._host.recv(2000) != frame:
                return
            self.count += 1
            time.sleep(0.002)

    def end(self):
        """Stop; return how many came back."""
        self._stopped.set()
        self.join(LIMIT)
        return self.count


def _updates(client, kind, count):
    action = client.call("I.forward", b"\1")
    entries = [client.station((n + 1000).to_bytes(6, "big"), action=action) for n in range(count)]
    return write_request([p4r.Update(type=kind, entity={"table_entry": entry}) for entry in entries])


def _read(client, **entity):
    """How many entities a read finds, and the bytes of its largest message."""
    count = largest = 0
    for answer in client.stub.Read(p4r.ReadRequest(device_id=DEVICE, entities=[entity])):
        count, largest = count + len(answer.entities), max(largest, answer.ByteSize())
    return count, largest


def _without_pause(apart, action):
    """Let frames pass during ``action``, and return its result; assert that none waits too long."""
    before = apart.ask("reset")
    echo = Echo(apart.host)
    echo.start()
    try:
        result = action()
    finally:
        count = echo.end()
    assert count > 0
    after = apart.ask("stats")
    assert after["longest"] < PAUSE
    assert after["front_kB"] < FRONT_KB
    assert (after["failed"], after["said"]) == (0, [])
    return result, after["kB"] - before["kB"]


def _fails(client, request, match):
    with pytest.raises(grpc.RpcError, match=match):
        client.stub.Write(request)


@pytest.mark.parametrize("count", [2_000, *slow(ENTRIES)])
def test_a_bulk_write_does_not_stop_frames(apart, primary, count):
    inserts, deletes = (_updates(primary, kind, count) for kind in (INSERT, DELETE))
    _, grown = _without_pause(apart, lambda: primary.stub.Write(inserts))
    assert grown < 5000 + 1.5 * count  # kB
    (found, largest), grown = _without_pause(apart, lambda: _read(primary, table_entry={}))
    assert found == count + 3  # with the two stations and a constant entry
    assert largest < 40_000
    assert grown < 10_000
    _without_pause(apart, lambda: _fails(primary, inserts, f"{count} of {count} parts failed"))
    _without_pause(apart, lambda: primary.stub.Write(deletes))


@pytest.mark.parametrize("kind", slow("register_entry", "counter_entry"))
def test_a_wildcard_read_of_millions_of_cells_does_not_stop_frames(apart, primary, kind):
    (found, largest), grown = _without_pause(apart, lambda: _read(primary, **{kind: {}}))
    assert found == CELLS + 4 * (kind == "register_entry")
    assert largest < 40_000
    assert grown < 10_000  # kB


@pytest.mark.parametrize("kind", [*slow("register", "counter")])
def test_a_write_of_millions_of_cells_does_not_stop_frames(apart, primary, kind):
    register = {"register_id": primary.id("I.last"), "data": {"bitstring": b"\5"}}
    counter = {"counter_id": primary.id("I.by_port"), "data": {"packet_count": 5}}
    entity = {"register_entry": register} if kind == "register" else {"counter_entry": counter}
    update = p4r.Update(type=MODIFY, entity=entity)
    _without_pause(apart, lambda: primary.stub.Write(write_request([update])))


def test_a_large_p4info_does_not_stop_frames(apart, primary):
    info = primary.info
    for number in range(1, 10_000):
        info.actions.add(preamble={"id": number, "name": f"action{number}"})
    assert _without_pause(apart, lambda: primary.configure(Set.VERIFY, config={"p4info": info}))[0] == 0
    info.tables.add(preamble={"id": 5, "name": "none"})
    assert _without_pause(apart, lambda: primary.configure(Set.VERIFY, config={"p4info": info}))[0] == 3


@pytest.mark.parametrize(("count", "seconds"), slow((16, 20)))
def test_hostile_controllers_leave_nine_tenths_of_the_rate(apart, primary, count, seconds):
    apart.ask("flood", "on")
    command = [sys.executable, "-m", "fanin.evaluation.bench.hostile", apart.address, str(DEVICE), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as attackers:
        attackers.stdin.write(b"\n")
        attackers.stdin.flush()
        end = time.monotonic() + LIMIT
        while apart.ask("reset")["calls"] < 2:
            assert time.monotonic() < end
        before = apart.ask("stats")
        time.sleep(seconds)
        after = apart.ask("stats")
        attackers.stdin.close()
    spent = after["control"] - before["control"]
    assert after["frames"] > before["frames"]
    assert 0 < spent < SHARE * (after["cpu"] - before["cpu"])
    assert after["longest"] < PAUSE
    assert after["kB"] - before["kB"] < 20_000
    assert after["front_kB"] < FRONT_KB
    assert (after["failed"], after["said"]) == (0, [])


SILENT = """
import sys, time
from tests.sim.switch.service.client import Bidder
bidder = Bidder(sys.argv[1])
bidder.bid(77)
print(bidder.told(), flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize("how", slow(signal.SIGSTOP))
def test_a_controller_that_vanishes_does_not_keep_its_stream(apart, primary, how):
    """Its kernel still acknowledges what comes, as a proxy or a hung host does; its gRPC answers no ping."""
    command = [sys.executable, "-c", SILENT, apart.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as silent:
        assert silent.stdout.readline() == "(77, 0)\n"
        assert primary.told() == (77, 6)
        silent.send_signal(how)
        try:
            assert primary._answers.get(timeout=30).arbitration.status.code == 5  # no primary any more
        finally:
            silent.kill()
