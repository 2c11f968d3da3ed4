"""The input gradient of a dense layer whose weights come from memory, in their order there."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.array import LaneArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared
from fanin.hdl.layers.fold import Fold
from fanin.hdl.layers.input_gradient import input_gradient_trees
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.lines import Lines
from fanin.hdl.layers.nest import Loops, Nest
from fanin.hdl.layers.resize import resized
from fanin.hdl.layers.word_supply import TAKEN
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.pipeline_queue import PipelineQueue
from fanin.layers.family import WORD_BITS
from fanin.layers.layer import REUSE
from fanin.layers.schedule import Schedule

_TILES = 2  # one is written, one is folded


class StreamedInputGradient(wiring.Component):
    """dx = Wᵀ·dy with weights in the order (ig, og): a tile of terms is written so, and folded as (og, ig).

    In the order of the weights all terms of a word of dx come one behind the other, faster than an adder can
    fold them. A tile has the terms of ``schedule.tile`` groups of dx, which take turns.

    Members
    -------
    ``gradients`` : In, stream of po words
        Of the output.
    ``input_gradients`` : Out, stream of pi words
    ``ok``, ``take`` : In(1), Out(1)
        The next weights can be taken; a step takes them.
    ``weights`` : In, ``weight_lanes`` words
        ``Lines.LATENCY`` cycles after ``take``.
    ``finished`` : Out(1)
        Pulse: the last weights of a frame have come.

    Parameters
    ----------
    ``schedule`` : Schedule, of a dense layer

    Latency
    -------
    A frame takes ``schedule.blocks`` · ``schedule.block_cycles(Way.INPUT_GRADIENT)`` cycles, or as long as its
    words take to come and go.

    Source
    ------
    docs/systems/cluster.md, "Parameters in memory".
    """

    def __init__(self, *, schedule: Schedule):
        self.schedule = schedule
        super().__init__(
            {
                "gradients": In(word_stream(schedule.p.po)),
                "input_gradients": Out(word_stream(schedule.p.pi)),
                **TAKEN,
                "weights": In(data.ArrayLayout(WORD_BITS, schedule.weight_lanes)),
                "finished": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Terms in the order of the weights, a memory of two tiles, and their folds."""
        m = Module()
        tile, word = self.schedule.tile, data.ArrayLayout(WORD_BITS, self.schedule.lanes_in)
        m.submodules.terms = memory = Memory(shape=word, depth=_TILES * tile * self.schedule.ogs, init=[])
        m.submodules.free = free = Credits(limit=_TILES, full=True)
        m.submodules.filled = filled = Credits(limit=_TILES)
        self._terms(m, memory.write_port(), free, filled)
        self._folds(m, memory.read_port(), free, filled)
        return m

    def _terms(self, m: Module, write: Any, free: Credits, filled: Credits) -> None:
        """Products in the order of the weights; a tile begins when it has room and its frame's dy is there."""
        schedule, outputs = self.schedule, self.schedule.outputs
        m.submodules.blocks = blocks = Lines(raster=outputs, rows=schedule.output_rows, words=schedule.p.po)
        m.submodules.products = products = shared(LaneArray(trees=input_gradient_trees(schedule)))
        connect_typed(m, wiring.flipped(self.gradients), blocks.i)
        go = Signal()
        tiles, inner = {"tile": schedule.igs // schedule.tile}, ("ig", "og")
        levels = tiles | {"ig": schedule.tile, "og": schedule.ogs}
        loops = Loops(m, levels, block=inner, inner=inner, idle=0, go=go, available=self.ok, name="term")
        coming = Nest(m, tiles, loops.start, name="coming")
        frame_begins = Signal(init=1)
        with m.If(loops.start):
            m.d.sync += frame_begins.eq(coming.ends(tiles))
        frame_ends = loops.ends & loops.nest.ends(tiles)
        to_terms = Lines.LATENCY + products.latency
        step = delayed(m, loops.step, to_terms, name="step", reset_less=False)
        place = Signal.like(write.addr)
        m.d.comb += [
            go.eq(free.ok & (blocks.ready | ~frame_begins)),
            free.take.eq(loops.start),
            blocks.begin.eq(loops.start & frame_begins),
            blocks.end.eq(frame_ends),
            blocks.window.address.eq(loops.nest.walk({"og": 1}, name="address")),
            self.take.eq(loops.step),
            products.a.eq(self.weights),
            products.b.eq(blocks.data),
            products.valid.eq(step[Lines.LATENCY]),
            write.en.eq(step[-1]),
            write.addr.eq(place),
            write.data.eq(products.o),
            filled.give.eq(delayed(m, loops.ends, to_terms, name="filled", reset_less=False)[-1]),
            self.finished.eq(delayed(m, frame_ends, Lines.LATENCY, name="finished", reset_less=False)[-1]),
        ]
        last_place = _TILES * schedule.tile * schedule.ogs - 1
        with m.If(step[-1]):
            m.d.sync += place.eq(Mux(place == last_place, 0, place + 1))

    def _folds(self, m: Module, read: Any, free: Credits, filled: Credits) -> None:
        """Sums of a tile that is there, group by group; those of the last group of dy leave."""
        schedule, tile = self.schedule, self.schedule.tile
        m.submodules.fold = fold = Fold(lanes=schedule.lanes_in, depth=tile)
        m.submodules.queue = queue = PipelineQueue(shape=read.data.shape(), latency=1 + Fold.LATENCY)
        levels, block, inner = {"tile": _TILES, "og": schedule.ogs, "ig": tile}, ("og", "ig"), ("ig",)
        idle = max(REUSE - tile, 0)
        loops = Loops(
            m, levels, block=block, inner=inner, idle=idle, go=filled.ok, available=queue.ok, name="sum"
        )
        strides = {"tile": tile * schedule.ogs, "og": 1, "ig": schedule.ogs}
        m.d.comb += [
            filled.take.eq(loops.start),
            free.give.eq(loops.ends),
            read.addr.eq(loops.nest.walk(strides, name="address")),
            fold.valid.eq(delayed(m, loops.step, 1, name="term", reset_less=False)[-1]),
            fold.first.eq(delayed(m, loops.first, 1, name="first")[-1]),
            fold.last.eq(delayed(m, loops.last, 1, name="last")[-1]),
            fold.i.eq(read.data),
            queue.enter.eq(loops.step & loops.last),
            queue.result.eq(fold.o),
        ]
        words, p = schedule.layer.input.words, schedule.p
        made = resized(m, "resize", queue.o, words=words, i=p.pic, o=p.pi)
        connect_typed(m, made, wiring.flipped(self.input_gradients))
