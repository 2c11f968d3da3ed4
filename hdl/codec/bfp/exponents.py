"""A block's exponent: into the format's range, to its code, and back. All of it is wire for 8 bits."""

from __future__ import annotations

from typing import Any

from fanin.codec import EXPONENT_BITS, SPECIAL_EXPONENT, Bfp
from fanin.hdl.arith.select import lookup

_ALL = range(1 << EXPONENT_BITS)


def _nearest(exponent: int, config: Bfp) -> int:
    return exponent if exponent == SPECIAL_EXPONENT else min(max(exponent, config.lowest), config.highest)


def _coded(exponent: int, config: Bfp) -> int:
    return config.special if exponent == SPECIAL_EXPONENT else max(exponent - config.lowest, 0)


def in_range(exponent: Any, config: Bfp) -> Any:
    """The nearest exponent that has a code: a function of 8 bits per bit. It keeps the order of exponents."""
    return lookup([_nearest(value, config) for value in _ALL], exponent) if config.is_narrow else exponent


def code_of(exponent: Any, config: Bfp) -> Any:
    """The code of an exponent that is :func:`in_range`: likewise."""
    if not config.is_narrow:
        return exponent
    return lookup([min(_coded(value, config), config.special) for value in _ALL], exponent)


def exponent_of(code: Any, config: Bfp) -> Any:
    """What a code stands for: a function of its at most 7 bits per bit."""
    if not config.is_narrow:
        return code
    return lookup([*range(config.lowest, config.highest + 1), SPECIAL_EXPONENT], code)
