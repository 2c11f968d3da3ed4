"""Arithmetic on the cycles in which positions of a map leave a stage, for ``fanin.cnn.flow.sizes``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Cycles = npt.NDArray[np.float64]


def latest(times: Sequence[Cycles]) -> Cycles:
    """Return the cycle in which each position has arrived at all inputs. ``times``: cycles of each input."""
    return np.maximum.reduce(list(times))


def paced(ready_times: Cycles, interval: float) -> Cycles:
    """Return the cycles in which positions leave: in order, when ready, at least ``interval`` cycles apart."""
    offsets = np.arange(1, len(ready_times) + 1) * interval
    return np.maximum.accumulate(ready_times - offsets + interval) + offsets
