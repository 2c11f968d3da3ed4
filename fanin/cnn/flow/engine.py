"""Cycles in which a convolution's blocks give outputs and gradients, for ``fanin.cnn.flow.sizes``."""

from __future__ import annotations

import numpy as np

from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.raster import HAND_OVER, Raster
from fanin.cnn.layers.schedule import ENGINE, Schedule, Way


def block_outputs(schedule: Schedule, arrivals: Cycles, position_cycles: int) -> Cycles:
    """Return the cycle in which each position of the output has left.

    ``arrivals``: cycle in which each position of the input arrives.
    ``position_cycles``: cycles between two output positions.
    """
    block_ends = _block_ends(schedule, arrivals, Way.FORWARD)
    return paced(np.repeat(block_ends, _block_columns(schedule)), position_cycles)


def block_gradients(schedule: Schedule, arrivals: Cycles) -> Cycles:
    """Return the cycle in which each input position's gradient is complete.

    ``arrivals``: cycle in which each output position's gradient arrives.
    """
    row_ends = _block_ends(schedule, arrivals, Way.INPUT_GRADIENT)[
        schedule.row_blocks - 1 :: schedule.row_blocks
    ]
    return completed(schedule.features, row_ends)


def window_rows(raster: Raster, arrivals: Cycles) -> Cycles:
    """Return the cycle in which each step's rows are present. ``arrivals``: cycle of each input position."""
    last_rows = np.array([raster.last(step) for step in range(raster.steps)])
    return arrivals[np.maximum((last_rows + 1) * raster.width - 1, 0)]


def completed(raster: Raster, row_ends: Cycles) -> Cycles:
    """Return the cycle in which each input position's gradient is complete.

    ``row_ends``: end of each block row.
    """
    complete_rows = np.array([raster.first(step + 1) for step in range(raster.steps)])  # after each step
    completing_steps = np.searchsorted(complete_rows, np.arange(raster.height), side="right")
    return np.repeat(row_ends[np.minimum(completing_steps, raster.steps - 1)], raster.width)


def _block_columns(schedule: Schedule) -> int:
    return schedule.block.positions * schedule.p.ph


def _block_ends(schedule: Schedule, arrivals: Cycles, way: Way) -> Cycles:
    """Return the cycle in which each block's words may start to leave. ``arrivals``: cycle of each position."""
    if way is Way.FORWARD:
        starts = np.repeat(window_rows(schedule.features, arrivals), schedule.row_blocks)
    else:
        starts = arrivals[_block_columns(schedule) - 1 :: _block_columns(schedule)]
    return paced(starts + HAND_OVER, schedule.cycles / schedule.blocks) + ENGINE
