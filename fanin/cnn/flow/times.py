"""Times at which the positions of a map have left a stage: what ``fanin.cnn.flow.sizes`` computes with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Cycles = npt.NDArray[np.float64]


def latest(times: Sequence[Cycles]) -> Cycles:
    """When a position of every input has come."""
    return np.maximum.reduce(list(times))


def paced(ready: Cycles, each: float) -> Cycles:
    """When positions have left that are ready at ``ready``, in order, ``each`` cycles apart at least."""
    steps = np.arange(1, len(ready) + 1) * each
    return np.maximum.accumulate(ready - steps + each) + steps
