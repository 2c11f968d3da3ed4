"""Loops of a way of a convolution, with their addresses and windows."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Signal, Value

from fanin.cnn.layers.schedule import Schedule, Way
from fanin.hdl.layers.nest import Loops, Nest

# Loops of a block, outermost first: over rounds, then inside a round. r counts rows, c positions of a row.
_LOOPS = {
    Way.FORWARD: (("ky", "kx", "ig"), ("g", "og", "r", "c")),
    Way.INPUT_GRADIENT: (("ky", "kx", "og"), ("g", "ig", "r", "c")),
    Way.WEIGHT_GRADIENT: (("r", "c"), ("ky", "kx", "g", "ig", "og")),
}
# The weight gradient's, with velocities in DRAM: tiles of input and output groups, frames, groups of a tile.
_TILED = (("ig_tile", "og_tile", "r", "c"), ("ky", "kx", "g", "ig", "og"))
_WEIGHT_LOOPS = ("ky", "kx", "g", "ig", "og")


class WayLoops(Loops):
    """Loops over consecutive frames: rows of blocks, the blocks of a row, and the steps of a block.

    ``row_begins``, ``frame_begins``: the next block to start is the first of a row of blocks or of a frame.
    ``row_ends``, ``frame_ends``: the step is the last one of a row of blocks or of a frame.
    ``takes``, ``gives``: the step is the first or the last one that uses its streamed weights or velocities.
    ``input_groups``: stride of each loop in input groups.

    ``tiled``: the way is the weight gradient of streamed velocities.
    """

    def __init__(
        self, m: Module, schedule: Schedule, way: Way, *, go: Any, available: Any = None, tiled: bool = False
    ):
        self.schedule, self.way = schedule, way
        rounds, inner = _TILED if tiled else _LOOPS[way]
        kernel_rows, kernel_columns = schedule.layer.kernel
        sizes = {
            "ky": kernel_rows,
            "kx": kernel_columns,
            "g": schedule.groups,
            "ig": schedule.igs,
            "og": schedule.ogs,
        }
        sizes |= {"r": schedule.block.rows, "c": schedule.row_positions}
        self.input_groups, self.output_groups = {"ig": 1}, {"og": 1}
        if tiled:
            igs, ogs = schedule.weight_tile
            sizes |= {"ig_tile": schedule.igs // igs, "og_tile": schedule.ogs // ogs, "ig": igs, "og": ogs}
            self.input_groups["ig_tile"], self.output_groups["og_tile"] = igs, ogs
        block = (*rounds, *inner)
        frame = {"row": schedule.features.steps, "block": schedule.row_blocks}
        super().__init__(
            m,
            frame | {level: sizes[level] for level in block},
            block=block,
            inner=inner,
            idle=schedule.round_cycles(way) - schedule.round_steps(way),
            go=go,
            available=available,
            name="loop",
        )
        next_block = Nest(m, frame, self.start, name="next_block")
        self.row_begins = Signal(init=1)
        self.frame_begins = Signal(init=1)
        with m.If(self.start):
            m.d.sync += [
                self.row_begins.eq(next_block.ends(("block",))),
                self.frame_begins.eq(next_block.ends(frame)),
            ]
        self.takes, self.gives = self.nest.begins("c"), self.nest.ends(("c",))
        self.row_ends = self.ends & self.nest.ends(("block",))
        self.frame_ends = self.ends & self.nest.ends(frame)

    def weight_address(self) -> Signal:
        """Return the address of the step's weights. For the input gradient, kernel loops count down."""
        unit = {
            level: self.schedule.weight_address(*(int(level == other) for other in _WEIGHT_LOOPS))
            for level in _WEIGHT_LOOPS
        }
        base = 0
        if self.way is Way.INPUT_GRADIENT:
            for level in "ky", "kx":
                base += (self.nest.levels[level] - 1) * unit[level]
                unit[level] = -unit[level]
        return self.nest.walk(unit, base=base, name="weight_address")

    def output_window(self) -> dict[str, Value]:
        """Return the fields of a ``window_layout`` of ``schedule.outputs``, whose window is one position."""
        raster = self.schedule.outputs
        position = {"r": self.schedule.row_positions, "c": 1}
        groups = {"g": self.schedule.ogs, **self.output_groups}
        column_strides = {level: n * raster.columns for level, n in position.items()}
        address_strides = {level: n * raster.column_step for level, n in position.items()}
        return {
            "row": Const(0),
            "tap": Const(0),
            "column": self.nest.walk(column_strides, name="output_column"),
            "address": self.nest.walk(address_strides | groups, name="output_address"),
            "rotate": self.nest.walk(groups, modulo=raster.columns, name="output_rotate"),
        }
