"""Random bits of stochastic rounding, several of a shift register's steps at a time."""

from __future__ import annotations

from typing import Any

from amaranth import Cat

from fanin.codec.formats import LFSR_BITS, LFSR_WARM_UP
from fanin.codec.golden.rounding import lfsr_taps


def sequence_bits(state: Any, first: int, count: int) -> Any:
    """Return ``count`` bits from bit ``first`` on of the sequence that begins with the register ``state``.

    Each bit is the exclusive or of some of the register's 32 bits: two LUTs in a row.
    """
    return Cat(
        Cat(state[k] for k in range(LFSR_BITS) if taps >> k & 1).xor()
        for taps in map(lfsr_taps, range(first, first + count))
    )


def state_after(state: Any, steps: int) -> Any:
    """Return the register after ``steps`` steps."""
    return sequence_bits(state, steps, LFSR_BITS)


def first_state(seed: Any) -> Any:
    """Return the register that a seed starts with."""
    return state_after(seed, LFSR_WARM_UP)
