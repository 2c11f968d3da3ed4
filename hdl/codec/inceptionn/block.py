"""Compression and decompression of one value (INCEPTIONN, algorithms 2 and 3)."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import (
    EXPONENT_BIAS,
    FLOAT_BITS,
    FRACTION_BITS,
    MAX_BOUND,
    SHORT_FRACTION,
    TAG_BITS,
    Mode,
    Tag,
)
from fanin.hdl.arith.select import leading_zeros

COMPRESSION_LATENCY = 2
DECOMPRESSION_LATENCY = 2

_LONG = SHORT_FRACTION[Tag.BITS16]  # fraction bits of the 16-bit form: 15
_SHORT = SHORT_FRACTION[Tag.BITS8]  # fraction bits of the 8-bit form: 7
_SHORT_LOSS = _LONG - _SHORT  # fraction bits of the 16-bit form that the 8-bit form lacks
_LONG_LOSS = FRACTION_BITS - _LONG  # fraction bits of binary32 that both forms lack, even at shift 0


class CompressionBlock(wiring.Component):
    """Compressor of one value: chooses the form within the error bound and reduces the value to it.

    The pipeline has no handshake: it advances in cycles with ``enable``. docs/systems/codec.md describes the
    forms and both modes. Bits above the form's 0, 8 or 16 are zero. The bound of ``strict`` mode is proved for
    every input.

    Members
    -------
    ``i`` : In, 32
        Binary32 value.
    ``keep`` : In, 4
        Bytes of the value that are present, a run from the lowest. Missing bytes are zero. A value with some
        bytes missing is sent raw; a value with all bytes missing has the form 00.
    ``bound`` : In, 4
        Exponent b of the error bound 2^-b, 1 to 15.
    ``mode`` : In, Mode
        ``strict`` or ``published``.
    ``enable`` : In, 1
        Advance the pipeline.
    ``tag`` : Out, 2
        Form of the value.
    ``value`` : Out, 32
        Value in that form, right-aligned.

    Parameters
    ----------
    None.

    Latency
    -------
    2 cycles with ``enable``; one value a cycle.

    Source
    ------
    INCEPTIONN, algorithm 2; ``strict`` is fanin's (docs/systems/codec.md).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "i": In(FLOAT_BITS),
                "keep": In(FLOAT_BITS // 8),
                "bound": In(range(MAX_BOUND + 1)),
                "mode": In(Mode),
                "enable": In(1),
                "tag": Out(TAG_BITS),
                "value": Out(FLOAT_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compute |f| in units of 2^-15 and its comparisons in cycle 1, the tag and the value in cycle 2.

        ``magnitude`` is |f| in these units, rounded down; ``sticky`` is 1 if rounding lost something. The 8-bit
        form also loses the lower byte of ``magnitude``. ``strict`` uses that form if the whole loss is at most
        ``limit``, the bound in the same units. If no loss is too large, ``limit`` exceeds every byte.
        """
        m = Module()
        fraction, exponent = self.i[:FRACTION_BITS], self.i[FRACTION_BITS:-1]
        shift = ~exponent[:4]  # 127 - exponent where ``in_range``: |f| is in [2^-shift, 2^(1 - shift))
        in_range = exponent[4:] == EXPONENT_BIAS >> 4
        strict = self.mode == Mode.STRICT
        bits = Signal(FLOAT_BITS, reset_less=True)
        magnitude = Signal(_LONG, reset_less=True)
        sticky = Signal(reset_less=True)
        limit = Signal(_SHORT_LOSS + 1, reset_less=True)
        raw = Signal(reset_less=True)
        below_bound = Signal(reset_less=True)
        at_bound = Signal(reset_less=True)  # |f| is in [2^-bound, 2^(1 - bound)); 2^-bound itself becomes zero
        has_fraction = Signal(reset_less=True)
        above_half = Signal(reset_less=True)  # ``published``: large enough for 16 bits
        lost_bits = Cat(bit & (shift > n - _LONG_LOSS) for n, bit in enumerate(fraction))
        with m.If(self.enable):
            m.d.sync += [
                bits.eq(Cat(self.i.word_select(n, 8) & keep.replicate(8) for n, keep in enumerate(self.keep))),
                magnitude.eq((Cat(fraction, 1) >> shift)[_LONG_LOSS:]),
                sticky.eq(lost_bits.any()),
                raw.eq(self.keep[0] & (~self.keep[-1] | (exponent >= EXPONENT_BIAS))),
                below_bound.eq(~self.keep[0] | ~in_range | (shift > self.bound)),
                at_bound.eq(strict & (shift == self.bound)),
                has_fraction.eq(fraction.any()),
                above_half.eq(~strict & (shift <= self.bound >> 1)),
                limit.eq(Cat(strict & (self.bound == _LONG - n) for n in range(_SHORT_LOSS))),
                limit[_SHORT_LOSS].eq(~strict | (self.bound <= _SHORT)),
            ]
        zero = below_bound | at_bound & ~has_fraction
        fits_byte = Cat(sticky, magnitude[:_SHORT_LOSS]) <= Cat(0, limit)
        tag = Signal(TAG_BITS)
        value = Signal(FLOAT_BITS)
        with m.If(raw):
            m.d.comb += [tag.eq(Tag.RAW), value.eq(bits)]
        with m.Elif(zero):
            m.d.comb += [tag.eq(Tag.ZERO), value.eq(0)]
        with m.Elif(above_half | ~fits_byte):
            m.d.comb += [tag.eq(Tag.BITS16), value.eq(Cat(magnitude, bits[-1]))]
        with m.Else():
            m.d.comb += [tag.eq(Tag.BITS8), value.eq(Cat(magnitude[_SHORT_LOSS:], bits[-1]))]
        with m.If(self.enable):
            m.d.sync += [self.tag.eq(tag), self.value.eq(value)]
        return m


class DecompressionBlock(wiring.Component):
    """Decompressor of one value from its form.

    The pipeline has no handshake: it advances in cycles with ``enable``. A short form that is all zeros is +0.
    Bits of ``value`` above those of the form are ignored.

    Members
    -------
    ``tag`` : In, 2
        Form of the value.
    ``value`` : In, 32
        Value in that form, right-aligned.
    ``enable`` : In, 1
        Advance the pipeline.
    ``o`` : Out, 32
        Binary32 value.

    Parameters
    ----------
    None.

    Latency
    -------
    2 cycles with ``enable``; one value a cycle.

    Source
    ------
    INCEPTIONN, algorithm 3.
    """

    def __init__(self) -> None:
        super().__init__({"tag": In(TAG_BITS), "value": In(FLOAT_BITS), "enable": In(1), "o": Out(FLOAT_BITS)})

    def elaborate(self, platform: Any) -> Module:
        """Find the leading one of a short form's fraction in cycle 1, shift it to the top in cycle 2.

        A raw value passes beside the fraction. One of both is always zero, so an OR joins them.
        """
        m = Module()
        short = self.tag == Tag.BITS8
        has_fraction = short | (self.tag == Tag.BITS16)
        fraction = Signal(_LONG)
        m.d.comb += fraction.eq(Mux(short, self.value[:_SHORT] << _SHORT_LOSS, self.value))
        raw = Signal(FLOAT_BITS, reset_less=True)
        magnitude = Signal(_LONG, reset_less=True)
        zeros = Signal(4, reset_less=True)  # zero bits above the leading one
        sign = Signal(reset_less=True)
        has_one = Signal(reset_less=True)  # the fraction has a one; without it the value is +0
        with m.If(self.enable):
            m.d.sync += [
                raw.eq(Mux(self.tag == Tag.RAW, self.value, 0)),
                magnitude.eq(Mux(has_fraction, fraction, 0)),
                zeros.eq(leading_zeros(fraction)),
                has_one.eq(has_fraction & fraction.any()),
                sign.eq(Mux(short, self.value[_SHORT], self.value[_LONG])),
            ]
        low_bits = (magnitude << zeros)[: _LONG - 1]  # bits below the leading one
        exponent = Mux(has_one, (EXPONENT_BIAS - 1 - zeros)[:8], 0)
        with m.If(self.enable):
            m.d.sync += self.o.eq(
                raw | Cat(Const(0, FRACTION_BITS - len(low_bits)), low_bits, exponent, has_one & sign)
            )
        return m
