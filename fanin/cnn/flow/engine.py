"""Times of a convolution's blocks: how ``fanin.cnn.flow.sizes`` sees a layer that has a schedule."""

from __future__ import annotations

import numpy as np

from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.schedule import ENGINE, HAND_OVER, Raster, Schedule, Way


def block_outputs(schedule: Schedule, ready: Cycles, each: int) -> Cycles:
    """When each position of the output has left; ``ready``: of the input; ``each``: cycles of a position."""
    ended = _engine(schedule, ready, Way.FORWARD)
    return paced(np.repeat(ended, _block_columns(schedule)), each)


def block_gradients(schedule: Schedule, came: Cycles) -> Cycles:
    """When the gradient of each input position is complete; ``came``: of the output's."""
    ended = _engine(schedule, came, Way.INPUT_GRADIENT)[schedule.row_blocks - 1 :: schedule.row_blocks]
    return completed(schedule.features, ended)


def window_rows(raster: Raster, ready: Cycles) -> Cycles:
    """When each step has the rows that it waits for; ``ready``: of the input's positions."""
    rows = np.array([raster.last(step) for step in range(raster.steps)])
    return ready[np.maximum((rows + 1) * raster.width - 1, 0)]


def completed(raster: Raster, ended: Cycles) -> Cycles:
    """When the gradient of each input position is complete; ``ended``: each row of blocks has added to it."""
    whole = np.array([raster.first(step + 1) for step in range(raster.steps)])  # rows that are complete
    step = np.searchsorted(whole, np.arange(raster.height), side="right")
    return np.repeat(ended[np.minimum(step, raster.steps - 1)], raster.width)


def _block_columns(schedule: Schedule) -> int:
    return schedule.block.positions * schedule.p.ph


def _engine(schedule: Schedule, ready: Cycles, way: Way) -> Cycles:
    """When each block's words may begin to leave; ``ready``: of the input's positions, or of the gradient's."""
    if way is Way.FORWARD:
        begin = np.repeat(window_rows(schedule.features, ready), schedule.row_blocks)
    else:
        begin = ready[_block_columns(schedule) - 1 :: _block_columns(schedule)]
    return paced(begin + HAND_OVER, schedule.cycles / schedule.blocks) + ENGINE
