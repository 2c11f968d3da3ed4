"""Arithmetic on the times at which positions of a map leave a stage, for ``fanin.cnn.flow.sizes``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Cycles = npt.NDArray[np.float64]


def latest(times: Sequence[Cycles]) -> Cycles:
    """Return when each position of all inputs has arrived."""
    return np.maximum.reduce(list(times))


def paced(ready: Cycles, each: float) -> Cycles:
    """Return when positions leave that are ready at ``ready``, in order, at least ``each`` cycles apart."""
    steps = np.arange(1, len(ready) + 1) * each
    return np.maximum.accumulate(ready - steps + each) + steps
