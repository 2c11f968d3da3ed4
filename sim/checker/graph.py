"""The graph of a search, backwards: from which states some others can be reached."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fanin.sim.checker.group import Group
from fanin.sim.checker.tables import Flags, Numbers


class Graph:
    """Edges into the states of this process, from those of any; a state is a number of its process."""

    def __init__(self, group: Group):
        self._group = group
        self._targets: list[Numbers] = []
        self._sources: list[Numbers] = []  # number times size of the group, and rank

    def add(self, sources: Numbers, rank: int, targets: Numbers) -> None:
        """Edges, from states of ``rank`` to states here, side by side."""
        self._sources.append(sources * np.int32(self._group.size) + np.int32(rank))
        self._targets.append(targets)

    def leading_to(self, ends: NDArray[np.integer], count: int) -> Flags:
        """From which of the ``count`` states here one of all processes' ``ends`` can be reached."""
        group = self._group
        targets, sources = np.concatenate(self._targets), np.concatenate(self._sources)
        self._targets, self._sources = [targets], [sources]  # so that they are held once
        shape = count, group.size * max(group.gather(count))
        into = sparse.coo_array((np.ones(len(targets), np.int8), (targets, sources)), shape).tocsr()
        leading, which = np.zeros(count, bool), np.empty(count, np.int32)
        leading[ends] = True
        while any(group.gather(len(ends))):
            found = _joined(into.indptr, into.indices, ends)
            there = group.exchange([found[found % group.size == r] // group.size for r in range(group.size)])
            before = np.concatenate(there)
            before = before[~leading[before]]
            leading[before] = True
            which[before] = np.arange(len(before))
            ends = before[which[before] == np.arange(len(before))]  # each once
        return leading


def _joined(
    starts: NDArray[np.integer], items: NDArray[np.integer], which: NDArray[np.integer]
) -> NDArray[np.integer]:
    """The items of all these lists, of which list n is ``items[starts[n] : starts[n + 1]]``."""
    counts = starts[which + 1] - starts[which]
    shifts = starts[which] - (np.cumsum(counts) - counts)
    return items[np.arange(counts.sum()) + np.repeat(shifts, counts)]
