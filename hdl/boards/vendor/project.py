"""A vendor board's project: sources, constraints and scripts, for the machine where the vendor's tool is."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import contextmanager
from collections.abc import Iterator
from typing import Any

from amaranth.lib import wiring

from fanin.glm import PRESETS
from fanin.hdl.boards.board import Board
from fanin.hdl.boards.vendor.alveo_u280_top import AlveoU280Top
from fanin.hdl.emission import kept_verilog
from fanin.hdl.glm.node import GlmNode
from fanin.tools import yosys

NAME = "top"


@contextmanager
def _amaranths_yosys() -> Iterator[None]:
    """Amaranth looks for yosys by this name, and would not find the wheel's program."""
    before = os.environ.get("YOSYS")
    os.environ["YOSYS"] = yosys()
    try:
        yield
    finally:
        if before is None:
            del os.environ["YOSYS"]
        else:
            os.environ["YOSYS"] = before


def make_project(
    board: Board, node: wiring.Component, *, emit: Callable[[wiring.Component, str], str]
) -> Any:
    platform = board.make_platform()
    top = AlveoU280Top(node=node, module="glm_node")
    platform.add_file("glm_node.v", emit(node, "glm_node"))
    with _amaranths_yosys():
        return platform.prepare(top, NAME)
