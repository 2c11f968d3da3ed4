"""Quantiser of values to codes: a row of encoders, and the pieces that their codes become."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.formats import RANDOM_BITS
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.blocks.random_bits import sequence_bits
from fanin.hdl.codec.blocks.shapes import Words, coded_layout, scaled_layout


def quantiser_latency(words: Words) -> int:
    """Return the cycles from a word on a :class:`Quantiser`'s input to its piece."""
    return words.format.encoder_latency + (words.per_block > 1)


class Quantiser(wiring.Component):
    """Quantiser of words with block exponents to pieces of the compressed stream.

    Members
    -------
    ``i`` : In, stream of :func:`scaled_layout`
        Words with exponents. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, stream of :func:`coded_layout`
        Pieces. The last piece has only the blocks that are present.

    Parameters
    ----------
    ``words`` : Words
        Word width and format.

    Latency
    -------
    :func:`quantiser_latency` cycles: the encoder's; one more for blocks of several words, to insert or omit the
    scale. One word a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, words: Words):
        self.words = words
        super().__init__(
            {
                "i": In(stream.Signature(scaled_layout(self.words))),
                "o": Out(stream.Signature(coded_layout(self.words))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build lanes that stall together; delay the scales and the word's place beside them."""
        m = Module()
        words, i = self.words, self.i.payload
        latency = words.format.encoder_latency
        advance = Signal()
        arrived = Signal(quantiser_latency(words))
        m.d.comb += [
            advance.eq(self.o.ready | ~arrived[-1]),
            self.i.ready.eq(advance),
            self.o.valid.eq(arrived[-1]),
        ]
        with m.If(advance):
            m.d.sync += arrived.eq(Cat(self.i.valid, arrived))
            scales = Cat(words.format.scale_of(exponent) for exponent in i.exponents)
            scales = delayed(m, scales, latency, name="scales")[-1]
            place = Cat(i.word.present, i.word.first, i.word.last)
            place = delayed(m, place, len(arrived) - 1, name="place")[-1]
            random = self._random(m)
        codes = []
        for n, value in enumerate(i.word.values):
            m.submodules[f"lane_{n}"] = encoder = words.format.encoder()
            m.d.comb += [encoder.i.eq(value), encoder.enable.eq(advance)]
            if words.format.exponent_bits:
                m.d.comb += encoder.exponent.eq(i.exponents[n * words.blocks // words.lanes])
            if random is not None:
                m.d.comb += encoder.random.eq(random.word_select(n, RANDOM_BITS))
            codes.append(encoder.o)
        with m.If(advance):
            data = self._piece(m, scales, place[: words.blocks], place[-2], place[-1], codes)
        m.d.comb += self.o.payload.data.eq(data)
        return m

    def _random(self, m: Module) -> Signal | None:
        """Return the random bits of a word in the last cycle of its encoders."""
        words = self.words
        if not words.format.is_stochastic:
            return None
        random = Signal(words.lanes * RANDOM_BITS, reset_less=True)
        state = delayed(m, self.i.payload.word.random, words.format.encoder_latency - 2, name="random")[-1]
        m.d.sync += random.eq(sequence_bits(state, 0, len(random)))
        return random

    def _piece(self, m: Module, scales: Any, present: Any, first: Any, last: Any, codes: list[Any]) -> Any:
        """Return scales and codes in order; drive the number of grains of the blocks that are present."""
        words, piece = self.words, self.o.payload
        lanes = words.lanes // words.blocks  # of a block
        bits = words.format.scale_bits
        parts = [
            Cat(scales.word_select(k, bits) if bits else [], codes[k * lanes :][:lanes])
            for k in range(words.blocks)
        ]
        m.d.sync += [piece.last.eq(last), piece.count.eq(words.piece_bits // words.grain)]
        for count in range(1, words.blocks):
            with m.If(last & ~present[count] & present[count - 1]):
                m.d.sync += piece.count.eq(words.grains_of(count))
        if words.per_block == 1:
            return Cat(parts)
        data = Signal.like(piece.data)
        m.d.sync += data.eq(Cat(parts))
        with m.If(~first):
            m.d.sync += [piece.count.eq(words.code_bits // words.grain), data.eq(Cat(codes))]
        return data
