"""Arithmetic of the server: w - step · gradient."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.fp32 import FP32Adder, FP32Multiplier
from fanin.hdl.emit import shared
from fanin.hdl.param_server.shapes import FLOAT_BITS
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO

_FIFO_WORDS = 32  # places for results; more than the pipeline holds


class UpdateLanes(wiring.Component):
    """Lanes that compute w − step · g; product and difference are each rounded to binary32.

    Members
    -------
    ``step`` : In, 32
        Bits of a binary32; stable while words are in the pipeline.
    ``w``, ``gradient`` : In, streams of ``32 * lanes`` bits
        Operands, taken in pairs.
    ``o`` : Out, stream of ``32 * lanes`` bits
        Results.

    Parameters
    ----------
    ``lanes`` : int
        Values of a word, at least 1.

    Latency
    -------
    ``LATENCY``, 15 cycles; one word a cycle.

    Source
    ------
    RDMA-wild, algorithm 1, line 14; docs/systems/param-server-hardware.md, docs/reference/numbers.md.
    """

    LATENCY = FP32Multiplier.LATENCY + FP32Adder.LATENCY + 2  # a register before, the FIFO's after
    assert _FIFO_WORDS > LATENCY + 1

    def __init__(self, *, lanes: int):
        if lanes < 1:
            raise ValueError(f"lanes must be at least 1, not {lanes!r}")
        self.lanes = lanes
        words = stream.Signature(lanes * FLOAT_BITS)
        super().__init__({"step": In(FLOAT_BITS), "w": In(words), "gradient": In(words), "o": Out(words)})

    def elaborate(self, platform: Any) -> Module:
        """Build a pipeline that never stalls: a word enters only with a reserved place in the final FIFO."""
        m = Module()
        w, gradient = self.w, self.gradient
        m.submodules.fifo = fifo = StreamFIFO(shape=w.payload.shape(), depth=_FIFO_WORDS)
        connect_typed(m, fifo.o, flipped(self.o))
        accept = Signal()
        m.submodules.places = places = Credits(limit=_FIFO_WORDS, full=True)
        m.d.comb += [
            places.take.eq(accept),
            places.give.eq(self.o.valid & self.o.ready),
            accept.eq(w.valid & gradient.valid & places.ok),
            w.ready.eq(gradient.valid & places.ok),
            gradient.ready.eq(w.valid & places.ok),
        ]

        def stage(value: Any, cycles: int, name: str, **options: bool) -> Any:
            return delayed(m, value, cycles, name=name, **options)[-1]

        minus_step = Signal(FLOAT_BITS)
        m.d.sync += minus_step.eq(self.step ^ Const(1 << FLOAT_BITS - 1, FLOAT_BITS))
        g = stage(gradient.payload, 1, "gradient")
        delayed_w = stage(w.payload, 1 + FP32Multiplier.LATENCY, "w")
        results = []
        for lane in range(self.lanes):
            m.submodules[f"multiplier_{lane}"] = product = shared(FP32Multiplier())
            m.submodules[f"adder_{lane}"] = total = shared(FP32Adder())
            m.d.comb += [
                product.enable.eq(1),
                total.enable.eq(1),
                product.a.eq(minus_step),
                product.b.eq(g.word_select(lane, FLOAT_BITS)),
                total.a.eq(delayed_w.word_select(lane, FLOAT_BITS)),
                total.b.eq(product.o),
            ]
            results.append(total.o)
        m.d.comb += [
            fifo.i.valid.eq(stage(accept, self.LATENCY - 1, "enter", reset_less=False)),
            fifo.i.payload.eq(Cat(results)),
        ]
        return m
