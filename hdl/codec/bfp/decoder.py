"""Decoder of a value of block floating point."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring

from fanin.codec.facts import EXPONENT_BITS, FRACTION_BITS, QUIET_NAN, SPECIAL_EXPONENT
from fanin.hdl.arith.select import leading_zeros
from fanin.hdl.codec.blocks.format import decoder_members

LATENCY = 3


class BfpDecoder(wiring.Component):
    """Decoder of a sign and a magnitude to a binary32 value.

    Members
    -------
    ``i`` : In, ``mantissa`` + 1 bits
        Code: sign above magnitude.
    ``scale`` : In, 8
        Exponent of the value's block.
    ``enable`` : In, 1
        Advance the pipeline.
    ``o`` : Out, 32
        Value.

    Parameters
    ----------
    ``mantissa`` : int
        Bits of a magnitude.

    Latency
    -------
    3 cycles with ``enable``: leading zeros, shift, special values. One value a cycle.

    Source
    ------
    docs/systems/codec.md; AI Smart NIC, section IV-B.
    """

    def __init__(self, *, mantissa: int):
        self.mantissa = mantissa
        super().__init__(decoder_members(code_bits=mantissa + 1, scaled=True))

    def elaborate(self, platform: Any) -> Module:
        """Normalise the magnitude by the zeros above its leading one."""
        m = Module()
        bits = self.mantissa
        magnitude, sign = self.i[:-1], self.i[-1]
        zeros = Signal(range(bits), reset_less=True)  # above the leading one
        first = Signal(
            data.StructLayout({"magnitude": bits, "exponent": EXPONENT_BITS, "sign": 1, "empty": 1}),
            reset_less=True,
        )
        flags = data.StructLayout(
            {"fraction": bits - 1, "exponent": EXPONENT_BITS, "sign": 1, "zero": 1, "nan": 1}
        )
        second = Signal(flags, reset_less=True)
        decoded = Signal.like(self.o, reset_less=True)
        fraction = Cat(Const(0, FRACTION_BITS + 1 - bits), second.fraction)
        value = Mux(second.zero, 0, Cat(fraction, second.exponent, second.sign))
        with m.If(self.enable):
            m.d.sync += [
                zeros.eq(leading_zeros(magnitude)),
                first.eq(Cat(magnitude, self.scale, sign, ~magnitude.any())),
            ]
            m.d.sync += [
                second.fraction.eq((first.magnitude << zeros)[: bits - 1]),
                second.exponent.eq(first.exponent - zeros),
                second.sign.eq(first.sign),
                second.zero.eq((first.exponent <= zeros) | first.empty),
                second.nan.eq(
                    (first.exponent == SPECIAL_EXPONENT) & first.magnitude[-1] & first.magnitude[:-1].any()
                ),
            ]
            m.d.sync += decoded.eq(Mux(second.nan, QUIET_NAN, value))
        m.d.comb += self.o.eq(decoded)
        return m
