"""Cells of each device family for clocks and RGMII pins, so that one top serves all boards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fanin.hdl.boards import clocks
from fanin.hdl.boards.board import Board, Flow
from fanin.hdl.boards.rgmii_pins import RgmiiPins
from fanin.hdl.boards.vendor import series7


@dataclass(frozen=True)
class Cells:
    """Cells of a family: choice of the PLL's dividers, clocks, and pins."""

    choose_dividers: Callable[[float, float], Any]
    clocks: Any
    pins: Any


ECP5 = Cells(clocks.choose_dividers, clocks.Ecp5Clocks, RgmiiPins)
SERIES7 = Cells(series7.choose_dividers, series7.Series7Clocks, series7.Series7RgmiiPins)


def cells_of(board: Board) -> Cells:
    """Return the cells of a board's device."""
    return SERIES7 if board.flow is Flow.VENDOR else ECP5
