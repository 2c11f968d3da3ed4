"""IEEE 754 binary32 addition and multiplication, pipelined, with subnormals as zeros."""

from collections.abc import Callable
from typing import Any

from amaranth import Cat, Const, Module, Mux, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.latencies import ADDER, MULTIPLIER
from fanin.codec.facts import (
    EXPONENT_BIAS,
    EXPONENT_BITS,
    FLOAT_BITS,
    FRACTION_BITS,
    QUIET_NAN,
    SPECIAL_EXPONENT,
)
from fanin.hdl.arith.delay import Pipeline
from fanin.hdl.arith.select import leading_zeros

Delay = Callable[..., Any]  # ``Pipeline.delay``: value, steps, name

_NAN_FRACTION = QUIET_NAN & (1 << FRACTION_BITS) - 1
_DSP_BITS = 17  # width of the narrower operand of a DSP48E2, unsigned


def _signature() -> dict[str, Any]:
    return {"a": In(FLOAT_BITS), "b": In(FLOAT_BITS), "enable": In(1, init=1), "o": Out(FLOAT_BITS)}


class _Number(data.Struct):
    """Unpacked number with an explicit leading one; subnormals are zeros."""

    significand: FRACTION_BITS + 1
    exponent: EXPONENT_BITS
    sign: 1


def _unpacked(bits: Value) -> Value:
    """Return the bits of a :class:`_Number`."""
    significand = Mux(_is_zero(bits), 0, Cat(_fraction(bits), 1))
    return Cat(significand, _exponent(bits), bits[-1])


def _fraction(bits: Value) -> Value:
    return bits[:FRACTION_BITS]


def _exponent(bits: Value) -> Value:
    return bits[FRACTION_BITS : FLOAT_BITS - 1]


def _is_special(bits: Value) -> Value:
    """Return whether the number is infinite or NaN."""
    return _exponent(bits) == SPECIAL_EXPONENT


def _is_zero(bits: Value) -> Value:
    """Return whether the number is zero or subnormal, which counts as zero."""
    return _exponent(bits) == 0


def _rounded(significand: Value, exponent: Value, sticky: Value) -> Value:
    """Round to nearest, ties to even; return exponent and fraction.

    ``significand`` has a guard bit below its 24 bits.

    A carry out of the fraction increments the exponent, up to infinity.
    """
    increment = significand[0] & (sticky | significand[1])
    return (Cat(significand[1:-1], exponent[:EXPONENT_BITS]) + increment)[: FLOAT_BITS - 1]


def _packed(sign: Value, rounded: Value, *, zero: Value, infinite: Value, nan: Value) -> Value:
    """Return the 32 bits of a result, one LUT after ``rounded``.

    ``nan`` overrides ``infinite``, which overrides ``zero``.
    """
    exponent = Mux(infinite | nan, SPECIAL_EXPONENT, Mux(zero, 0, rounded[FRACTION_BITS:]))
    fraction = Mux(nan, _NAN_FRACTION, Mux(zero | infinite, 0, _fraction(rounded)))
    return Cat(fraction, exponent, sign & ~nan)


class FP32Adder(wiring.Component):
    """Sum of two binary32 numbers, rounded to nearest, ties to even.

    - Subnormal operands count as zeros of their sign.
    - A sum below 2^-126 becomes a zero of its sign. Such a sum is exact, so rounding does not affect the
      decision.
    - x + -x is +0; -0 + -0 is -0.
    - A NaN operand, or infinities of both signs, give the NaN 0x7FC00000.
    - A sum that rounds to 2^128 or more is infinite.

    Members
    -------
    ``a`` : In(32)
        Bits of the first operand.
    ``b`` : In(32)
        Bits of the second operand.
    ``enable`` : In(1)
        Advance all registers; 1 when left unconnected.
    ``o`` : Out(32)
        Bits of the sum; registered.

    Parameters
    ----------
    None.

    Latency
    -------
    ``LATENCY``, 7 cycles with ``enable``; one sum a cycle.

    Source
    ------
    AI Smart NIC, section IV-A: FP32 adders in the path. IEEE 754; docs/systems/ring.md.
    """

    LATENCY = ADDER

    def __init__(self) -> None:
        super().__init__(_signature())

    def elaborate(self, platform: Any) -> Module:
        """Order by magnitude, align, add, normalise (shift by eights, then by ones), and round."""
        m = Module()
        delay = Pipeline(m, self.enable).delay
        swap = _is_less(self.a[:-1], self.b[:-1])
        a_minus_b = (_exponent(self.a) - _exponent(self.b))[:EXPONENT_BITS]
        b_minus_a = (_exponent(self.b) - _exponent(self.a))[:EXPONENT_BITS]
        distance = delay(Mux(swap, b_minus_a, a_minus_b), name="distance")
        a, b = _unpacked(self.a), _unpacked(self.b)
        larger, smaller = (
            _Number(delay(Mux(swap, b, a), name="larger")),
            _Number(delay(Mux(swap, a, b), name="smaller")),
        )

        subtract = larger.sign ^ smaller.sign
        total = _significand_sum(delay, larger.significand, smaller.significand, distance, subtract)
        exponent = delay(larger.exponent + 1, 2, name="with_carry")
        normal, shift = _normalised(delay, total)
        reduced = delay(delay(exponent, name="with_carry") - shift, name="reduced")
        near_zero = delay(exponent[5:] == 0, 2, name="near_zero")
        tiny = delay(near_zero & (reduced[5] | (reduced[:5] == 0)), name="tiny")  # 0 or less

        special = larger.exponent == SPECIAL_EXPONENT
        opposite = (smaller.exponent == SPECIAL_EXPONENT) & subtract  # infinities of opposite signs
        overflow = total[-1] & (exponent == SPECIAL_EXPONENT)
        result = _packed(
            Mux(
                normal[-1],
                delay(larger.sign, 5, name="sign"),
                delay(larger.sign & smaller.sign, 5, name="sign_of_zero"),
            ),
            _rounded(normal[3:], delay(reduced, name="exponent"), normal[:3].any()),
            zero=tiny | ~normal[-1],
            infinite=delay(delay(special, 2, name="special") | overflow, 3, name="infinite"),
            nan=delay(special & (_fraction(larger.significand).any() | opposite), 5, name="nan"),
        )
        m.d.comb += self.o.eq(delay(result, name="sum"))
        return m


