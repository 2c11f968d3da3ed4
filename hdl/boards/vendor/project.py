"""Project of a vendor board: sources, constraints and scripts for the machine with the vendor's tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amaranth.lib import wiring

from fanin.base.errors import InputError
from fanin.glm.facts import PRESETS
from fanin.hdl.boards.board import Board
from fanin.hdl.boards.build import NAME, extract
from fanin.hdl.boards.vendor.alveo_u280_top import AlveoU280Top
from fanin.hdl.boards.vendor.arria10_gx_top import Arria10GxTop
from fanin.hdl.boards.vendor.series7 import TX_MHZ
from fanin.hdl.boards.vendor.templates import render
from fanin.hdl.emission import kept_verilog
from fanin.hdl.glm.node import GlmNode
from fanin.hdl.ring.node import RingNode
from fanin.ring.facts import PRESETS as RING_PRESETS

Emit = Callable[[wiring.Component, str], str]


@dataclass(frozen=True)
class Card:
    """Card with vendor cores around its node: kind of node, node of a preset, and top."""

    kind: str
    node: Callable[[str], wiring.Component]
    top: Callable[..., Any]

    @property
    def module(self) -> str:
        """Name of the node's Verilog module."""
        return f"{self.kind}_node"


#: Vendor boards that have a top of their own instead of the open boards' top.
CARDS: Mapping[str, Card] = MappingProxyType(
    {
        "alveo_u280": Card("glm", lambda preset: GlmNode(config=PRESETS[preset]), AlveoU280Top),
        "arria10_gx": Card("ring", lambda preset: RingNode(config=RING_PRESETS[preset]), Arria10GxTop),
    }
)


def _emit(node: wiring.Component, module: str) -> str:
    return kept_verilog(node, name=module)


def make_project(board: Board, *, top: Any = None, emit: Emit = _emit) -> Any:
    """Return Amaranth's ``BuildPlan`` of a vendor board, with the Verilog of its node in a separate file.

    ``top``: design of a board that uses the open boards' top, with submodules ``clocks``
    (:class:`Series7Clocks`) and ``pins`` (:class:`Series7RgmiiPins`); None for boards in ``CARDS``.
    ``emit``: function that returns the Verilog of the node as a module.
    Raises ValueError if ``top`` is missing or must not be given.
    """
    card = CARDS.get(board.name)
    if (top is None) == (card is None):
        raise ValueError(f"{board.name} {'needs a top' if card is None else 'has a top of its own'}")
    platform = board.make_platform()
    overrides = {}
    if card is None:
        platform.add_file("crossings.tcl", render("series7_crossings.tcl.j2", tx_mhz=TX_MHZ))
        overrides["script_after_synth"] = "source crossings.tcl"
    else:
        node = card.node(board.preset)
        platform.add_file(f"{card.module}.v", emit(node, card.module))
        top = card.top(node=node, module=card.module)
    return platform.prepare(top, NAME, **overrides)


def write_project(board: Board, folder: Path, *, top: Any = None) -> list[Path]:
    """Write a project to a folder, which is created; return its files. Raises InputError if that fails."""
    plan = make_project(board, top=top)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
    extract(plan, folder)
    return [folder / name for name in plan.files]
