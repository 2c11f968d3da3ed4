"""The loop between interfaces and switch: counters, refusals, frames to nowhere, requests between frames."""

import contextlib
import random
import selectors
import socket
import threading
import time
from concurrent.futures import CancelledError

import pytest

from fanin.cli.p4.rates import totals
from fanin.host.ethernet import InterfaceLost
from fanin.p4.control import Exact, TableEntry
from fanin.sim.switch.embedded import load
from fanin.sim.switch.service import forwarding
from tests.sim.switch.service.apart import Flood
from tests.sim.switch.service.served import TEXT, FakeInterface, Served, frame_to
from tests.support import new_seed

BAD = TEXT.replace("action drop() {", "action drop() { bit<9> nothing; std.egress_spec = nothing;").replace(
    "mark_to_drop(std); }", "if (std.egress_spec == 1) { mark_to_drop(std); } }"
)


@pytest.fixture
def served():
    served = Served()
    yield served
    served.close()


def _forward(served, mac, port):
    entry = TableEntry("I.stations", {"hdr.ethernet.destination": Exact(mac)}, "I.forward", {"port": port})
    served.forwarding.run_in_loop(lambda: served.forwarding.switch.insert(entry))


def test_frames_and_bytes_are_counted_by_port(served):
    _forward(served, 0x10, 1)
    _forward(served, 0x11, 400)  # a port without an interface
    for length in (0, 10, 100):
        served.send(0, frame_to(0x10, payload=bytes(length)))
        assert served.receive(1) == frame_to(0x10, payload=bytes(length))
    served.send(2, frame_to(0x11))
    served.send(2, frame_to(0x12))  # dropped by the program
    served.send(2, frame_to(0x10))
    served.receive(1)
    served.forwarding.run_in_loop(lambda: None)  # the last frame has been counted
    counters = served.forwarding.counters
    assert (counters[0].frames_in, counters[0].bytes_in) == (3, 3 * 14 + 110)
    assert (counters[1].frames_out, counters[1].bytes_out) == (4, 4 * 14 + 117)
    assert (counters[2].frames_in, served.forwarding.unconnected) == (3, 1)


def test_a_frame_whose_answer_is_open_is_counted_and_said_once():
    served = Served(BAD)
    try:
        _forward(served, 0x10, 1)
        for _ in range(3):
            served.send(0, frame_to(0x99))
        served.send(0, frame_to(0x10))
        assert served.receive(1) == frame_to(0x10)
        assert served.forwarding.counters[0].refused == 3
        (said,) = served.said
        assert "frames that need it are lost" in said
    finally:
        served.close()


def test_fuzzed_frames_leave_counters_exact(served):
    """What is no frame of the program's is dropped or refused; nothing else changes, and nothing ends."""
    rng = random.Random(new_seed())
    _forward(served, 0x10, 1)
    sent = good = 0
    for _ in range(3000):
        frame = frame_to(0x10, payload=rng.randbytes(rng.randrange(50)))
        if rng.random() < 0.7:
            frame = bytearray(frame[: rng.randrange(1, len(frame))])
            frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
            frame = bytes(frame)
        served.send(0, frame)
        sent += 1
        if frame[:6] == (0x10).to_bytes(6, "big") and len(frame) >= 14:
            good += 1
            assert served.receive(1) == frame
    served.send(0, frame_to(0x10))
    served.receive(1)
    served.forwarding.run_in_loop(lambda: None)
    counters = served.forwarding.counters
    assert counters[0].frames_in == sent + 1
    assert counters[1].frames_out == good + 1
    assert served.forwarding.unconnected == 0