def _is_less(a: Value, b: Value) -> Value:
    """Return a < b, from a carry that pairs of bits generate or propagate.

    The carry chain is half as long as that of a subtraction. The result selects one of two differences. After a
    plain comparison the mapper would move the selection before a single subtraction, which puts two carry
    chains in series.
    """
    bit_pairs = [(a[k : k + 2], b[k : k + 2]) for k in range(0, len(a), 2)]
    return (Cat(x < y for x, y in bit_pairs) + Cat(x <= y for x, y in bit_pairs))[-1]


def _significand_sum(delay: Delay, larger: Value, smaller: Value, distance: Value, subtract: Value) -> Value:
    """Return ``larger`` ± ``smaller`` · 2^-``distance`` of two significands, 2 cycles later.

    The result has the fields carry, significand, guard, round, sticky. The first cycle shifts by up to 15 and
    keeps every bit; the second shifts by 16 more before it adds. The bits that leave at the bottom count as one
    sticky bit, from which a subtraction borrows. With a distance of 32 or more, ``smaller`` does not affect
    rounding, so any value of the sticky bit is right.
    """
    shifted = delay(_shifted(Cat(Const(0, 15), smaller), distance[:4], -1), name="shifted")
    shift_16, is_far = delay(distance[4], name="shift_16"), delay(distance[5:].any(), name="is_far")
    larger, subtract = delay(larger, name="larger"), delay(subtract, name="subtract")
    aligned = Mux(is_far, 0, Mux(shift_16, shifted[29:], shifted[13:]))
    sticky = shifted[:13].any() | shift_16 & shifted[13:29].any()
    addend = Cat(aligned, Const(0, 1)) ^ subtract.replicate(len(aligned) + 1)
    # The carry enters as one more bit at the bottom, so that one carry chain is enough.
    upper = Cat(Const(0b001, 3), larger) + Cat(subtract & ~sticky, addend)
    return delay(Cat(sticky, upper[1 : len(addend) + 1]), name="total")


def _normalised(delay: Delay, total: Value) -> tuple[Value, Value]:
    """Return ``total`` with its leading one on top, 3 cycles later, and the shift distance, 1 cycle later.

    Each group of eight bits finds its own leading one, in parallel with the choice of the group that has the
    leading one of ``total``.
    """
    padded = Cat(Const(0, 32 - len(total)), total)
    groups = [padded[k : k + 8] for k in range(0, 32, 8)]
    group_shift = delay(leading_zeros(Cat(group.any() for group in groups)), name="group_shift")
    zero_counts = [delay(leading_zeros(group), name=f"zero_count_{k}") for k, group in enumerate(groups)]
    bit_shift = Mux(
        group_shift[1],
        Mux(group_shift[0], zero_counts[0], zero_counts[1]),
        Mux(group_shift[0], zero_counts[2], zero_counts[3]),
    )
    coarse = delay(_shifted(delay(total, name="total"), group_shift, 8), name="coarse")
    return delay(_shifted(coarse, delay(bit_shift, name="bit_shift"), 1), name="normal"), Cat(
        bit_shift, group_shift
    )


