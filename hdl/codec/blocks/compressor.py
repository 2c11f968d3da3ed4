"""Compressor of blocks: a word of binary32 values a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import FLOAT_BITS
from fanin.codec.formats import LFSR_BITS, RANDOM_BITS
from fanin.hdl.codec.blocks.aligner import PieceAligner, aligner_latency
from fanin.hdl.codec.blocks.maximum import BlockMaximum, maximum_latency
from fanin.hdl.codec.blocks.quantiser import Quantiser, quantiser_latency
from fanin.hdl.codec.blocks.random_bits import first_state, state_after
from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.codec.packer import LATENCY as PACKER_LATENCY
from fanin.hdl.codec.packer import BytePacker
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream


class BlockCompressor(wiring.Component):
    """Compressor of frames of binary32 values to blocks of any :class:`BlockFormat`.

    A frame has at least one byte. Missing bytes of its last value are zeros; missing values of its last block
    are +0.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames. ``ready`` depends combinationally on ``o.ready``, except with blocks of several words.
    ``o`` : Out, packet stream of ``width``
        Compressed frames.
    With stochastic rounding, ``seed`` : In, 32
        Seed of the random bits, taken with the first word after a reset: not 0, which yields only zeros. The
        sequence continues from frame to frame.

    Parameters
    ----------
    ``words`` : Words
        Word width and format.

    Latency
    -------
    ``latency`` cycles from a word to the word that its piece completes. One word a cycle. At a frame's end each
    missing word of a block of several words takes a cycle. One more cycle is lost if the last piece fills a
    word and leaves bytes.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, words: Words):
        self.words = words
        parts = [quantiser_latency, aligner_latency] + [maximum_latency] * bool(words.format.scale_bits)
        self.latency = 1 + sum(latency(words) for latency in parts) + PACKER_LATENCY
        ports = {"i": In(packet_stream(words.width)), "o": Out(packet_stream(words.width))}
        super().__init__(ports | ({"seed": In(LFSR_BITS)} if words.format.is_stochastic else {}))

    def elaborate(self, platform: Any) -> Module:
        """Connect the stages: reduce values, complete blocks, find exponents, quantise, align, pack."""
        m = Module()
        words = self.words
        m.submodules.quantiser = quantiser = Quantiser(words=words)
        m.submodules.packer = packer = BytePacker(
            width=words.width, max_bytes=words.spanned_bytes, unit=words.unit if words.whole_bytes else 1
        )
        pieces = quantiser.o
        if not words.whole_bytes:
            m.submodules.aligner = aligner = PieceAligner(words=words)
            connect_typed(m, quantiser.o, aligner.i)
            pieces = aligner.o
        connect_typed(m, pieces, packer.i)
        connect_typed(m, packer.o, wiring.flipped(self.o))
        if words.format.scale_bits:
            m.submodules.maximum = maximum = BlockMaximum(words=words)
            connect_typed(m, maximum.o, quantiser.i)
            self._reduce(m, maximum.i, maximum.i.payload)
        else:
            self._reduce(m, quantiser.i, quantiser.i.payload.word)
        return m

    def _reduce(self, m: Module, o: Any, word: Any) -> None:
        """Register the reduced values; after a frame that ends within a block, add the missing words."""
        i, words = self.i, self.words
        place = Signal(range(words.per_block))  # index of the word in its block
        padding = Signal()
        ends = place == words.per_block - 1
        advance = Signal()
        block_bytes = words.format.block * FLOAT_BITS // 8
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

        if words.format.is_stochastic:
            with m.If(i.valid & i.ready):
                self._seed(m, word)

    def _seed(self, m: Module, word: Any) -> None:
        """Advance the random bits' register by a word, or start it with the seed."""
        started = Signal()
        next_state = state_after(word.random, self.words.lanes * RANDOM_BITS)
        m.d.sync += [started.eq(1), word.random.eq(Mux(started, next_state, first_state(self.seed)))]

    def _reduced(self, lane: int, present: Any) -> Any:
        """Return the bits of a value that its code depends on, with missing bytes cleared."""
        keep = self.i.p.keep.word_select(lane, FLOAT_BITS // 8)
        bits = self.i.p.data.word_select(lane, FLOAT_BITS) & Cat((k & present).replicate(8) for k in keep)
        return self.words.format.reduced(bits)