def test_requests_are_carried_out_between_frames_and_errors_are_the_askers(served):
    _forward(served, 0x10, 1)
    with pytest.raises(ZeroDivisionError):
        served.forwarding.run_in_loop(lambda: 1 // 0)
    owner = served.forwarding.run_in_loop(threading.current_thread)
    assert owner is not threading.current_thread()
    served.send(0, frame_to(0x10))
    assert served.receive(1) == frame_to(0x10)


def test_nobody_waits_for_a_loop_that_has_ended(served):
    served.forwarding.stop()
    with pytest.raises(CancelledError):
        served.forwarding.run_in_loop(lambda: None)


def test_what_was_given_up_is_not_carried_out_later(served, monkeypatch):
    monkeypatch.setattr(forwarding, "_REQUEST_TIMEOUT", 0.1)
    held, holds, done = threading.Event(), threading.Event(), []

    def hold():
        with contextlib.suppress(TimeoutError):
            served.forwarding.run_in_loop(lambda: (holds.set(), held.wait(20)))

    holder = threading.Thread(target=hold)
    holder.start()
    assert holds.wait(20)
    with pytest.raises(TimeoutError):
        served.forwarding.run_in_loop(lambda: done.append(1))
    held.set()
    holder.join(20)
    monkeypatch.setattr(forwarding, "_REQUEST_TIMEOUT", 20)
    served.forwarding.run_in_loop(lambda: None)
    assert done == []


def test_frames_to_nowhere_are_told(served):
    _forward(served, 0x11, 400)
    served.send(2, frame_to(0x11))
    served.forwarding.run_in_loop(lambda: None)
    served.send(2, frame_to(0x12))
    served.forwarding.run_in_loop(lambda: None)
    while served.forwarding.counters[2].frames_in < 2:
        served.forwarding.run_in_loop(lambda: None)
    text = totals(served.forwarding, {0: "a", 1: "b", 2: "c"})
    assert "to ports without an interface: 1" in text


class _Busy:
    """A control plane that always has work, and a timer that is always due."""

    def __init__(self, forwarding):
        self._forwarding = forwarding
        self._file, self._other = socket.socketpair()
        self.blocked = self.finished = False
        self.ready = True
        self.calls = self.looks = self.timers = 0

    def fileno(self):
        return self._file.fileno()

    def work(self, end):
        self.calls += 1
        while time.monotonic() < end:
            pass

    def look(self):
        self.looks += 1

    def finish(self):
        self.finished = True

    def timer(self):
        self.timers += 1
        self._forwarding.wake(0.0)
        return 0.0

    def close(self):
        self._file.close()
        self._other.close()


@pytest.mark.parametrize("frames", [True, False])
def test_control_has_a_share_of_the_time_while_frames_wait_and_else_all_of_it(frames):
    flood = Flood()
    loop = forwarding.Forwarding(load(TEXT).switch(), {0: flood})
    with contextlib.closing(flood), contextlib.closing(_Busy(loop)) as busy:
        loop.attach(busy)
        loop.timer = busy.timer
        loop.wake(0.0)
        if frames:
            flood.turn(True)
        end = time.monotonic() + 0.3
        began = time.thread_time()
        loop.run(lambda: (time.monotonic() >= end and loop.stop()) or loop.wake(0.0))
        spent = time.thread_time() - began
        assert busy.timers > 0
        assert busy.finished
        assert (loop.counters[0].frames_in > 0) == frames
        share = loop.control_seconds / spent
        assert 0 < share < 0.1 if frames else share > 0.8
        assert loop.longest_visit < 0.01
    loop.close()


def test_an_interface_that_goes_ends_the_loop_and_every_wait():
    """Also where its counters cannot be read any more: a request that waits is cancelled."""

    class Gone(FakeInterface):
        def receive(self):
            raise InterfaceLost("a: the interface is gone")

        overrun = receive

    interface = Gone()
    loop = forwarding.Forwarding(load(TEXT).switch(), {0: interface})
    outcome = []

    def ask():
        try:
            loop.run_in_loop(lambda: None)
        except CancelledError as error:
            outcome.append(error)

    loop._selector.unregister(loop._wake)  # the request stays in the queue
    asker = threading.Thread(target=ask)
    asker.start()
    while loop._requests.empty():
        time.sleep(0.01)
    with pytest.raises(InterfaceLost):
        loop.run(lambda: None)
    asker.join(5)
    assert len(outcome) == 1
    loop._selector.register(loop._wake, selectors.EVENT_READ)
    loop.close()
    interface.close()
