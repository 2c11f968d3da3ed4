"""Input gradient of a convolution."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Cat, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.hdl.arith.array import LaneArray, Trees, lane_latency
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.gradient_rows import GradientRows
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.lines import Lines
from fanin.hdl.layers.places import WindowPlaces, window_steps
from fanin.hdl.layers.way import WayLoops
from fanin.hdl.stream.connect import connect_typed


def input_gradient_trees(schedule: Schedule) -> Trees:
    """Return products (weight, word of the output's gradient) by word of a window, column · lanes_in + lane."""
    columns, inputs, outputs = range(schedule.p.ph), schedule.lanes_in, schedule.lanes_out
    if schedule.depthwise:
        return tuple(((o, j * outputs + o),) for j, o in product(columns, range(outputs)))
    return tuple(
        tuple((i * outputs + o, j * outputs + o) for o in range(outputs))
        for j, i in product(columns, range(inputs))
    )


class InputGradient(wiring.Component):
    """Pipeline of blocks of output gradients, products with weights, and sums in rows of the input gradient.

    A block begins when its gradients are complete and its rows have room, and then runs to its end.

    Members
    -------
    ``gradients`` : In, stream of po words
        Gradients of the output.
    ``input_gradients`` : Out, stream of pi words
    ``weight_address`` : Out, range(weight_words)
    ``weights`` : In, ``weight_lanes`` words
        Weights, one cycle after their address.
    ``finished`` : Out(1)
        Pulse: the last weights of a frame have been read.

    Parameters
    ----------
    ``schedule`` : Schedule

    Latency
    -------
    A frame takes ``schedule.blocks`` · ``schedule.block_cycles(Way.INPUT_GRADIENT)`` cycles, or as long as its
    words take in or out. A row's first word leaves ``latency`` cycles after the last step that adds to the row.

    Source
    ------
    docs/systems/layers.md, "The convolution"; NADA, section III.
    """

    def __init__(self, *, schedule: Schedule):
        self.schedule = schedule
        super().__init__(
            {
                "gradients": In(word_stream(schedule.p.po)),
                "input_gradients": Out(word_stream(schedule.p.pi)),
                "weight_address": Out(range(schedule.weight_words)),
                "weights": In(data.ArrayLayout(WORD_BITS, schedule.weight_lanes)),
                "finished": Out(1),
            }
        )

    @cached_property
    def _trees(self) -> Trees:
        return input_gradient_trees(self.schedule)

    @property
    def _to_terms(self) -> int:
        """Cycles from a step to its terms."""
        return Lines.LATENCY + lane_latency(self._trees)

    @property
    def latency(self) -> int:
        """Cycles from the last step that adds to a row to the row's first word."""
        return self._to_terms - WindowPlaces.LATENCY + GradientRows.LATENCY

    def elaborate(self, platform: Any) -> Module:
        """Build the loops, and the datapath at a fixed number of cycles after them."""
        m = Module()
        schedule, p = self.schedule, self.schedule.p
        inputs, outputs = schedule.features, schedule.outputs
        m.submodules.blocks = blocks = Lines(raster=outputs, rows=schedule.output_rows, words=p.po)
        m.submodules.rows = rows = GradientRows(raster=inputs, rows=schedule.input_gradient_rows, words=p.pi)
        connect_typed(m, wiring.flipped(self.gradients), blocks.i)
        connect_typed(m, rows.o, wiring.flipped(self.input_gradients))

        go = Signal()
        loops = WayLoops(m, schedule, Way.INPUT_GRADIENT, go=go)
        m.d.comb += [
            go.eq(blocks.ready & (rows.ready | ~loops.row_begins)),
            rows.begin.eq(loops.start & loops.row_begins),
            blocks.begin.eq(loops.start),
            blocks.end.eq(loops.ends),
        ]
        m.d.comb += [blocks.window[name].eq(value) for name, value in loops.output_window().items()]
        self._datapath(m, loops, blocks.data, rows)
        return m

    def _datapath(self, m: Module, loops: WayLoops, gradients: Any, rows: GradientRows) -> None:
        m.submodules.products = products = shared(LaneArray(trees=self._trees))
        step = delayed(m, loops.step, Lines.LATENCY, name="step", reset_less=False)[-1]
        address = delayed(m, loops.weight_address(), Lines.LATENCY - 1, name="weight")
        m.d.comb += [
            self.weight_address.eq(address[-1]),
            products.a.eq(self.weights),
            products.b.eq(gradients),
            products.valid.eq(step),
            self.finished.eq(
                delayed(m, loops.frame_ends, Lines.LATENCY, name="finished", reset_less=False)[-1]
            ),
        ]
        add_windows(m, self.schedule, loops, rows, products.o, self._to_terms)


def add_windows(
    m: Module, schedule: Schedule, loops: WayLoops, rows: GradientRows, terms: Any, latency: int
) -> None:
    """Add ``terms``, ``latency`` cycles after their step of ``loops``, to ``rows`` at the step's windows."""
    to_place = latency - WindowPlaces.LATENCY
    m.d.comb += [
        rows.add.eq(delayed(m, loops.step, to_place, name="add", reset_less=False)[-1]),
        rows.end.eq(delayed(m, loops.row_ends, to_place, name="row_end", reset_less=False)[-1]),
        rows.terms.eq(terms),
        rows.first.eq(delayed(m, _first(schedule, loops), latency, name="first")[-1]),
    ]
    groups, position = {"g": schedule.igs, "ig": 1}, {"c": 1, "block": schedule.row_positions}
    windows = window_steps(loops.nest, schedule.features, groups, position=position, down=True)
    m.d.comb += [
        rows.window[name].eq(delayed(m, value, to_place, name=f"window_{name}")[-1])
        for name, value in windows.items()
    ]


def _first(schedule: Schedule, loops: WayLoops) -> Value:
    """Return, by column, whether its term is the first that its place receives.

    A term is the first if no earlier output uses the place. Earlier outputs are a row above, a column further
    left, or in an earlier group of output channels.
    """
    nest = loops.nest
    down, right = schedule.layer.stride
    output_row = nest.walk({"row": schedule.block.rows, "r": 1}, name="output_row")
    position = nest.walk({"block": schedule.row_positions, "c": 1}, name="position")
    # The kernel loops count down: ``rows_below``, ``columns_right``: kernel rows and columns that remain.
    rows_below, columns_right = (
        nest.walk({"ky": 1}, name="rows_below"),
        nest.walk({"kx": 1}, name="columns_right"),
    )
    first_row = (output_row == 0) | (rows_below < down)
    first_column = columns_right < right
    first_group = nest.walk({"og": 1}, name="output_group") == 0
    first = first_row & first_group
    columns = [first_column | (position == 0), *(schedule.p.ph - 1) * [first_column]]
    return Cat(first & column for column in columns)
