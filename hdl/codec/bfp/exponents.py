"""Exponents of blocks: limited to the format's range, encoded, and decoded. With 8 bits all are wires."""

from __future__ import annotations

from typing import Any

from fanin.codec.facts import EXPONENT_BITS, SPECIAL_EXPONENT, Bfp
from fanin.hdl.arith.select import lookup

_ALL = range(1 << EXPONENT_BITS)


def _nearest(exponent: int, config: Bfp) -> int:
    return exponent if exponent == SPECIAL_EXPONENT else min(max(exponent, config.lowest), config.highest)


def _code(exponent: int, config: Bfp) -> int:
    return config.special if exponent == SPECIAL_EXPONENT else exponent - config.lowest


def in_range(exponent: Any, config: Bfp) -> Any:
    """Return the nearest exponent that has a code; keeps the order. Each bit is a function of 8 bits."""
    if not config.is_narrow:
        return exponent
    return lookup([_nearest(value, config) for value in _ALL], exponent)


def code_of(exponent: Any, config: Bfp) -> Any:
    """Return the code of the nearest exponent that has one. Each bit is a function of 8 bits."""
    if not config.is_narrow:
        return exponent
    return lookup([_code(_nearest(value, config), config) for value in _ALL], exponent)


def exponent_of(code: Any, config: Bfp) -> Any:
    """Return the exponent of a code. Each bit is a function of at most 7 bits."""
    if not config.is_narrow:
        return code
    return lookup([*range(config.lowest, config.highest + 1), SPECIAL_EXPONENT], code)
