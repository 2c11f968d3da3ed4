"""Expected sums of a run's descriptors, by the golden model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from fanin.base.errors import CheckFailed

Float32 = npt.NDArray[np.float32]


class Sums:
    """Golden sums of the nodes' gradients, for each descriptor of the run."""

    def __init__(self, reduce: Callable[[Sequence[Float32]], Float32], nodes: int):
        self._reduce, self._nodes = reduce, nodes
        self._gradients: dict[int, dict[int, Float32]] = {}
        self._totals: dict[int, tuple[Float32, int]] = {}  # sum, and number of nodes that have taken it

    def post(self, descriptor: int, node: int, gradient: Float32) -> None:
        """Add a node's gradient."""
        self._gradients.setdefault(descriptor, {})[node] = gradient.copy()

    def take(self, descriptor: int) -> Float32:
        """Return the sum, kept until each node has taken it. Raises CheckFailed if a post is missing."""
        if descriptor not in self._totals:
            gradients = self._gradients.pop(descriptor)
            if len(gradients) != self._nodes:
                raise CheckFailed(
                    f"an all-reduce is complete, but {len(gradients)} of {self._nodes} have posted"
                )
            self._totals[descriptor] = self._reduce([gradients[node] for node in range(self._nodes)]), 0
        total, takes = self._totals.pop(descriptor)
        if takes + 1 < self._nodes:
            self._totals[descriptor] = total, takes + 1
        return total
