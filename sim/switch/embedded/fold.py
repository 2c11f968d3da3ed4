"""Arithmetic on constants, as P4 defines it.

``fanin.sim.switch.embedded.expressions`` calls these functions with checked operands. It refuses divisions by 0
or of negative numbers, shifts by negative amounts, and operands of other types than the operator's.

A constant is an int, a bool, or the name of an enum's member or error (str); None if the value is unknown.
"""

from __future__ import annotations

from typing import Any

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.types import Bits, Type, base_of


def fold_slice(value: int, high: int, low: int) -> int:
    """Return the bits ``value[high:low]`` as an unsigned number; 0 ≤ ``low`` ≤ ``high``."""
    return (value >> low) & ((1 << (high - low + 1)) - 1)


def fold_unary(operator: str, value: Any, kind: Type) -> Any:
    """Return the value of ``operator`` (!, -, ~ or +) as a ``kind``; None if the operand's value is unknown."""
    if value is None:
        return None
    if operator == "!":
        return not value
    folded = _UNARY[operator](value)
    return kind.wrap(folded) if isinstance(kind, Bits) else folded


def fold_cast(operand: ast.Expression, kind: Type) -> Any:
    """Return the operand's value as a ``kind``; None if the value is unknown or a name."""
    value = operand.constant
    base = base_of(kind)
    if value is None or isinstance(value, str):
        return None
    if base == types.BOOL:
        return bool(value)
    return base.wrap(int(value)) if isinstance(base, Bits) else value


def fold_binary(node: ast.Binary) -> Any:
    """Return the value of an operation, or None if an operand's value is unknown."""
    left, right = node.left.constant, node.right.constant
    operator = node.operator
    if operator in ("&&", "||") and left is not None:
        if left == (operator == "||"):
            return left  # the right side is not evaluated
        return right
    if left is None or right is None or isinstance(left, str) or operator in ("&&&", ".."):
        return None
    if operator in _COMPARISONS:
        return _COMPARISONS[operator](left, right)
    if operator == "++":
        width = base_of(node.right.type).width  # type: ignore[attr-defined]
        return node.type.wrap((left << width) | (right & ((1 << width) - 1)))
    if operator in ("<<", ">>"):
        return shift(node.type, operator, left, right)
    if operator in _SATURATING:
        low, high = node.type.limits
        return max(low, min(high, _SATURATING[operator](left, right)))
    folded = _ARITHMETIC[operator](left, right)
    return node.type.wrap(folded) if isinstance(node.type, Bits) else folded


def shift(kind: Type, operator: str, value: int, amount: int) -> int:
    """Return ``value`` shifted by ``amount`` ≥ 0 as a ``kind``.

    A shift by the width or more leaves 0; to the right, a negative number leaves -1.
    """
    if not isinstance(kind, Bits):
        return value << amount if operator == "<<" else value >> amount
    if operator == ">>":
        return value >> min(amount, kind.width)
    return 0 if amount >= kind.width else kind.wrap(value << amount)


_UNARY = {
    "-": lambda a: -a,
    "~": lambda a: ~a,
    "+": lambda a: a,
}
_COMPARISONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
_SATURATING = {
    "|+|": lambda a, b: a + b,
    "|-|": lambda a, b: a - b,
}
_ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,  # of numbers from 0 on, so it truncates as P4 does
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
