"""Encoder of a value to a narrow floating-point format: shifted, rounded, limited to the range."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring

from fanin.codec.facts import EXPONENT_BIAS, EXPONENT_BITS, SPECIAL_EXPONENT
from fanin.codec.formats import RANDOM_BITS, Minifloat, Rounding
from fanin.hdl.codec.blocks.format import encoder_members, value_layout

LATENCY = 3
#: Bits of a block's exponent: that of the largest value, above it 1 if the block becomes NaN.
BLOCK_EXPONENT_BITS = EXPONENT_BITS + 1


def cut_off_bits(rounding: Rounding) -> int:
    """Return the cut-off bits that rounding needs: a guard bit, or the random bits' and the next one."""
    return RANDOM_BITS + 1 if rounding is Rounding.STOCHASTIC else 1


def precision(layout: Minifloat) -> int:
    """Return the bits of the largest numbers' significands, the leading one included."""
    return layout.fraction + 1 if layout.exponent else layout.fraction


def minifloat_value(layout: Minifloat, rounding: Rounding) -> data.StructLayout:
    """Return the layout of a value at the encoder."""
    fraction_bits = precision(layout) + cut_off_bits(rounding) - 1
    return value_layout(fraction_bits, sticky=rounding is Rounding.NEAREST, nan=True)


