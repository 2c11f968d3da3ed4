"""Global average pooling: the mean of every channel."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import flipped

from fanin.cnn.layers import global_avg_pool
from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import Parallelism
from fanin.codec.facts import FRACTION_BITS
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.fold import Fold
from fanin.hdl.layers.interface import layer_members
from fanin.hdl.layers.nest import Nest
from fanin.hdl.layers.raster import may_reuse, scaled
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.pipeline_queue import PipelineQueue


class GlobalAvgPool(wiring.Component):
    """Global average pooling: the mean of every channel. Every position gets the same share of the gradient.

    Frames follow each other without a gap. Backward, the layer computes a frame's shares once and repeats them
    for every position, while the gradients of the next frame arrive.

    Members
    -------
    ``features``, ``outputs``, ``control`` : interface of a layer, see ``fanin.hdl.layers.interface``
    ``gradients``, ``input_gradients`` : present if ``layer.gradient``

    Parameters
    ----------
    ``layer`` : ``fanin.cnn.layers.global_avg_pool.GlobalAvgPool``
    ``parallelism`` : ``Parallelism`` with equal ``pi`` and ``po``

    Latency
    -------
    15 cycles from a word of the last position to its mean. 8 cycles from a frame's last gradient to its first
    input gradient. Forward a position takes max(c / po, 8) cycles, backward c / po.

    Source
    ------
    docs/systems/layers.md, "Numbers".
    """

    def __init__(self, *, layer: global_avg_pool.GlobalAvgPool, parallelism: Parallelism):
        self.layer, self.parallelism = layer, parallelism
        super().__init__(layer_members(layer, parallelism))
        shape = layer.input
        self._rows = shape.c // parallelism.po
        self._positions = layer.positions
        self._words = self.outputs.payload.shape()
        self._share = int(layer.mean_factor.view("u4"))

    def elaborate(self, platform: Any) -> Module:
        """Build both ways, which share nothing."""
        m = Module()
        self._forward(m)
        if self.layer.gradient:
            self._backward(m)
        return m

    def _forward(self, m: Module) -> None:
        """Fold the words over the positions, and scale the sums, with a place reserved in the queue."""
        (features,) = self.features
        transfer = features.valid & features.ready
        nest = Nest(m, {"position": self._positions, "row": self._rows}, transfer, name="forward")
        first = Signal(init=1)
        last, row_ends = nest.ends(["position"]), transfer & nest.ends(["row"])
        with m.If(row_ends):
            m.d.sync += first.eq(last)
        m.submodules.fold = fold = Fold(lanes=self.parallelism.po, depth=self._rows)
        means, latency = scaled(m, fold.o, self._share, fold.o_valid, name="means")
        m.submodules.queue = queue = PipelineQueue(shape=self._words, latency=fold.LATENCY + latency)
        connect_typed(m, queue.o, flipped(self.outputs))
        m.d.comb += [
            features.ready.eq(may_reuse(m, row_ends, self._rows) & (queue.ok | ~last)),
            fold.valid.eq(transfer),
            fold.first.eq(first),
            fold.last.eq(last),
            fold.i.eq(features.payload),
            queue.enter.eq(transfer & last),
            queue.result.eq(means),
        ]

    def _backward(self, m: Module) -> None:
        """Buffer the shares of two frames: one frame's shares leave while the other frame's arrive."""
        frames = {"frame": 2, "row": self._rows}
        m.submodules.shares = shares = Memory(shape=self._words, depth=2 * self._rows, init=[])
        m.submodules.free = free = Credits(limit=2, full=True)
        m.submodules.filled = filled = Credits(limit=2)

        gradients = self.gradients
        transfer = gradients.valid & gradients.ready
        incoming = Nest(m, frames, transfer, name="incoming")
        result, latency = scaled(m, gradients.payload, self._share, transfer, name="products")
        write = shares.write_port()
        address = incoming.walk(_addresses(self._rows), name="address")
        store = delayed(m, transfer, latency, name="store", reset_less=False)[-1]
        ends = delayed(m, incoming.ends(["row"]), latency, name="stored_last")[-1]
        m.d.comb += [
            gradients.ready.eq(free.ok),
            free.take.eq(transfer & incoming.ends(["row"])),
            write.addr.eq(delayed(m, address, latency, name="to")[-1]),
            write.data.eq(Cat(Mux(_is_zero(word), 0, word) for word in result)),
            write.en.eq(store),
            filled.give.eq(store & ends),
        ]

        sink = self.input_gradients[0]
        step = filled.ok & (~sink.valid | sink.ready)
        outgoing = Nest(m, {"frame": 2, "position": self._positions, "row": self._rows}, step, name="outgoing")
        read = shares.read_port()
        done = step & outgoing.ends(["position", "row"])
        m.d.comb += [
            read.addr.eq(outgoing.walk(_addresses(self._rows), name="address")),
            read.en.eq(step),
            sink.payload.eq(read.data),
            filled.take.eq(done),
            free.give.eq(done),
        ]
        with m.If(step):
            m.d.sync += sink.valid.eq(1)
        with m.Elif(sink.ready):
            m.d.sync += sink.valid.eq(0)


def _addresses(rows: int) -> dict[str, int]:
    return {"frame": rows, "row": 1}


def _is_zero(word: Any) -> Any:
    """Return whether an arithmetic result is zero; arithmetic returns no subnormals."""
    return ~word[FRACTION_BITS : WORD_BITS - 1].any()
