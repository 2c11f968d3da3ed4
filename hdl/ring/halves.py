"""Values of 16 bits in memory: widened to binary32 as they are read, rounded as they are stored."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import FLOAT_BITS, Half
from fanin.hdl.codec.half.format import HalfFormat


class HalfReader(wiring.Component):
    """Decoder of words of ``lanes`` values of 16 bits.

    Members
    -------
    ``i`` : In, stream of 16 · ``lanes`` bits
        Words from memory. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, stream of 32 · ``lanes`` bits
        The same values in binary32; every NaN is 0x7FC00000.

    Parameters
    ----------
    ``lanes`` : int
        Values of a word, at least 1.
    ``tensor`` : Half
        Format of the values.

    Latency
    -------
    ``latency`` cycles: 1 with bfloat16, 3 with binary16. One word a cycle.

    Source
    ------
    docs/systems/ring.md, "16-bit tensors".
    """

    def __init__(self, *, lanes: int, tensor: Half):
        self.lanes = lanes
        self.tensor = tensor
        self.latency = HalfFormat(tensor).decoder_latency
        super().__init__(
            {
                "i": In(stream.Signature(lanes * tensor.code_bits)),
                "o": Out(stream.Signature(lanes * FLOAT_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Let all lanes advance together unless the last word waits."""
        m = Module()
        i, o, bits = self.i, self.o, self.tensor.code_bits
        valid = Signal(self.latency)
        advance = Signal()
        m.d.comb += [advance.eq(o.ready | ~valid[-1]), i.ready.eq(advance), o.valid.eq(valid[-1])]
        with m.If(advance):
            m.d.sync += valid.eq(Cat(i.valid, valid))
        for n in range(self.lanes):
            m.submodules[f"decoder_{n}"] = decoder = HalfFormat(self.tensor).decoder()
            m.d.comb += [decoder.i.eq(i.payload.word_select(n, bits)), decoder.enable.eq(advance)]
            m.d.comb += o.payload.word_select(n, FLOAT_BITS).eq(decoder.o)
        return m


class HalfWriter(wiring.Component):
    """Encoder of words of ``lanes`` binary32 values to 16 bits, rounded to nearest, ties to even.

    Members
    -------
    ``i`` : In, stream of ``data``, 32 · ``lanes`` bits, and ``mask``, ``lanes`` bits
        Words. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, stream of ``data``, 16 · ``lanes`` bits, and ``mask``
        The rounded values; every NaN has the same code.

    Parameters
    ----------
    ``lanes`` : int
        Values of a word, at least 1.
    ``tensor`` : Half
        Format of the values.

    Latency
    -------
    4 cycles. One word a cycle.

    Source
    ------
    docs/systems/ring.md, "16-bit tensors".
    """

    def __init__(self, *, lanes: int, tensor: Half):
        self.lanes = lanes
        self.tensor = tensor
        self.latency = 1 + HalfFormat(tensor).encoder_latency
        layouts = [
            data.StructLayout({"data": lanes * bits, "mask": lanes}) for bits in (FLOAT_BITS, tensor.code_bits)
        ]
        super().__init__({"i": In(stream.Signature(layouts[0])), "o": Out(stream.Signature(layouts[1]))})

    def elaborate(self, platform: Any) -> Module:
        """Register what the codes depend on, then encode; the masks accompany the words."""
        m = Module()
        i, o, form = self.i, self.o, HalfFormat(self.tensor)
        valid = Signal(self.latency)
        masks = [Signal(self.lanes, name=f"mask_{n}", reset_less=True) for n in range(self.latency)]
        advance = Signal()
        m.d.comb += [advance.eq(o.ready | ~valid[-1]), i.ready.eq(advance), o.valid.eq(valid[-1])]
        m.d.comb += o.payload.mask.eq(masks[-1])
        with m.If(advance):
            m.d.sync += [valid.eq(Cat(i.valid, valid)), Cat(masks).eq(Cat(i.payload.mask, masks))]
        for n in range(self.lanes):
            m.submodules[f"encoder_{n}"] = encoder = form.encoder()
            value = Signal(form.value, name=f"value_{n}", reset_less=True)
            m.d.comb += [encoder.i.eq(value), encoder.enable.eq(advance)]
            m.d.comb += o.payload.data.word_select(n, self.tensor.code_bits).eq(encoder.o)
            with m.If(advance):
                m.d.sync += value.eq(form.reduced(i.payload.data.word_select(n, FLOAT_BITS)))
        return m
