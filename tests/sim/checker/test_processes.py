"""A search that processes share: the same is found, whatever their number; and none is left behind."""

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.sim.checker import group
from fanin.sim.checker.link import LinkSystem
from fanin.sim.checker.link_ends import Bounds
from fanin.sim.checker.packing import hash_words
from fanin.sim.checker.param_server import Wild, WildSystem
from fanin.sim.checker.published import Published
from fanin.sim.checker.rounds import Rounds
from fanin.sim.checker.search import HOLDS, check, search
from fanin.sim.checker.system import Faults, System
from fanin.sim.checker.tables import Interned, fingerprints
from fanin.sim.checker.visited import VisitedStates
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
    "param_server, broken": lambda: WildSystem(Wild(slots=2, waits_for_credit=False)),
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
    ways = System.transitions

    def dies(self, rows, *args, **options):
        if of_rank(victim) and len(rows) > 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return ways(self, rows, *args, **options)

    monkeypatch.setattr(System, "transitions", dies)
    with pytest.raises(CheckFailed, match=f"^process {victim + 1} of the search's {processes} ended: SIGKILL$"):
        search(system(Rounds), processes=processes)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("processes", "victim"), [(2, 1), (4, 2)])
def test_a_process_that_stands_still_ends_the_search(monkeypatch, processes, victim):
    ways = System.transitions

    def stops(self, rows, *args, **options):
        if of_rank(victim) and len(rows) > 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        return ways(self, rows, *args, **options)

    monkeypatch.setattr(System, "transitions", stops)
    monkeypatch.setattr(group, "_TIMEOUT", 3.0)
    said = f"^process {victim + 1} of the search's {processes} did not answer for 3 s$"
    with pytest.raises(CheckFailed, match=said):
        search(system(Rounds), processes=processes)
    assert not multiprocessing.active_children()


def test_an_interrupt_leaves_no_process():
    def interrupted(states, waiting):
        if states > 100:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(system(Rounds), processes=3, progress=interrupted)
    assert not multiprocessing.active_children()


def test_states_of_the_same_fingerprint_are_not_taken_for_one(monkeypatch):
    """Fingerprints say whose a state is and which comes first; states are compared in full."""
    whole = search(SMALL["switchml, 2 slots"]())
    for module in ("exchange", "retrace", "search"):
        monkeypatch.setattr(f"fanin.sim.checker.{module}.fingerprints", few_fingerprints)
    found = [search(SMALL["switchml, 2 slots"](), processes=processes) for processes in (1, 2)]
    assert [outcome.status for outcome in found] == [HOLDS, HOLDS]
    assert found[0].states == found[1].states >= whole.states  # of two that tie neither comes first
    published = [search(SMALL["published"](), all_invariants=True, processes=processes) for processes in (1, 2)]
    assert published[0].states == published[1].states == 1017


def few_fingerprints(*args):
    return fingerprints(*args) & np.uint64(0x30000000000)


def test_equal_values_have_one_digest():
    """Also where they are of other types: in one process True may come first, in another 1."""
    first, second = Interned(), Interned()
    first((True, (Kind.ACK, None)))
    second(("other",))
    second((1, (2, None)))
    assert first.digests[0] == second.digests[1] != second.digests[0]


@pytest.mark.parametrize("columns", [3, 9])
def test_every_state_is_visited_once(columns, monkeypatch):
    """Against a dict: states that come again, at once and later; places that collide; more and more values."""
    values, numbers, random = Interned(), {}, np.random.default_rng(7)
    visited = VisitedStates([values] * columns)
    monkeypatch.setattr("fanin.sim.checker.visited._BATCH", 1000)
    few = np.uint64(0xFFE << 52)  # places that most states begin at
    monkeypatch.setattr("fanin.sim.checker.visited.hash_words", lambda words: hash_words(words) & few)
    for most in (1, 2, 3, 5, 40, 60, 64, 65, 300):
        values.all(range(most))
        for _ in range(6):
            rows = random.integers(most, size=(500, columns), dtype=np.int32)
            rows[::7] = rows[0]
            found = visited.add(rows)
            for row, number in zip(map(tuple, rows.tolist()), found.tolist(), strict=True):
                assert numbers.setdefault(row, number) == number
    assert sorted(numbers.values()) == list(range(len(visited)))
    every = visited.rows(slice(None))
    assert [tuple(row) for row in every.tolist()] == sorted(numbers, key=numbers.get)
    assert (visited.find(every) == np.arange(len(visited))).all()
    with pytest.raises(LookupError):
        visited.find(np.full((1, columns), most - 1, np.int32))


def test_a_search_that_has_no_more_numbers_says_so():
    visited = VisitedStates([Interned()], ranks=64)
    with pytest.raises(CheckFailed, match="holds 67,108,862 states at most"):
        visited._reserve(1 << 26)


@pytest.mark.slow
def test_a_state_takes_few_bytes():
    """All memory of a search of a million states, in a process of its own, against one of a thousand."""
    peaks = []
    for faults in (0, 5):
        options = [f"--{name}={faults}" for name in ("losses", "duplicates", "reorder", "faults")]
        command = [sys.executable, "-c", MEASURED, "p4", "check", "--workers=3", *options]
        ran = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        *_, peak = ran.stdout.split()
        peaks.append(int(peak))
    assert "1,069,513 states" in ran.stdout
    assert (peaks[1] - peaks[0]) * 1024 / 1_069_513 < 50


MEASURED = "import resource; from fanin.cli.main import main; main(); print(resource.getrusage(0).ru_maxrss)"
