"""A search that processes share: the same is found, whatever their number; and none is left behind."""

import dataclasses
import multiprocessing
import os
import signal
from functools import partial

import numpy as np
import pytest

from fanin.errors import CheckFailed
from fanin.sim.checker import group
from fanin.sim.checker import search as search_module
from fanin.sim.checker.link import LinkSystem
from fanin.sim.checker.link_ends import Bounds
from fanin.sim.checker.param_server import Wild, WildSystem
from fanin.sim.checker.published import Published
from fanin.sim.checker.rounds import Rounds
from fanin.sim.checker.search import check, search
from fanin.sim.checker.system import Faults, System
from fanin.sim.checker.tables import Interned, fingerprints
from fanin.sim.checker.visited import Visited
from fanin.wire.aggregation import Kind, Protocol
from tests.sim.checker.one_bit import OneBit
from tests.support import slow

SwitchML = partial(Rounds, protocol=Protocol.SWITCHML)
ONE = Faults(1, 1, 1, 1)


def system(protocol, *, workers=2, slots=1, rounds=2, faults=ONE):
    return System(protocol(workers=workers, slots=slots, rounds=rounds), faults)


SMALL = {
    "p4sgd": lambda: system(Rounds, faults=Faults(duplicates=1, together=1)),
    "switchml, 2 slots": lambda: system(SwitchML, slots=2, rounds=1, faults=Faults()),
    "published": lambda: system(Published, faults=Faults()),
    "link": lambda: LinkSystem(Bounds(window=1, buffer=1, in_flight=1)),
    "param_server, broken": lambda: WildSystem(Wild(slots=2, waits=False)),
}
LARGE = {
    "p4sgd, 2 slots": lambda: system(Rounds, slots=2, rounds=1),
    "switchml, 2 slots, a fault": lambda: system(SwitchML, slots=2, rounds=1),
    "switchml, 3 workers": lambda: system(SwitchML, workers=3, rounds=1),
    "published, 3 workers": lambda: system(Published, workers=3, faults=Faults(losses=1, together=1)),
    "one bit": lambda: system(OneBit, rounds=3, faults=Faults(duplicates=1, together=1)),
    "link, 2 frames": lambda: LinkSystem(Bounds()),
    "link, broken": lambda: LinkSystem(
        Bounds(window=1, buffer=1, sequences=4, overtaking=3, faults=("overtake", "premature timeout"))
    ),
    "param_server": lambda: WildSystem(Wild(slots=2)),
}


@pytest.mark.parametrize("name", [*SMALL, *slow(*LARGE)])
def test_what_is_found_does_not_depend_on_the_number_of_processes(name):
    """Counts, depth, and counterexamples event by event."""
    make = (SMALL | LARGE)[name]
    found = [search(make(), all_invariants=True, processes=processes) for processes in (1, 2, 4)]
    alone, *shared = [dataclasses.replace(outcome, seconds=0) for outcome in found]
    assert alone.exhausted
    assert shared == [alone, alone]


@pytest.mark.slow
def test_the_second_search_is_shared_too():
    losing = [check(system(Published), seconds=300, processes=processes) for processes in (1, 3)]
    alone, shared = [dataclasses.replace(outcome, seconds=0) for outcome in losing]
    assert len(alone.counterexamples) == 4
    assert alone == shared


def of_rank(rank):
    """Whether this is the search's process of that rank, from 1."""
    process = multiprocessing.current_process()
    return process.name == f"search {rank}"


@pytest.mark.parametrize(("processes", "victim"), [(2, 1), (4, 2)])
def test_a_process_that_is_killed_ends_the_search(monkeypatch, processes, victim):
    ways = System.ways

    def dies(self, rows, slot):
        if of_rank(victim) and len(rows) > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return ways(self, rows, slot)

    monkeypatch.setattr(System, "ways", dies)
    with pytest.raises(CheckFailed, match=f"^process {victim + 1} of the search's {processes} ended: SIGKILL$"):
        search(system(Rounds), processes=processes)
    assert not multiprocessing.active_children()


def test_a_process_that_stands_still_ends_the_search(monkeypatch):
    ways = System.ways

    def stops(self, rows, slot):
        if of_rank(1) and len(rows) > 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        return ways(self, rows, slot)

    monkeypatch.setattr(System, "ways", stops)
    monkeypatch.setattr(group, "_PATIENCE", 3.0)
    with pytest.raises(CheckFailed, match="2 of the search's 2 did not answer for 3 s"):
        search(system(Rounds), processes=2)
    assert not multiprocessing.active_children()


def test_an_interrupt_leaves_no_process():
    def interrupted(states, waiting):
        if states > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(system(Rounds), processes=3, progress=interrupted)
    assert not multiprocessing.active_children()


def test_states_of_the_same_fingerprint_are_not_taken_for_one(monkeypatch):
    """The search ends, rather than lose a state."""
    marks = search_module.fingerprints
    monkeypatch.setattr(search_module, "fingerprints", lambda *args: marks(*args) & np.uint64(0xFF))
    with pytest.raises(RuntimeError, match="share a fingerprint"):
        search(system(Rounds))


def test_equal_values_have_one_digest():
    """Also where they are of other types: in one process True may come first, in another 1."""
    first, second = Interned(), Interned()
    first((True, (Kind.ACK, None)))
    second(("other",))
    second((1, (2, None)))
    assert first.digests[0] == second.digests[1] != second.digests[0]


def test_every_state_is_visited_once():
    """Against a dict, with states that come again in the same batch and later, and places that collide."""
    values = Interned()
    for value in range(50):
        values(value)
    visited, numbers = Visited([values] * 3), {}
    random = np.random.default_rng(7)
    for _ in range(40):
        rows = random.integers(50, size=(500, 3), dtype=np.int32)
        marks = fingerprints([values] * 3, rows) >> np.uint64(6)  # most of the table's places are not used
        found = visited.add(rows, marks, marks)
        for row, number in zip(map(tuple, rows.tolist()), found.tolist(), strict=True):
            assert numbers.setdefault(row, number) == number
    assert sorted(numbers.values()) == list(range(len(visited)))
    assert [tuple(row) for row in visited.rows.tolist()] == sorted(numbers, key=numbers.get)
    assert visited.find(int(marks[3])) == found[3]
