"""Input gradient of a dense layer whose weights are streamed from memory, in memory order."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import REUSE
from fanin.cnn.layers.schedule import Schedule
from fanin.hdl.arith.array import LaneArray, Trees, lane_latency
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.fold import Fold
from fanin.hdl.layers.input_gradient import input_gradient_trees
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.lines import Lines, Results
from fanin.hdl.layers.nest import Loops, Nest
from fanin.hdl.layers.resize import resized
from fanin.hdl.layers.word_supply import SUPPLY_MEMBERS
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.pipeline_queue import PipelineQueue

_TO_SUMS = 1 + Fold.LATENCY  # cycles from the read of a sum's last term to the sum


class StreamedInputGradient(wiring.Component):
    """Input gradient dx = Wᵀ·dy of a dense layer, with weights in the order (ig, og).

    A *term* is what one group og of dy adds to one group ig of dx. In weight order all terms of a group of dx
    are consecutive, which is too fast for a fold: its adder needs the previous sum. A *tile* therefore collects
    the terms of ``schedule.tile`` groups of dx. They are written in the order (ig, og) and folded in the order
    (og, ig), in which the fold alternates between the groups. Terms are stored in a ring of
    ``schedule.term_rows`` rows, one row per group of dx. With a group of frames, the frames are the innermost
    loop of both orders.

    Members
    -------
    ``gradients`` : In, stream of po words
        Gradients of the output.
    ``input_gradients`` : Out, stream of pi words
    ``ok`` : In(1)
        The next weights are available.
    ``take`` : Out(1)
        A step takes the next weights; only while ``ok``.
    ``weights`` : In, ``weight_lanes`` words
        Weights of the step, from ``Lines.LATENCY`` cycles after ``take`` on, a cycle for each frame of the
        group.
    ``finished`` : Out(1)
        Pulse: the last weights of a group of frames have arrived.

    Parameters
    ----------
    ``schedule`` : Schedule, of a dense layer

    Latency
    -------
    ``latency`` cycles from the last word of a group's gradients to the first word of ``input_gradients``, if
    the weights are available by then. A group takes ``schedule.block_cycles(Way.INPUT_GRADIENT)`` cycles, or as
    long as its words take in or out.

    Source
    ------
    docs/systems/layers.md, "Parameters in memory".
    """

    def __init__(self, *, schedule: Schedule):
        self.schedule = schedule
        super().__init__(
            {
                "gradients": In(word_stream(schedule.p.po)),
                "input_gradients": Out(word_stream(schedule.p.pi)),
                **SUPPLY_MEMBERS,
                "weights": In(data.ArrayLayout(WORD_BITS, schedule.weight_lanes)),
                "finished": Out(1),
            }
        )

    @cached_property
    def _trees(self) -> Trees:
        return input_gradient_trees(self.schedule)

    @property
    def _to_terms(self) -> int:
        """Cycles from a step to the write of its terms."""
        return Lines.LATENCY + lane_latency(self._trees)

    @property
    def latency(self) -> int:
        """Cycles from the last word of a group's gradients to the first word of ``input_gradients``.

        An upper bound for a group of several frames, whose terms may wait for room.
        """
        tile, ogs, p = self.schedule.tile, self.schedule.ogs, self.schedule.p
        begin = 3  # until the first step: write the gradient, count it, take it
        # until the step of the last term of a tile's first word
        folds = 2 + (ogs - 1) * max(tile * p.frames, REUSE)
        if p.frames > 1:
            folds += tile * p.frames - 1  # until that of the tile's last word
            return begin + self.schedule.period + self._to_terms + folds + _TO_SUMS + Results.LATENCY
        terms = tile * ogs - 1 + self._to_terms
        resize = 2 * (p.pi < p.pic)
        return begin + terms + folds + _TO_SUMS + 1 + resize

    def elaborate(self, platform: Any) -> Module:
        """Build the producer of terms in weight order, the ring of terms, and the folds."""
        m = Module()
        rows, word = self.schedule.term_rows, data.ArrayLayout(WORD_BITS, self.schedule.lanes_in)
        m.submodules.terms = memory = Memory(shape=word, depth=rows * self._row_terms, init=[])
        m.submodules.free = free = Credits(limit=rows, full=True)
        m.submodules.filled = filled = Credits(limit=rows // self.schedule.tile)
        self._terms(m, memory.write_port(), free, filled)
        self._folds(m, memory.read_port(), free, filled)
        return m

    @property
    def _row_terms(self) -> int:
        """Terms of a row: those of a group of dx, of each frame."""
        return self.schedule.ogs * self.schedule.p.frames

    def _terms(self, m: Module, write: Any, free: Credits, filled: Credits) -> None:
        """Compute terms in weight order; a row begins when it has room and its frame's dy is complete."""
        schedule, outputs = self.schedule, self.schedule.outputs
        m.submodules.blocks = blocks = Lines(raster=outputs, rows=schedule.output_rows, words=schedule.p.po)
        m.submodules.products = products = shared(LaneArray(trees=self._trees))
        connect_typed(m, wiring.flipped(self.gradients), blocks.i)
        go = Signal()
        rows = {"tile": schedule.igs // schedule.tile, "ig": schedule.tile}
        levels, row = rows | {"og": schedule.ogs, "frame": schedule.p.frames}, ("og", "frame")
        available = Signal()
        loops = Loops(m, levels, block=row, inner=row, idle=0, go=go, available=available, name="term")
        takes = loops.nest.begins("frame")
        next_row = Nest(m, rows, loops.start, name="next_row")
        frame_begins = Signal(init=1)
        with m.If(loops.start):
            m.d.sync += frame_begins.eq(next_row.ends(rows))
        tile_ends, frame_ends = loops.ends & loops.nest.ends(("ig",)), loops.ends & loops.nest.ends(rows)
        step = delayed(m, loops.step, self._to_terms, name="step", reset_less=False)
        place = Signal.like(write.addr)
        m.d.comb += [
            go.eq(free.ok & (blocks.ready | ~frame_begins)),
            free.take.eq(loops.start),
            blocks.begin.eq(loops.start & frame_begins),
            blocks.end.eq(frame_ends),
            blocks.window.address.eq(loops.nest.walk({"og": 1, "frame": outputs.column_step}, name="address")),
            available.eq(self.ok | ~takes),
            self.take.eq(loops.step & takes),
            products.a.eq(self.weights),
            products.b.eq(blocks.data),
            products.valid.eq(step[Lines.LATENCY]),
            write.en.eq(step[-1]),
            write.addr.eq(place),
            write.data.eq(products.o),
            filled.give.eq(delayed(m, tile_ends, self._to_terms, name="filled", reset_less=False)[-1]),
            self.finished.eq(delayed(m, frame_ends, Lines.LATENCY, name="finished", reset_less=False)[-1]),
        ]
        with m.If(step[-1]):
            m.d.sync += place.eq(Mux(place == schedule.term_rows * self._row_terms - 1, 0, place + 1))

    def _folds(self, m: Module, read: Any, free: Credits, filled: Credits) -> None:
        """Fold each complete tile, group by group of dy. The last group completes the sums and frees rows."""
        schedule, tile, frames = self.schedule, self.schedule.tile, self.schedule.p.frames
        m.submodules.fold = fold = Fold(lanes=schedule.lanes_in, depth=tile * frames)
        levels, inner = {"og": schedule.ogs, "ig": tile, "frame": frames}, ("ig", "frame")
        go = Signal()
        available = Signal()
        loops = Loops(
            m,
            levels,
            block=tuple(levels),
            inner=inner,
            idle=max(REUSE - tile * frames, 0),
            go=go,
            available=available,
            name="sum",
        )
        ring = schedule.term_rows * self._row_terms
        strides = {"og": frames, "ig": self._row_terms, "frame": 1}
        m.d.comb += [
            filled.take.eq(loops.start),
            free.give.eq(loops.step & loops.last & loops.nest.ends(("frame",))),
            read.addr.eq(loops.nest.walk(strides, modulo=ring, drift=tile * self._row_terms, name="address")),
            fold.valid.eq(delayed(m, loops.step, 1, name="term", reset_less=False)[-1]),
            fold.first.eq(delayed(m, loops.first, 1, name="first")[-1]),
            fold.last.eq(delayed(m, loops.last, 1, name="last")[-1]),
            fold.i.eq(read.data),
        ]
        if frames > 1:
            self._frames(m, loops, fold, go, available, filled)
        else:
            self._words(m, loops, fold, go, available, filled)

    def _words(
        self, m: Module, loops: Loops, fold: Fold, go: Signal, available: Signal, filled: Credits
    ) -> None:
        """Send the sums of one frame as they are complete. The queue has room for a tile's."""
        p, tile = self.schedule.p, self.schedule.tile
        m.submodules.queue = queue = PipelineQueue(shape=fold.o.shape(), latency=_TO_SUMS, extra_places=tile)
        m.d.comb += [
            go.eq(filled.ok),
            available.eq(queue.ok | ~loops.last),
            queue.enter.eq(loops.step & loops.last),
            queue.result.eq(fold.o),
        ]
        words = self.schedule.layer.input.words
        resized_words = resized(m, "resize", queue.o, words=words, i=p.pic, o=p.pi)
        connect_typed(m, resized_words, wiring.flipped(self.input_gradients))

    def _frames(
        self, m: Module, loops: Loops, fold: Fold, go: Signal, available: Signal, filled: Credits
    ) -> None:
        """Collect the sums of a group of frames, and send them frame by frame. A group begins with room."""
        schedule = self.schedule
        rows = schedule.input_gradient_rows
        m.submodules.results = results = Results(raster=schedule.features, rows=rows, words=schedule.p.pi)
        tiles = Nest(m, {"tile": schedule.igs // schedule.tile}, loops.start, name="next_tile")
        first = Signal(init=1)
        with m.If(loops.start):
            m.d.sync += first.eq(tiles.ends(tiles.levels))
        m.d.comb += [
            go.eq(filled.ok & (results.room | ~first)),
            available.eq(1),
            results.begin.eq(loops.start & first),
            results.valid.eq(fold.o_valid),
            results.data.eq(fold.o),
        ]
        connect_typed(m, results.o, wiring.flipped(self.input_gradients))
