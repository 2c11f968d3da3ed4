"""Wide questions, answered by carry chains: sooner than by LUTs in series."""

from amaranth import Cat, Const, Value, signed

LUT_INPUTS = 6


def any_by_carry(bits: Value, group: int) -> Value:
    """Whether one of ``bits`` is set: a carry through the all-ones finds it, ``group`` bits a step.

    ``group`` is what one LUT can judge, so that one LUT and a chain of ``len(bits)`` / ``group`` is all.
    """
    steps = Cat(bits[k : k + group].any() for k in range(0, len(bits), group))
    return (steps + Const(-1, signed(len(steps))).as_unsigned())[-1]
