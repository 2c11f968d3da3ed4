"""Encoder of a value to block floating point: aligned to its block's exponent, rounded, clamped."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring

from fanin.codec.facts import EXPONENT_BITS, SPECIAL_EXPONENT
from fanin.hdl.codec.blocks.format import encoder_members, value_layout

LATENCY = 3


class BfpEncoder(wiring.Component):
    """Encoder of a value of a block to a sign and a magnitude, rounded to nearest, ties to even, and clamped.

    docs/systems/codec.md lists special values.

    Members
    -------
    ``i`` : In, :func:`value_layout`
        Value.
    ``exponent`` : In, 8
        Exponent of the value's block, limited to the range.
    ``enable`` : In, 1
        Advance the pipeline.
    ``o`` : Out, ``mantissa`` + 1 bits
        Code: sign above magnitude.

    Parameters
    ----------
    ``mantissa`` : int
        Bits of a magnitude.
    ``saturates`` : bool
        The value's exponent may be above that of its block, whose range is limited.

    Latency
    -------
    3 cycles with ``enable``: distance to the block's exponent, shift, rounding. One value a cycle.

    Source
    ------
    docs/systems/codec.md; AI Smart NIC, section IV-B.
    """

    def __init__(self, *, mantissa: int, saturates: bool = False):
        self.mantissa = mantissa
        self.saturates = saturates
        value = value_layout(mantissa)
        super().__init__(encoder_members(value=value, exponent_bits=EXPONENT_BITS, code_bits=mantissa + 1))

    def elaborate(self, platform: Any) -> Module:
        """Compute the magnitude with a guard bit, and ``sticky`` for all lower bits."""
        m = Module()
        value, bits = self.i, self.mantissa
        distance = Signal(EXPONENT_BITS + 1, reset_less=True)
        significand = Signal(bits + 1, reset_less=True)
        sticky = Signal(2, reset_less=True)  # bit n: after stage n
        special = value.exponent == SPECIAL_EXPONENT
        # ``full``: the magnitude is all ones. ``bounded``: the value is finite and stays below infinity.
        flags = data.StructLayout({"sign": 1, "full": 1, "bounded": 1, "zero": 1})
        flag = Signal(flags, reset_less=True)
        flag_1 = Signal.like(flag)
        shifted = Signal(bits + 1, reset_less=True)
        code = Signal.like(self.o, reset_less=True)
        # Otherwise all bits are shifted out, or the value is above the range.
        in_reach = (distance[:-1] <= bits) & ~flag.zero
        shift = distance[: bits.bit_length()]
        lost_bits = reduce(or_, (significand[k] & (shift > k) for k in range(bits)))
        # A value above the range becomes the largest value.
        above_range = distance[-1] if self.saturates else 0
        with m.If(self.enable):
            m.d.sync += [
                distance.eq(self.exponent - value.exponent),
                significand.eq(Cat(value.fraction, 1)),
                flag.zero.eq(value.exponent == 0),  # zero, or a subnormal number that is flushed to zero
                sticky[0].eq(value.sticky),
                flag.sign.eq(value.sign),
                flag.full.eq(special & (value.fraction.any() | value.sticky)),
                flag.bounded.eq((self.exponent == SPECIAL_EXPONENT) & ~special),
            ]
            m.d.sync += [
                shifted.eq(Mux(in_reach, significand >> shift, 0)),
                sticky[1].eq(sticky[0] | lost_bits),
                flag_1.sign.eq(flag.sign),
                flag_1.full.eq(flag.full | above_range),
                flag_1.bounded.eq(flag.bounded),
            ]
            m.d.sync += code.eq(self._rounded(m, shifted, sticky[1], flag_1))
        m.d.comb += self.o.eq(code)
        return m

    def _rounded(self, m: Module, shifted: Signal, sticky: Any, flag: Any) -> Any:
        """Return the rounded code; overflow becomes the largest magnitude, the largest finite if bounded."""
        bits = self.mantissa
        truncated, guard = shifted[1:], shifted[0]
        up = guard & (truncated[0] | sticky)
        total = Signal(bits + 1)
        m.d.comb += total.eq(truncated + up)
        largest_finite = (1 << bits - 1) - 1
        magnitude = Mux(total[-1] | flag.full, (1 << bits) - 1, total[:-1])
        magnitude = Mux(flag.bounded & total[bits - 1], largest_finite, magnitude)
        return Cat(magnitude[:bits], flag.sign & (truncated.any() | up | flag.full))
