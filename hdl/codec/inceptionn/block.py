"""One value compressed, and decompressed (INCEPTIONN, algorithms 2 and 3)."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.codec import EXPONENT_BIAS, FLOAT_BITS, FRACTION_BITS, MAX_BOUND, SHORT_FRACTION, TAG_BITS, Mode, Tag
from fanin.hdl.codec.inceptionn.shifter import picked

COMPRESSION_LATENCY = 2
DECOMPRESSION_LATENCY = 2

_KEPT = SHORT_FRACTION[Tag.BITS16]  # fraction bits that are computed
_BYTE = SHORT_FRACTION[Tag.BITS8]
_CUT = _KEPT - _BYTE  # of these an 8-bit form loses
_BELOW = FRACTION_BITS - _KEPT  # fraction bits that are lost even at shift 0


class CompressionBlock(wiring.Component):
    """Choose a value's form within the error bound, and cut it to that.

    A pipeline without a handshake: it moves on in the cycles in which ``enable`` is high. The forms and both
    modes are those of docs/systems/codec.md; what a form has not (the bits above 0, 8 or 16) is zero. The
    bound in
    ``strict`` mode is proved for every input.

    Members
    -------
    ``i`` : In, 32
        A binary32.
    ``keep`` : In, 4
        Its bytes that there are, a run from the lowest. Missing ones are zero; a value that misses some of
        its bytes travels raw, one that misses all takes the form 00.
    ``bound`` : In, 4
        b of the error bound 2^-b, 1 to 15.
    ``mode`` : In, Mode
    ``enable`` : In, 1
    ``tag`` : Out, 2
    ``value`` : Out, 32
        Right-aligned.

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
        """First |f| in units of 2^-15 and what its size alone decides, then whether 8 bits are enough."""
        m = Module()
        fraction, exponent = self.i[:FRACTION_BITS], self.i[FRACTION_BITS:-1]
        shift = ~exponent[:4]  # |f| is in [2^-shift, 2^(1 - shift)), if it is near
        near = exponent[4:] == EXPONENT_BIAS >> 4
        strict = self.mode == Mode.STRICT
        bits = Signal(FLOAT_BITS, reset_less=True)
        magnitude = Signal(_KEPT, reset_less=True)  # |f|, cut off
        rest = Signal(reset_less=True)  # something was cut off
        limit = Signal(
            _CUT + 1, reset_less=True
        )  # the bound in units of 2^-15; none: above all that 8 bits lose
        raw, small, equal, more, half = (
            Signal(reset_less=True, name=n) for n in ("as_is", "small", "equal", "more", "half")
        )
        with m.If(self.enable):
            m.d.sync += [
                bits.eq(Cat(self.i.word_select(n, 8) & keep.replicate(8) for n, keep in enumerate(self.keep))),
                magnitude.eq((Cat(fraction, 1) >> shift)[_BELOW:]),
                rest.eq(_lost(fraction, shift)),
                raw.eq(self.keep[0] & (~self.keep[-1] | (exponent >= EXPONENT_BIAS))),
                small.eq(~self.keep[0] | ~near | (shift > self.bound)),
                equal.eq(strict & (shift == self.bound)),
                more.eq(fraction.any()),
                half.eq(~strict & (shift <= self.bound >> 1)),
                limit.eq(Cat(strict & (self.bound == _KEPT - n) for n in range(_CUT))),
                limit[_CUT].eq(~strict | (self.bound <= _BYTE)),
            ]
        # limit >= what 8 bits lose, its rest rounded up: the carry of limit - cut - rest
        enough = (Cat(1, limit) + Cat(~rest, ~magnitude[:_CUT], 1))[-1]
        zero = small | equal & ~more
        tag = Signal(TAG_BITS)
        m.d.comb += tag.eq(Mux(raw, Tag.RAW, Mux(zero, Tag.ZERO, Mux(half | ~enough, Tag.BITS16, Tag.BITS8))))
        short = Mux(tag[1], Cat(magnitude, bits[-1]), Cat(magnitude[_CUT:], bits[-1]))
        with m.If(self.enable):
            m.d.sync += [self.tag.eq(tag), self.value.eq(Mux(tag == Tag.RAW, bits, Mux(tag.any(), short, 0)))]
        return m


def _lost(fraction: Value, shift: Value) -> Value:
    """Whether a one of ``fraction``, shifted right by ``shift``, falls below the bits that are computed."""
    always = _BELOW + 1  # bits, as the shift is at least 1
    sometimes = Cat(fraction[n] & (shift > n - _BELOW) for n in range(always, FRACTION_BITS))
    return fraction[:always].any() | sometimes.any()


class DecompressionBlock(wiring.Component):
    """The value of a form.

    A pipeline without a handshake: it moves on in the cycles in which ``enable`` is high. A short form without
    a one in it is +0; bits of ``value`` above those of the form mean nothing.

    Members
    -------
    ``tag`` : In, 2
    ``value`` : In, 32
        Right-aligned.
    ``enable`` : In, 1
    ``o`` : Out, 32
        A binary32.

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
        """Find the leading one, then move it to the top.

        What a form does not have is 0 from the first register on, so that behind them nothing is chosen.
        """
        m = Module()
        byte = self.tag[0]  # of the short forms; what is raw passes by
        raw, short = self.tag == Tag.RAW, (self.tag == Tag.BITS8) | (self.tag == Tag.BITS16)
        fraction = Signal(_KEPT)
        m.d.comb += fraction.eq(Mux(byte, self.value[:_BYTE] << _CUT, self.value))
        bits = Signal(FLOAT_BITS, reset_less=True)
        magnitude = Signal(_KEPT, reset_less=True)
        zeros = Signal(4, reset_less=True)  # above the leading one
        sign, found = (Signal(reset_less=True, name=name) for name in ("sign", "found"))
        leading, one = _leading_zeros(self.value[:_KEPT], byte)
        with m.If(self.enable):
            m.d.sync += [
                bits.eq(Mux(raw, self.value, 0)),
                magnitude.eq(Mux(short, fraction, 0)),
                zeros.eq(leading),
                found.eq(short & one),
                sign.eq(Mux(byte, self.value[_BYTE], self.value[_KEPT])),
            ]
        # without the leading one; bit by bit, where a shifter would share what it moves, for longer paths
        bits_of = list(magnitude)
        above = ([*bits_of[n::-1], *[Const(0)] * (_KEPT - n)] for n in range(_KEPT - 1))
        normal = Cat(picked(choices, zeros) for choices in above)
        exponent = Mux(found, (EXPONENT_BIAS - 1 - zeros)[:8], 0)
        value = Cat(Const(0, FRACTION_BITS + 1 - _KEPT), normal, exponent, found & sign)
        with m.If(self.enable):
            m.d.sync += self.o.eq(bits | value)
        return m


def _leading_zeros(value: Value, byte: Value) -> tuple[Value, Value]:
    """Zeros above the leading one of 15 bits, or, of a ``byte``, of the lowest 7; and whether there is one.

    Four bits at a time, to be quick.
    """
    padded = Cat(1, value)
    nibbles = [padded[low : low + 4] for low in (12, 8, 4, 0)]
    within = [Mux(n[3], 0, Mux(n[2], 1, Mux(n[1], 2, 3))) for n in nibbles]
    first, second = (n.any() & ~byte for n in nibbles[:2])
    third = nibbles[2].any()
    low = Mux(first, within[0], Mux(second, within[1], Mux(third, within[2], within[3])))
    which = Cat(~first & (second | ~third), ~(first | second | byte))
    return Cat(low[:2], which), first | second | third | nibbles[3][1:].any()