def _shifted(value: Value, amount: Value, unit: int) -> Value:
    """Return ``value`` shifted left by ``amount`` · ``unit`` (right if ``unit`` is negative).

    The highest bit of ``amount`` is applied first.
    """
    for bit in reversed(range(len(amount))):
        value = Mux(amount[bit], value.shift_left(unit << bit)[: len(value)], value)
    return value


class FP32Multiplier(wiring.Component):
    """Product of two binary32 numbers, rounded to nearest, ties to even.

    - Subnormal operands count as zeros of their sign.
    - A product whose exact magnitude, before rounding, is below 2^-126 becomes a zero of its sign.
    - A NaN operand, or zero times infinity, gives the NaN 0x7FC00000.
    - A product that rounds to 2^128 or more is infinite.

    The significands are multiplied in two pieces, 24 × 17 and 24 × 7 bits. Registers match those of two
    DSP48E2: A and B (twice in the second), M, P. The second one's P adds ``PCIN``, shifted right by 17. yosys
    maps each multiplication to a DSP48E2, and leaves registers and addition outside.

    Members
    -------
    ``a`` : In(32)
        Bits of the first operand.
    ``b`` : In(32)
        Bits of the second operand.
    ``enable`` : In(1)
        Advance all registers; 1 when left unconnected.
    ``o`` : Out(32)
        Bits of the product; registered.

    Parameters
    ----------
    None.

    Latency
    -------
    ``LATENCY``, 6 cycles with ``enable``; one product a cycle.

    Source
    ------
    IEEE 754; AMD UG579 (the DSP48E2).
    """

    LATENCY = MULTIPLIER

    def __init__(self) -> None:
        super().__init__(_signature())

    def elaborate(self, platform: Any) -> Module:
        """Classify the operands and multiply, take 24 bits and the guard bit, and round."""
        m = Module()
        delay = Pipeline(m, self.enable).delay
        a, b = delay(self.a, name="a"), delay(self.b, name="b")
        zero, special, nan = self._kinds(delay)
        upper, sticky = self._product(delay, a, b)
        large = upper[-1]  # the significands' product is 2 or more

        exponent = delay(delay(_exponent(a) + _exponent(b), name="exponents") - EXPONENT_BIAS, name="exponent")
        tiny, is_lowest = delay(zero | exponent[-1], name="tiny"), delay(exponent == 0, name="is_lowest")
        too_large = ~exponent[-1] & (exponent >= SPECIAL_EXPONENT)
        overflow, is_highest = (
            delay(special | too_large, name="overflow"),
            delay(exponent == SPECIAL_EXPONENT - 1, name="is_highest"),
        )
        final = delay(delay(exponent[:EXPONENT_BITS], name="small_exponent") + large, name="final")
        significand = delay(Mux(large, upper[-25:], upper[-26:-1]), name="significand")
        result = _packed(
            delay(a[-1] ^ b[-1], 4, name="sign"),
            _rounded(
                significand, final, delay(sticky | upper[:-26].any() | large & upper[-26], name="lower_bits")
            ),
            zero=delay(tiny | is_lowest & ~large, name="zero"),
            infinite=delay(overflow | is_highest & large, name="infinite"),
            nan=nan,
        )
        m.d.comb += self.o.eq(delay(result, name="product"))
        return m

    def _kinds(self, delay: Delay) -> tuple[Value, Value, Value]:
        """Return whether the product is zero, infinite (both 3 cycles later) or NaN (5 cycles later)."""
        operands = {"a": self.a, "b": self.b}
        zero = Cat(delay(_is_zero(bits), name=f"{name}_zero") for name, bits in operands.items())
        special = Cat(delay(_is_special(bits), name=f"{name}_special") for name, bits in operands.items())
        fraction = Cat(delay(_fraction(bits).any(), name=f"{name}_fraction") for name, bits in operands.items())
        nan = (special & fraction).any() | zero.any() & special.any()
        return (
            delay(zero.any(), 2, name="zero"),
            delay(special.any(), 2, name="special"),
            delay(nan, 4, name="nan"),
        )

    @staticmethod
    def _product(delay: Delay, a: Value, b: Value) -> tuple[Value, Value]:
        """Return the upper 31 bits of the significands' product, and whether any lower bit is set.

        The results come 3 cycles later. Zeros and subnormals get a leading one, too; their product is not used.
        """
        multiplicand, multiplier = Cat(_fraction(a), 1), Cat(_fraction(b), 1)
        low = delay(multiplicand * multiplier[:_DSP_BITS], 2, name="low")
        high = delay(
            delay(multiplicand, name="multiplicand") * delay(multiplier[_DSP_BITS:], name="multiplier"),
            name="high",
        )
        sticky = delay(low[:_DSP_BITS].any(), name="sticky")
        return delay((high + low[_DSP_BITS:])[: len(high)], name="upper"), sticky
