"""Quantiser of values to codes: aligned to their block's exponent, rounded, clamped."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import SPECIAL_EXPONENT
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.bfp.exponents import code_of
from fanin.hdl.codec.bfp.shapes import Words, coded_layout, scaled_layout

STAGES = 3


def quantiser_latency(words: Words) -> int:
    """Return the cycles from a word on a :class:`Quantiser`'s input to its piece."""
    return STAGES + (words.per_block > 1)


class Quantiser(wiring.Component):
    """Quantiser of words with block exponents to pieces of the compressed stream.

    Magnitudes are rounded to nearest, ties to even, and clamped. docs/systems/codec.md lists special values.

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
    :func:`quantiser_latency` cycles: 3 for the distance to the block's exponent, shift and rounding; a fourth
    for blocks of several words, to insert or omit the exponent. One word a cycle.

    Source
    ------
    docs/systems/codec.md; AI Smart NIC, section IV-B.
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
        """Build lanes that stall together; delay the exponents and the word's place beside them."""
        m = Module()
        words, i = self.words, self.i.payload
        advance = Signal()
        arrived = Signal(quantiser_latency(words))
        m.d.comb += [
            advance.eq(self.o.ready | ~arrived[-1]),
            self.i.ready.eq(advance),
            self.o.valid.eq(arrived[-1]),
        ]
        codes = []
        with m.If(advance):
            m.d.sync += arrived.eq(Cat(self.i.valid, arrived))
            codes_of_blocks = Cat(code_of(exponent, words.config) for exponent in i.exponents)
            exponents = delayed(m, codes_of_blocks, STAGES, name="exponents")[-1]
            place = Cat(i.word.present, i.word.first, i.word.last)
            place = delayed(m, place, len(arrived) - 1, name="place")[-1]
            for n, value in enumerate(i.word.values):
                exponent = i.exponents[n * words.blocks // words.lanes]
                codes.append(self._lane(m, value, exponent, str(n)))
            data = self._piece(m, exponents, place[: words.blocks], place[-2], place[-1], codes)
        m.d.comb += self.o.payload.data.eq(data)
        return m

    def _lane(self, m: Module, value: Any, block_exponent: Any, name: str) -> Any:
        """Return the code of a value, computed with a guard bit, and ``sticky`` for all lower bits."""
        bits = self.words.config.mantissa
        distance = Signal(len(block_exponent) + 1, name=f"distance_{name}", reset_less=True)
        significand = Signal(bits + 1, name=f"whole_{name}", reset_less=True)
        sticky = Signal(2, name=f"sticky_{name}", reset_less=True)  # bit n: after stage n
        special = value.exponent == SPECIAL_EXPONENT
        # ``full``: the magnitude is all ones. ``bounded``: the value is finite and stays below infinity.
        flags = data.StructLayout({"sign": 1, "full": 1, "bounded": 1, "zero": 1})
        flag = Signal(flags, name=f"flag_{name}", reset_less=True)
        m.d.sync += [
            distance.eq(block_exponent - value.exponent),
            significand.eq(Cat(value.fraction, 1)),
            flag.zero.eq(value.exponent == 0),  # zero, or a subnormal number that is flushed to zero
            sticky[0].eq(value.sticky),
            flag.sign.eq(value.sign),
            flag.full.eq(special & (value.fraction.any() | value.sticky)),
            flag.bounded.eq((block_exponent == SPECIAL_EXPONENT) & ~special),
        ]
        shifted = Signal(bits + 1, name=f"shifted_{name}", reset_less=True)
        # Otherwise all bits are shifted out, or the value is above the range.
        in_reach = (distance[:-1] <= bits) & ~flag.zero
        shift = distance[: bits.bit_length()]
        lost_bits = reduce(or_, (significand[k] & (shift > k) for k in range(bits)))
        m.d.sync += [shifted.eq(Mux(in_reach, significand >> shift, 0)), sticky[1].eq(sticky[0] | lost_bits)]
        # A value above the range becomes the largest value.
        above_range = distance[-1] if self.words.config.is_narrow else 0
        flag_1 = Signal.like(flag, name=f"flag_{name}_1")
        m.d.sync += [
            flag_1.sign.eq(flag.sign),
            flag_1.full.eq(flag.full | above_range),
            flag_1.bounded.eq(flag.bounded),
        ]
        return self._round(m, shifted, sticky[1], flag_1, name)

    def _round(self, m: Module, shifted: Signal, sticky: Any, flag: Any, name: str) -> Signal:
        """Return the rounded code; overflow becomes the largest magnitude, the largest finite if bounded."""
        bits = self.words.config.mantissa
        truncated, guard = shifted[1:], shifted[0]
        up = guard & (truncated[0] | sticky)
        total = Signal(bits + 1, name=f"total_{name}")
        m.d.comb += total.eq(truncated + up)
        largest_finite = (1 << bits - 1) - 1
        magnitude = Mux(total[-1] | flag.full, (1 << bits) - 1, total[:-1])
        magnitude = Mux(flag.bounded & total[bits - 1], largest_finite, magnitude)
        code = Signal(bits + 1, name=f"code_{name}", reset_less=True)
        m.d.sync += code.eq(Cat(magnitude[:bits], flag.sign & (truncated.any() | up | flag.full)))
        return code

    def _piece(self, m: Module, exponents: Any, present: Any, first: Any, last: Any, codes: list[Any]) -> Any:
        """Return exponents and codes in order; drive the number of grains of the blocks that are present."""
        words, piece = self.words, self.o.payload
        per_exponent = words.lanes // words.blocks
        bits = words.config.exponent
        parts = [
            Cat(exponents.word_select(k, bits), codes[k * per_exponent :][:per_exponent])
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
