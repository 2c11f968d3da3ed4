"""Graphs drawn at random, as systems to search; and what is true of them, in plain Python."""

from collections import deque

import numpy as np

from fanin.sim.checker.protocol import INVARIANTS
from fanin.sim.checker.system import Transitions
from fanin.sim.checker.tables import Interned


class Drawn:
    """``nodes`` nodes, some of them ends; edges, some of them faults. A state is a row of one node.

    Edges have two actors, by their numbers. Node 0 is the start.
    """

    invariants, slots, actors = INVARIANTS, 1, 2

    def __init__(self, seed, *, nodes=60, degree=1.6, ends=3):
        random = np.random.default_rng(seed)
        count = int(nodes * degree)
        # Most edges lead a little further; the others, anywhere.
        self.sources = random.integers(nodes, size=count)
        further = np.minimum(self.sources + random.integers(1, 6, size=count), nodes - 1)
        self.targets = np.where(random.random(count) < 0.7, further, random.integers(nodes, size=count))
        self.faults = random.random(count) < 0.2
        self.ends = np.zeros(nodes, bool)
        self.ends[random.integers(nodes, size=ends)] = True
        self._numbers = Interned()
        self._numbers.all(range(nodes))
        self.columns, self.violations = (self._numbers,), Interned()
        self.violations(None)
        self.start = np.zeros(1, np.int32)

    def transitions(self, rows, slot, actor, *, faults=True):
        source, edges = np.nonzero(rows[:, :1] == self.sources[None])
        kept = (edges % 2 == actor) & (faults | ~self.faults[edges])
        source, edges = source[kept], edges[kept].astype(np.int32)
        after = self.targets[edges, None].astype(np.int32)
        return Transitions(source, after, self.faults[edges], edges, np.zeros(len(edges), np.int32))

    def independent_slots(self, rows):
        return np.zeros((len(rows), 1), bool)

    def canonical(self, rows):
        return rows

    def done(self, rows):
        return self.ends[rows[:, 0]]

    def event(self, number):
        return number

    def distances(self):
        """How many edges lead from the start to each node that can be reached."""
        found, waiting = {0: 0}, deque([0])
        while waiting:
            node = waiting.popleft()
            for after in self.targets[self.sources == node].tolist():
                if after not in found:
                    found[after] = found[node] + 1
                    waiting.append(after)
        return found

    def stuck(self):
        """From which of those that can be reached no edges but faults lead to an end."""
        free = [(s, t) for s, t, f in zip(self.sources, self.targets, self.faults, strict=True) if not f]
        leading = set(np.flatnonzero(self.ends).tolist())
        while more := {int(s) for s, t in free if t in leading} - leading:
            leading |= more
        return set(self.distances()) - leading
