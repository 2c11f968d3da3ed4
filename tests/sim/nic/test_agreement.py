"""Workers agree on their least number, whoever comes first, over a network that loses and repeats frames."""

import random
import socket
import threading
from contextlib import contextmanager

import pytest

from fanin.base.errors import ToolFailed
from fanin.p4.aggregation import ProgramConfig
from fanin.p4.deployment import default_deployment
from fanin.sim.nic import agreement
from fanin.sim.nic.agreement import MAX_NUMBER, SLOTS, Agreement
from fanin.sim.switch.base import SwitchKind
from fanin.sim.switch.make import make_switch
from fanin.wire.aggregation import Encap
from tests.support import new_seed


class Ended:
    """An interface by a socket."""

    def __init__(self, end):
        self._end = end
        end.setblocking(False)

    def fileno(self):
        return self._end.fileno()

    def send(self, frame):
        self._end.send(frame)

    def receive(self):
        try:
            return [(0, self._end.recv(2048))]
        except BlockingIOError:
            return []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@contextmanager
def switch(monkeypatch, workers, encap=Encap.L2, loss=0.0):
    """A switch with two jobs in a thread; interfaces are called by the numbers of their ports."""
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(workers)]
    monkeypatch.setattr(agreement, "open_interface", lambda name: Ended(pairs[int(name)][0]))
    monkeypatch.setattr(agreement, "_RESEND_S", 0.01)
    config = ProgramConfig(workers=workers, slots=4 * SLOTS, encap=encap)
    machine, rng = make_switch(workers, kind=SwitchKind.REFERENCE, config=config), random.Random(new_seed())
    for job in default_deployment(config, 2).jobs:
        machine.add_job(job)
    ended = threading.Event()
    lock = threading.Lock()

    def serve(port):
        near = pairs[port][1]
        near.settimeout(0.05)
        while not ended.is_set():
            try:
                frame = near.recv(2048)
            except TimeoutError:
                continue
            with lock:
                for to, answer, _ in machine.inject(port, frame, 0):
                    for _ in range(rng.randrange(3) if rng.random() < loss else 1):
                        pairs[to][1].send(answer)

    threads = [threading.Thread(target=serve, args=(port,)) for port in range(workers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
        for pair in pairs:
            for end in pair:
                end.close()


def agreed(numbers, *, groups=None, **options):
    """What each process finds, each with the workers of a group, all at once."""
    groups = groups or [(worker,) for worker in range(len(numbers))]
    found = {}

    def one(workers):
        own = Agreement(
            [str(worker) for worker in workers],
            workers,
            **{"job": 1, "base": SLOTS, "encap": Encap.L2, "values": 8, "timeout": 20} | options,
        )
        found[workers] = own.minimum(numbers[workers[0]])

    threads = [threading.Thread(target=one, args=(tuple(workers),)) for workers in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found.get(tuple(workers)) for workers in groups]


@pytest.mark.parametrize("encap", list(Encap))
def test_all_find_the_least(monkeypatch, encap):
    rng = random.Random(new_seed())
    numbers = [rng.choice((0, rng.randrange(100), rng.randrange(MAX_NUMBER + 1))) for _ in range(4)]
    with switch(monkeypatch, 4, encap, loss=0.3):
        assert agreed(numbers, encap=encap) == [min(numbers)] * 4


def test_a_process_may_have_several_workers(monkeypatch):
    with switch(monkeypatch, 4):
        assert agreed([7, 9, 7, 7], groups=[(0, 2, 3), (1,)]) == [7, 7]


def test_a_worker_that_was_killed_learns_it_again(monkeypatch):
    with switch(monkeypatch, 2):
        assert agreed([5, 6]) == [5, 5]
        assert agreed([5, 6], groups=[(1,)]) == [5]
        assert agreed([3, 9], job=2, base=3 * SLOTS) == [3, 3]


def test_a_worker_that_does_not_come_is_not_waited_for_for_ever(monkeypatch):
    with switch(monkeypatch, 2):
        alone = Agreement(["0"], [0], job=1, base=SLOTS, encap=Encap.L2, values=8, timeout=0.1)
        with pytest.raises(ToolFailed, match=r"^TIMEOUT: the other workers have not come to job 1 in 0\.1 s$"):
            alone.minimum(0)


@pytest.mark.parametrize("number", [-1, MAX_NUMBER + 1])
def test_numbers_have_bounds(number):
    with pytest.raises(ValueError, match="number must be in"):
        Agreement(["0"], [0], job=1, base=0, encap=Encap.L2, values=8, timeout=1).minimum(number)
    with pytest.raises(ValueError, match="values must be at least 8"):
        Agreement(["0"], [0], job=1, base=0, encap=Encap.L2, values=4, timeout=1)


def test_sums_that_nobody_contributed_are_an_error(monkeypatch):
    monkeypatch.setattr(Agreement, "_sum", lambda *_: (0,) * 8 + (1,))
    with (
        switch(monkeypatch, 1),
        pytest.raises(ToolFailed, match=r"^job 1: the switch returned zeros for slot 8$"),
    ):
        Agreement(["0"], [0], job=1, base=SLOTS, encap=Encap.L2, values=9, timeout=1).minimum(0)
