"""Decoder of a 16-bit floating-point value."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring

from fanin.codec.facts import EXPONENT_BIAS, EXPONENT_BITS, FLOAT_BITS, FRACTION_BITS, QUIET_NAN
from fanin.codec.formats import Minifloat
from fanin.hdl.arith.select import leading_zeros
from fanin.hdl.codec.blocks.format import decoder_members


def decoder_latency(layout: Minifloat) -> int:
    """Return the cycles of a :class:`HalfDecoder`: 1 if the format has binary32's exponents, else 3."""
    return 1 if layout.exponent == EXPONENT_BITS else 3


class HalfDecoder(wiring.Component):
    """Decoder of a code of bfloat16 or binary16 to the same binary32 value; every NaN becomes 0x7FC00000.

    Members
    -------
    ``i`` : In, 16
        Code.
    ``enable`` : In, 1
        Advance the pipeline.
    ``o`` : Out, 32
        Value.

    Parameters
    ----------
    ``layout`` : Minifloat
        Format of the code: IEEE 754's special values, exponents of binary32 or fewer.

    Latency
    -------
    :func:`decoder_latency` cycles with ``enable``: 1 for bfloat16. 3 for binary16, whose subnormal numbers are
    normalised: leading zeros, shift, special values. One value a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, layout: Minifloat):
        self.layout = layout
        super().__init__(decoder_members(code_bits=layout.bits, scaled=False))

    def elaborate(self, platform: Any) -> Module:
        """Widen exponent and fraction."""
        m = Module()
        layout, i = self.layout, self.i
        decoded = Signal(FLOAT_BITS, reset_less=True)
        m.d.comb += self.o.eq(decoded)
        with m.If(self.enable):
            if layout.exponent == EXPONENT_BITS:
                value = Cat(Const(0, FLOAT_BITS - layout.bits), i)
                m.d.sync += decoded.eq(Mux(self._is_nan(i), QUIET_NAN, value))
            else:
                m.d.sync += decoded.eq(self._normalised(m, i))
        return m

    def _is_nan(self, code: Any) -> Value:
        fraction, field = code[: self.layout.fraction], code[self.layout.fraction : -1]
        is_nan: Value = field.all() & fraction.any()
        return is_nan

    def _normalised(self, m: Module, i: Any) -> Any:
        """Return a value whose exponent has more bits than its code's, two cycles after the code."""
        bits, layout = self.layout.fraction, self.layout
        bias = EXPONENT_BIAS - layout.bias
        code = Signal.like(i, reset_less=True)
        zeros = Signal(range(bits), reset_less=True)  # above the leading one of the fraction
        second = Signal(
            data.StructLayout(
                {"fraction": bits, "exponent": EXPONENT_BITS, "sign": 1, "zero": 1, "special": 1, "nan": 1}
            ),
            reset_less=True,
        )
        fraction, field = code[:bits], code[bits:-1]
        subnormal = ~field.any()
        m.d.sync += [
            code.eq(i),
            zeros.eq(leading_zeros(i[:bits])),
            second.fraction.eq(Mux(subnormal, (fraction << zeros)[: bits - 1] << 1, fraction)),
            second.exponent.eq(Mux(subnormal, bias - zeros, bias + field)),
            second.sign.eq(code[-1]),
            second.zero.eq(~code[:-1].any()),
            second.special.eq(field.all()),
            second.nan.eq(self._is_nan(code)),
        ]
        exponent = Mux(second.special, -1, Mux(second.zero, 0, second.exponent))[:EXPONENT_BITS]
        value = Cat(Const(0, FRACTION_BITS - bits), second.fraction, exponent, second.sign)
        return Mux(second.nan, QUIET_NAN, value)
