"""Decompressor of blocks: a word of binary32 values a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import EXPONENT_BITS, FLOAT_BITS
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.blocks.cutter import LENGTH_BITS, PieceCutter, cutter_latency
from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.lanes import ones_through
from fanin.hdl.stream.packet import packet_stream


class BlockDecompressor(wiring.Component):
    """Decompressor of frames of blocks of any :class:`BlockFormat` to binary32 values.

    An output frame has exactly ``length`` bytes. ``error``, valid with ``last``, reports that the compressed
    frame ended before the codes of its last word. In blocks of several words, codes after ``length`` are not
    required. Further data of a compressed frame are dropped.

    Members
    -------
    ``length`` : In, stream of 32 bits
        Decompressed bytes of the next frame, at least 1.
    ``i`` : In, packet stream of ``width``
        Compressed frames. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, packet stream of ``width`` with ``error``
        Decompressed frames.

    Parameters
    ----------
    ``words`` : Words
        Word width and format.

    Latency
    -------
    ``latency`` cycles from a word to the last word of values that it completes, if the length is present, and
    the same from the length. One word of values a cycle. Between two frames at most one cycle is lost; each
    surplus word takes one more.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, words: Words):
        self.words = words
        self.latency = cutter_latency(words) + words.format.decoder_latency
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "i": In(packet_stream(words.width)),
                "o": Out(packet_stream(words.width, error=True)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Cut pieces, then decode their codes in lanes that stall together."""
        m = Module()
        words, o = self.words, self.o
        m.submodules.cutter = cutter = PieceCutter(words=words)
        connect_typed(m, wiring.flipped(self.length), cutter.length)
        connect_typed(m, wiring.flipped(self.i), cutter.i)
        piece, latency = cutter.o.payload, words.format.decoder_latency
        advance = Signal()
        arrived = Signal(latency)
        m.d.comb += [advance.eq(o.ready | ~o.valid), cutter.o.ready.eq(advance), o.valid.eq(arrived[-1])]
        with m.If(advance):
            m.d.sync += arrived.eq(Cat(cutter.o.valid, arrived))
            tail, last, missing = (
                delayed(m, piece[name], latency - 1, name=name)[-1] for name in ("tail", "last", "missing")
            )
            keep = Mux(last, ones_through(tail, words.width // 8), -1)
            m.d.sync += [o.p.keep.eq(keep), o.p.last.eq(last), o.p.error.eq(missing)]
            scales = self._scales(m, cutter.o)
        for n, code in enumerate(self._codes(piece.data)):
            m.submodules[f"lane_{n}"] = decoder = words.format.decoder()
            m.d.comb += [
                decoder.i.eq(code),
                decoder.enable.eq(advance),
                o.p.data.word_select(n, FLOAT_BITS).eq(decoder.o),
            ]
            if scales:
                m.d.comb += decoder.scale.eq(scales[n * words.blocks // words.lanes])
        return m

    def _scales(self, m: Module, piece: Any) -> list[Any]:
        """Return the scales of a piece, if any; a piece without one uses that of its block's first piece."""
        words = self.words
        if not words.format.scale_bits:
            return []
        scales = [
            words.format.decoded_scale(piece.payload.data[start : start + words.format.scale_bits])
            for start in self._block_starts()
        ]
        if words.per_block == 1:
            return scales
        stored_scale = Signal(EXPONENT_BITS, reset_less=True)
        scale = Mux(piece.payload.first, scales[0], stored_scale)
        with m.If(piece.valid):
            m.d.sync += stored_scale.eq(scale)
        return [scale]

    def _block_starts(self) -> list[int]:
        """Return the bit of a piece at which each of its blocks begins."""
        words = self.words
        return [k * words.piece_bits // words.blocks for k in range(words.blocks)]

    def _codes(self, bits: Any) -> list[Any]:
        words, width = self.words, self.words.format.code_bits
        starts = [
            start + words.format.scale_bits + n * width
            for start in self._block_starts()
            for n in range(words.lanes // words.blocks)
        ]
        return [bits[start : start + width] for start in starts]
