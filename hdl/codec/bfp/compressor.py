"""Block floating point compressor: a word of binary32 values a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import EXPONENT_BITS, FLOAT_BITS, FRACTION_BITS, Bfp
from fanin.hdl.codec.bfp.aligner import PieceAligner, aligner_latency
from fanin.hdl.codec.bfp.maximum import BlockMaximum, maximum_latency
from fanin.hdl.codec.bfp.quantiser import Quantiser, quantiser_latency
from fanin.hdl.codec.bfp.shapes import Words
from fanin.hdl.codec.packer import LATENCY as PACKER_LATENCY
from fanin.hdl.codec.packer import BytePacker
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream


class BfpCompressor(wiring.Component):
    """Compressor of frames of binary32 values to blocks that share an exponent.

    A frame has at least one byte. Missing bytes of its last value are zeros; missing values of its last block
    are +0. The output equals ``encode`` of ``fanin/codec/golden/bfp.py``.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames. ``ready`` depends combinationally on ``o.ready``, except with blocks of several words.
    ``o`` : Out, packet stream of ``width``
        Compressed frames.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 256 or 512. Default 512.
    ``block`` : int
        Values that share an exponent: 4, 8, 16, 32 or 64. Default 16.
    ``mantissa`` : int
        Bits of a magnitude, 3 to 15. Default 7.
    ``exponent`` : int
        Bits of an exponent, 1 to 8. Default 8.
    ``offset`` : int
        Powers of two by which the exponent range is lowered, 0 to 31; 0 with 8 bits. Default 0.

    Latency
    -------
    ``latency`` cycles from a word to the word that its piece completes: 10, or 8 for blocks of 4 values, or
    11 + S for blocks of S > 1 words; one more if a word's exponents are not whole bytes. One word a cycle. At a
    frame's end each missing word of a block of several words takes a cycle. One more cycle is lost if the last
    piece fills a word and leaves bytes.

    Source
    ------
    AI Smart NIC, section IV-B; docs/systems/codec.md.
    """

    def __init__(
        self,
        *,
        width: int = 512,
        block: int = 16,
        mantissa: int = 7,
        exponent: int = EXPONENT_BITS,
        offset: int = 0,
    ):
        self.width = width
        self.block = block
        self.mantissa = mantissa
        self.exponent = exponent
        self.offset = offset
        self.words = Words(width, Bfp(block, mantissa, exponent, offset))
        parts = maximum_latency, quantiser_latency, aligner_latency
        self.latency = 1 + sum(latency(self.words) for latency in parts) + PACKER_LATENCY
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(width))})

    def elaborate(self, platform: Any) -> Module:
        """Connect the stages: reduce values, complete blocks, find exponents, quantise, align, pack."""
        m = Module()
        words = self.words
        m.submodules.maximum = maximum = BlockMaximum(words=words)
        m.submodules.quantiser = quantiser = Quantiser(words=words)
        m.submodules.packer = packer = BytePacker(width=words.width, max_bytes=words.spanned_bytes)
        pieces = quantiser.o
        if not words.whole_bytes:
            m.submodules.aligner = aligner = PieceAligner(words=words)
            connect_typed(m, quantiser.o, aligner.i)
            pieces = aligner.o
        connect_typed(m, maximum.o, quantiser.i)
        connect_typed(m, pieces, packer.i)
        connect_typed(m, packer.o, wiring.flipped(self.o))
        self._reduce(m, maximum.i)
        return m

    def _reduce(self, m: Module, o: Any) -> None:
        """Register the reduced values; after a frame that ends within a block, add the missing words."""
        i, words, word = self.i, self.words, o.payload
        place = Signal(range(words.per_block))  # index of the word in its block
        padding = Signal()
        ends = place == words.per_block - 1
        advance = Signal()
        block_bytes = words.config.block * FLOAT_BITS // 8
        m.d.comb += [advance.eq(o.ready | ~o.valid), i.ready.eq(advance & ~padding)]
        with m.If(advance):
            m.d.sync += [
                o.valid.eq(i.valid | padding),
                word.last.eq((i.p.last | padding) & ends),
                word.first.eq(place == 0),
                word.end.eq(ends),
                word.present.eq(Cat(i.p.keep[k * block_bytes] for k in range(words.blocks))),
            ]
            m.d.sync += [word.values[n].eq(self._reduced(n, ~padding)) for n in range(words.lanes)]
            with m.If(i.valid | padding):
                m.d.sync += [place.eq(place + 1), padding.eq((i.p.last | padding) & ~ends)]

    def _reduced(self, lane: int, present: Any) -> Any:
        """Return a value with missing bytes cleared and its lower fraction bits merged into one."""
        keep = self.i.p.keep.word_select(lane, FLOAT_BITS // 8)
        bits = self.i.p.data.word_select(lane, FLOAT_BITS) & Cat((k & present).replicate(8) for k in keep)
        dropped_bits = FRACTION_BITS - self.words.config.mantissa
        exponent = bits[FRACTION_BITS : FRACTION_BITS + EXPONENT_BITS]
        return Cat(bits[dropped_bits:FRACTION_BITS], bits[:dropped_bits].any(), exponent, bits[-1])
