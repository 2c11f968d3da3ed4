"""Runs that may be spread over ranks, as a program: ``python -m tests.sim.cosim.spread CASE DIR SEED…``.

Alone or under mpiexec. Writes what came out of each seed to DIR/SEED/result, a pickle, and its capture.pcap.
Here are the cases of the least nodes; those of whole systems, which take longer to load, are in
``spread_systems.py``.
"""

import functools
import importlib
import os
import pickle
import signal
import sys
from pathlib import Path

import numpy as np

from fanin.link import LinkConfig
from fanin.sim.cosim import ranks
from fanin.sim.cosim.cluster import Cluster
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Phase
from fanin.sim.cosim.simulator import Group, SimulationFailed
from fanin.sim.switch.base import Job, Member
from fanin.sim.switch.operations import Operations
from fanin.sim.switch.reference import ReferenceSwitch
from fanin.wire.ethernet import Endpoint
from tests.sim.cosim.dummy import JOB, REGISTERS, SLOTS, DummyNode

OPERATIONS = 20
NODES = 2  # of the dummies
at = REGISTERS.offset


class Deadly(HostProgram):
    """Kills the simulator that is to carry it out."""

    def words(self):
        os.kill(os.getpid(), signal.SIGKILL)


class Ordered:
    """Hosts that read a register and say so; when all have, they are ordered to read again, or to end.

    Their nodes differ in how long that takes. Some orders hold from so much later on that time is skipped.
    """

    ROUNDS = 6
    LATER = 10**7  # ps
    NEVER = 10**10  # an alarm to which time would be skipped where an order is in flight
    QUIET = 100  # cycles: less than a window

    def __init__(self, board):
        self.board, self.done, self.progress = board, False, 0
        self.log = Log({node: [] for node in board.nodes})
        self.said = set()
        board.told, board.ordered = self.told, self.ordered

    def start(self):
        self.board.at(self.NEVER, lambda: None)
        for node in self.board.nodes:
            self.read(node)

    def read(self, node):
        program = HostProgram()
        for _ in range(1 + 3 * node):
            program.read(at("total"))
        self.board.run(node, program, functools.partial(self.answered, node))

    def answered(self, node, reads):
        self.log[node].append(("answered", self.board.cycle))
        self.board.tell(node, len(reads))

    def told(self, node, what):
        assert node not in self.said
        self.said.add(node)
        if len(self.said) == NODES:
            self.said = set()
            self.board.order(self.board.told_at + (self.LATER if self.progress % 2 else 0))

    def ordered(self, time):
        self.progress += 1
        for log in self.log.values():
            log.append(("ordered", self.board.cycle))
        self.done = self.progress == self.ROUNDS
        for node in self.board.nodes if not self.done else ():
            self.board.at(time, functools.partial(self.read, node))

    def may_skip(self):
        return True

    def waiting(self):
        return f"round {self.progress} is under way"

    def result(self):
        return self.log


class Log(dict):
    """What the hosts of each node have noted."""

    def add(self, other):
        self.update(other)


def _dummies(seed, folder, *, last=lambda program: program, link=None, event_limit=1000):
    """The least nodes; ``last`` changes the program of the last one."""
    rng = np.random.default_rng(seed)
    programs = [
        HostProgram()
        .write(at("worker"), node)
        .write(at("operations"), OPERATIONS)
        .write(at("control"), 1)
        .poll(at("busy"), 0)
        .read(at("total"))
        for node in range(NODES)
    ]
    members = tuple(Member(n, 1 << n, Endpoint(mac=n + 1)) for n in range(NODES))
    total = HostProgram().read(at("total"))
    return Cluster(lambda: [Group(DummyNode(), NODES)], quiet=True).run(
        memories=[[rng.integers(0, 99, (OPERATIONS, 8), dtype=np.int32)] for _ in range(NODES)],
        phases=[
            Phase("all", [*programs[:-1], last(programs[-1])]),
            Phase("first", [total], settled=True),
            Phase("again", [total] * NODES),
        ],
        longest_wait=0,
        switch=functools.partial(ReferenceSwitch, endpoint=Endpoint(mac=99), ports=NODES),
        watch=Operations,
        jobs=[Job(JOB, 0, SLOTS, members)],
        link=link,
        seed=seed,
        events=event_limit,
        pcap=folder / "capture.pcap",
        link_log=folder / "links",
    )


def dummies(seed, folder):
    """Their run."""
    return _dummies(seed, folder, event_limit=OPERATIONS + 1)


def ordered(seed, folder):
    """Hosts do what rank 0 orders."""
    rng = np.random.default_rng(seed)
    return Cluster(lambda: [Group(DummyNode(), NODES)], quiet=True).run(
        memories=[[rng.integers(0, 99, (1, 8), dtype=np.int32)] for _ in range(NODES)],
        phases=[],
        longest_wait=0,
        hosts=Ordered,
        independent_hosts=True,
        quiet_cycles=Ordered.QUIET,
        seed=seed,
    )


def failing(seed, folder):
    """The last node's host finds what it does not expect."""
    return _dummies(seed, folder, last=lambda program: program.check(at("total"), 1))


def lost(seed, folder):
    """Nothing arrives."""
    return _dummies(seed, folder, link=LinkConfig(drop=1))


def deadly(seed, folder):
    """The last node's simulator is killed."""
    return _dummies(seed, folder, last=lambda program: Deadly())


def no_latency(seed, folder):
    """Windows are one cycle."""
    return _dummies(seed, folder, link=LinkConfig(delay_ns=0, gbps=float("inf")))


def main(case, folder, *seeds):
    """Run a case at rank 0, once for each seed, and write what came out."""
    if not ranks.join():
        return
    if not (run := globals().get(case)):
        run = getattr(importlib.import_module("tests.sim.cosim.spread_systems"), case)
    try:
        for seed in seeds:
            _leave(run, seed, Path(folder) / seed)
    finally:
        if joined := ranks.joined():
            joined.close()


def _leave(run, seed, folder):
    folder.mkdir(parents=True)
    try:
        found = run(int(seed), folder)
    except SimulationFailed as failure:
        found = (str(failure), failure.result)
    (folder / "result").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    from tests.sim.cosim import spread  # simulators unpickle what is in it, by this name

    spread.main(*sys.argv[1:])
