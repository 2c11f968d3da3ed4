"""Times of a convolution's blocks, for ``fanin.cnn.flow.sizes``."""

from __future__ import annotations

import numpy as np

from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.schedule import ENGINE, HAND_OVER, Raster, Schedule, Way


def block_outputs(schedule: Schedule, ready: Cycles, each: int) -> Cycles:
    """Return when each position of the output has left.

    ``ready``: when each position of the input arrives; ``each``: cycles of an output position.
    """
    ended = _engine(schedule, ready, Way.FORWARD)
    return paced(np.repeat(ended, _block_columns(schedule)), each)


def block_gradients(schedule: Schedule, came: Cycles) -> Cycles:
    """Return when each input position's gradient is complete. ``came``: when each output position's arrives."""
    ended = _engine(schedule, came, Way.INPUT_GRADIENT)[schedule.row_blocks - 1 :: schedule.row_blocks]
    return completed(schedule.features, ended)


def window_rows(raster: Raster, ready: Cycles) -> Cycles:
    """Return when each step has its rows. ``ready``: when each position of the input arrives."""
    rows = np.array([raster.last(step) for step in range(raster.steps)])
    return ready[np.maximum((rows + 1) * raster.width - 1, 0)]


def completed(raster: Raster, ended: Cycles) -> Cycles:
    """Return when each input position's gradient is complete. ``ended``: when each row of blocks has ended."""
    whole = np.array([raster.first(step + 1) for step in range(raster.steps)])  # rows that are complete
    step = np.searchsorted(whole, np.arange(raster.height), side="right")
    return np.repeat(ended[np.minimum(step, raster.steps - 1)], raster.width)


def _block_columns(schedule: Schedule) -> int:
    return schedule.block.positions * schedule.p.ph


def _engine(schedule: Schedule, ready: Cycles, way: Way) -> Cycles:
    """Return when each block's words may start to leave. ``ready``: when each position arrives."""
    if way is Way.FORWARD:
        begin = np.repeat(window_rows(schedule.features, ready), schedule.row_blocks)
    else:
        begin = ready[_block_columns(schedule) - 1 :: _block_columns(schedule)]
    return paced(begin + HAND_OVER, schedule.cycles / schedule.blocks) + ENGINE