class MinifloatEncoder(wiring.Component):
    """Encoder of a binary32 value to a ``layout``, by itself or as an element of a block.

    docs/systems/codec.md lists special values. An element of a block is scaled so that the block's exponent
    becomes the largest of the format. A format without exponent is two's complement.

    Members
    -------
    ``i`` : In, :func:`minifloat_value`
        Value.
    With ``scaled``, ``exponent`` : In, 9
        Exponent of the value's block, at least the value's own and at least the format's largest. The highest
        bit is 1 if the block becomes NaN.
    With stochastic rounding, ``random`` : In, 8
        Random bits of the value that ``i`` had 2 cycles with ``enable`` ago.
    ``enable`` : In, 1
        Advance the pipeline.
    ``o`` : Out, ``layout.bits``
        Code.

    Parameters
    ----------
    ``layout`` : Minifloat
        Format of the code.
    ``rounding`` : Rounding
        Nearest, ties to even, or stochastic. Default nearest.
    ``scaled`` : bool
        True: element of a block; subnormal values become zeros, large ones the largest number. False: subnormal
        values are exact, large ones become infinity. Default False.

    Latency
    -------
    3 cycles with ``enable``: distance to the largest exponent, shift, rounding. One value a cycle.

    Source
    ------
    docs/systems/codec.md; OCP Microscaling formats v1.0, section 6.3.
    """

    def __init__(self, *, layout: Minifloat, rounding: Rounding = Rounding.NEAREST, scaled: bool = False):
        self.layout = layout
        self.rounding = rounding
        self.scaled = scaled
        super().__init__(
            encoder_members(
                value=minifloat_value(layout, rounding),
                exponent_bits=BLOCK_EXPONENT_BITS if scaled else 0,
                code_bits=layout.bits,
                random=rounding is Rounding.STOCHASTIC,
            )
        )

    def elaborate(self, platform: Any) -> Module:
        """Register distance and significand; shift subnormal codes; round the magnitude."""
        m = Module()
        value, layout = self.i, self.layout
        flags = data.StructLayout({"sign": 1, "limited": 1, "nan": 1})
        flag = Signal(flags, reset_less=True)
        flag_1 = Signal(flags, reset_less=True)
        distance = Signal(EXPONENT_BITS + 1, reset_less=True)  # below the largest exponent
        significand = Signal(precision(layout) + cut_off_bits(self.rounding), reset_less=True)
        leading = Value.cast(value.exponent).any()
        special = value.exponent == SPECIAL_EXPONENT
        code = Signal.like(self.o, reset_less=True)
        if self.scaled:
            largest, exponent = self.exponent[:EXPONENT_BITS], value.exponent
        else:
            largest = Const(layout.max_exponent + EXPONENT_BIAS, EXPONENT_BITS)
            exponent = value.exponent | ~leading  # subnormal values have the exponent of the least normal ones
        with m.If(self.enable):
            m.d.sync += [
                distance.eq(largest - exponent),
                significand.eq(Cat(value.fraction, leading)),
                flag.sign.eq(value.sign),
                flag.limited.eq(special if self.scaled else 0),
                flag.nan.eq(self.exponent[-1] if self.scaled else value.nan),
                flag_1.sign.eq(flag.sign),
                flag_1.nan.eq(flag.nan),
                flag_1.limited.eq(flag.limited if self.scaled else distance[-1]),
            ]
            shifted, sticky, field = self._shift(m, distance, significand)
            y = Cat(shifted[-precision(layout) :][: layout.fraction], field)
            m.d.sync += code.eq(self._rounded(y, shifted[: cut_off_bits(self.rounding)], sticky, flag_1))
        m.d.comb += self.o.eq(code)
        return m

    def _shift(self, m: Module, distance: Signal, significand: Signal) -> tuple[Signal, Any, Signal]:
        """Return the significand shifted to the code's last bit, the OR of lost bits, and the exponent field.

        Down to the distance ``normal`` numbers are normal, and need no shift.
        """
        layout = self.layout
        normal = layout.max_exponent - layout.min_exponent if layout.exponent else 0
        # The largest shift that leaves a bit, or that the least exponent, 1, takes.
        farthest = SPECIAL_EXPONENT if self.scaled else layout.max_exponent + EXPONENT_BIAS
        reach = max(0, min(len(significand) - 1, farthest - 1 - normal))
        is_normal = distance[:EXPONENT_BITS] <= normal
        shift = Mux(is_normal, 0, (distance - normal)[: reach.bit_length()]) if reach else Const(0, 1)
        kept = distance[:EXPONENT_BITS] <= normal + reach if reach else Const(1)
        if self.scaled:
            kept &= significand[-1]  # zeros and subnormal values have no leading one
        shifted = Signal.like(significand, name="shifted", reset_less=True)
        field = Signal(layout.exponent, reset_less=True)
        m.d.sync += [
            shifted.eq(Mux(kept, significand >> shift, 0)),
            field.eq(Mux(is_normal & significand[-1], normal + 1 - distance, 0)),
        ]
        if self.rounding is Rounding.STOCHASTIC:
            return shifted, None, field
        sticky = Signal(2, reset_less=True)
        lost_bits = reduce(or_, (significand[k] & (shift > k) for k in range(reach)), Const(0))
        m.d.sync += sticky.eq(Cat(self.i.sticky, sticky[0] | lost_bits))
        return shifted, sticky[1], field

    def _rounded(self, magnitude: Value, cut_off: Value, sticky: Any, flag: Any) -> Value:
        """Return the code of a magnitude that is rounded by one addition.

        A two's complement number is negated by inverting both the summands and the carry in.
        """
        layout = self.layout
        negative = flag.sign if not layout.exponent else Const(0, 1)
        bits = layout.bits - 1 + (not layout.exponent)  # two's complement needs a bit for the sign
        if self.rounding is Rounding.STOCHASTIC:
            summand, carry = Cat(cut_off[1:], magnitude), cut_off[0]
            addend: Any = self.random
        else:
            summand, carry = magnitude, cut_off & (magnitude[0] | sticky)
            addend = Const(0, 0)
        places = len(summand) - len(magnitude)
        summand = Cat(summand, Const(0, bits + places - len(summand)))
        inverted = summand ^ negative.replicate(len(summand))
        addend = addend ^ negative.replicate(len(addend))
        # A bit below both summands carries into them.
        total = (Cat(carry ^ negative, inverted) + Cat(carry ^ negative, addend))[1 + places :][:bits]
        limit = layout.largest if self.scaled else layout.infinity
        assert limit is not None
        limited = flag.limited | (magnitude >= limit)
        at_limit = Mux(negative, Const(-limit, bits), Const(limit, bits)) if not layout.exponent else limit
        code = Cat(Mux(limited, at_limit, total)[:bits], flag.sign)[: layout.bits]
        return Mux(flag.nan, 0 if self.scaled else layout.nan, code)
