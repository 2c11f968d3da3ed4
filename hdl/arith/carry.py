"""Carry chains: wide questions that they answer sooner than LUTs in series, and sums in parts."""

from amaranth import Cat, Const, Value, signed

LUT_INPUTS = 6


def sum_with_carry(a: Value, b: Value, carry: Value) -> Value:
    """``a`` + ``b`` + ``carry``, which enters one bit below theirs: one chain for what would be two."""
    return (Cat(1, a) + Cat(carry, b))[1:]


def any_by_carry(bits: Value, group: int) -> Value:
    """Whether one of ``bits`` is set: a carry through the all-ones finds it, ``group`` bits a step.

    ``group`` is what one LUT can judge, so that one LUT and a chain of ``len(bits)`` / ``group`` is all.
    """
    steps = Cat(bits[k : k + group].any() for k in range(0, len(bits), group))
    return (steps + Const(-1, signed(len(steps))).as_unsigned())[-1]
