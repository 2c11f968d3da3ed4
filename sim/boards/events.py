"""Measurement events of a board's top: a model with an output for them, and their times from traces."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from fanin.glm.facts import GlmConfig
from fanin.hdl.boards.board import Board
from fanin.hdl.boards.build import SOURCE, extract, make_plan
from fanin.hdl.boards.identity import Identity
from fanin.hdl.boards.top import BOARD_EVENTS, EVENTS, BoardTop
from fanin.sim.boards.model import BoardModel, source_model

_FS = 1000  # femtoseconds per picosecond


def model_with_events(board: Board, config: GlmConfig) -> BoardModel:
    """Return the RTL model of a board's top, as board 0, with the output ``EVENTS``; this is slow."""
    identity = Identity.of(board, number=0, build=0)
    top = BoardTop(board=board, config=config, identity=identity, core_mhz=board.core_mhz)
    with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
        extract(make_plan(board, top, seed=1), Path(folder))
        return source_model(Path(folder) / SOURCE, expose=[EVENTS])


def read_events(path: Path, period_ps: Fraction) -> Mapping[str, npt.NDArray[np.int64]]:
    """Return the times of each event, in ps, from a trace of ``EVENTS`` only.

    An event's bit is high for one clock period before the edge at which it takes effect; that edge is returned.
    ``period_ps`` is the clock's period.
    """
    times, values = np.fromfile(path, dtype=np.uint64).reshape(-1, 2).T
    rises = times[:-1].astype(np.int64) / _FS
    cycles = np.rint(np.diff(times.astype(np.int64)) / _FS / float(period_ps)).astype(np.int64)
    times_of_events = {}
    for name in BOARD_EVENTS.members:
        bit = BOARD_EVENTS[name].offset
        high = (values[:-1] >> np.uint64(bit) & np.uint64(1)).astype(bool)
        edges = [
            rise + float(period_ps) * np.arange(1, count + 1)
            for rise, count in zip(rises[high], cycles[high], strict=True)
        ]
        times_of_events[name] = np.rint(np.concatenate([np.zeros(0), *edges])).astype(np.int64)
    return times_of_events
