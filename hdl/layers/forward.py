"""Forward way of a convolution."""

from __future__ import annotations

from functools import cached_property
from itertools import product
from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.hdl.arith.array import LaneArray, Trees, lane_latency
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.fold import Fold
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.lines import Lines, Results
from fanin.hdl.layers.places import window_steps
from fanin.hdl.layers.way import WayLoops
from fanin.hdl.layers.word_supply import SUPPLY_MEMBERS
from fanin.hdl.stream.connect import connect_typed


def forward_trees(schedule: Schedule) -> Trees:
    """Return the products (word of the block, weight) by output, column · lanes_out + lane."""
    columns, inputs, outputs = range(schedule.p.ph), schedule.lanes_in, schedule.lanes_out
    if schedule.depthwise:
        return tuple(((j * inputs + o, o),) for j, o in product(columns, range(outputs)))
    return tuple(
        tuple((j * inputs + i, i * outputs + o) for i in range(inputs))
        for j, o in product(columns, range(outputs))
    )


class Forward(wiring.Component):
    """Pipeline of input lines, products with weights, folds, and blocks of results: y = x ∗ w.

    A block begins when its rows are complete and its results have room, and then runs to its end. If weights
    are streamed, in the order of the steps, each step also waits for its own weights.

    Members
    -------
    ``features`` : In, stream of pi words
    ``outputs`` : Out, stream of po words
    ``admit`` : In(1)
        The next frame may begin.
    ``admitted`` : Out(1)
        Pulse: the frame begins. Within 8 cycles, ``admit`` refers to the next frame.
    ``weight_address`` : Out, range(weight_words)
    ``weights`` : In, ``weight_lanes`` words
        Weights, one cycle after their address.

    Parameters
    ----------
    ``schedule`` : Schedule
    ``streamed`` : bool
        Weights are streamed in the order of the steps. ``ok`` and ``take`` replace ``weight_address``. ``ok``,
        In(1): the next weights are available. ``take``, Out(1): a step takes weights, which ``weights`` holds
        ``Lines.LATENCY`` cycles later, and for as many cycles as the group has frames.

    Latency
    -------
    ``latency`` cycles from the last word that the first block waits for to the first word on ``outputs``.
    A frame takes ``schedule.cycles``, or as long as its words take in or out.

    Source
    ------
    docs/systems/layers.md, "The convolution"; NADA, section III.
    """

    def __init__(self, *, schedule: Schedule, streamed: bool = False):
        self.schedule, self.streamed = schedule, streamed
        weights = {"weight_address": Out(range(schedule.weight_words))}
        super().__init__(
            {
                "features": In(word_stream(schedule.p.pi)),
                "outputs": Out(word_stream(schedule.p.po)),
                "admit": In(1),
                "admitted": Out(1),
                **(SUPPLY_MEMBERS if streamed else weights),
                "weights": In(data.ArrayLayout(WORD_BITS, schedule.weight_lanes)),
            }
        )

    @cached_property
    def _trees(self) -> Trees:
        return forward_trees(self.schedule)

    @property
    def _steps_to_results(self) -> int:
        """Cycles from a sum's last step to the sum."""
        return Lines.LATENCY + lane_latency(self._trees) + Fold.LATENCY

    @property
    def latency(self) -> int:
        """Cycles from the last word that the first block waits for to the first word of its results."""
        begin = 3  # until the first step: write the row, count it, begin the block
        schedule, way = self.schedule, Way.FORWARD
        idle = schedule.round_cycles(way) - schedule.round_steps(way)  # after the last step
        return begin + schedule.block_cycles(way) - idle - 1 + self._steps_to_results + Results.LATENCY

    def elaborate(self, platform: Any) -> Module:
        """Build the loops, and the datapath at a fixed number of cycles after them."""
        m = Module()
        schedule = self.schedule
        raster, p = schedule.features, schedule.p
        m.submodules.lines = lines = Lines(raster=raster, rows=schedule.feature_rows, words=p.pi)
        m.submodules.results = results = Results(raster=schedule.outputs, rows=schedule.result_rows, words=p.po)
        connect_typed(m, wiring.flipped(self.features), lines.i)
        connect_typed(m, results.o, wiring.flipped(self.outputs))

        go = Signal()
        available: Any = Signal() if self.streamed else None
        loops = WayLoops(m, schedule, Way.FORWARD, go=go, available=available)
        if self.streamed:
            m.d.comb += [available.eq(self.ok | ~loops.takes), self.take.eq(loops.step & loops.takes)]
        m.d.comb += [
            go.eq(results.room & (lines.ready | ~loops.row_begins) & (self.admit | ~loops.frame_begins)),
            results.begin.eq(loops.start),
            lines.begin.eq(loops.start & loops.row_begins),
            lines.end.eq(loops.row_ends),
            self.admitted.eq(loops.start & loops.frame_begins),
        ]
        position = {"c": 1, "block": schedule.row_positions}
        windows = window_steps(loops.nest, raster, {"g": schedule.igs, "ig": 1}, position=position)
        m.d.comb += [lines.window[name].eq(value) for name, value in windows.items()]
        self._datapath(m, loops, lines, results)
        return m

    def _datapath(self, m: Module, loops: WayLoops, lines: Lines, results: Results) -> None:
        schedule = self.schedule
        m.submodules.array = array = shared(LaneArray(trees=self._trees))
        m.submodules.fold = fold = Fold(
            lanes=schedule.p.ph * schedule.lanes_out, depth=schedule.round_steps(Way.FORWARD)
        )
        to_fold = Lines.LATENCY + array.latency
        step = delayed(m, loops.step, to_fold, name="step", reset_less=False)
        m.d.comb += [
            array.valid.eq(step[Lines.LATENCY]),
            array.a.eq(lines.data),
            array.b.eq(self.weights),
            fold.valid.eq(step[to_fold]),
            fold.first.eq(delayed(m, loops.first, to_fold, name="first")[-1]),
            fold.last.eq(delayed(m, loops.last, to_fold, name="last")[-1]),
            fold.i.eq(array.o),
            results.valid.eq(fold.o_valid),
            results.data.eq(fold.o),
        ]
        if not self.streamed:
            address = delayed(m, loops.weight_address(), Lines.LATENCY - 1, name="weight")
            m.d.comb += self.weight_address.eq(address[-1])
