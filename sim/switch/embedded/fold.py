"""Arithmetic on constants, as P4 defines it."""

from __future__ import annotations

from typing import Any

from fanin.sim.switch.embedded import ast, types
from fanin.sim.switch.embedded.types import Bits, Type, base_of


def fold_slice(value: int, high: int, low: int) -> int:
    """Return ``value[high:low]``."""
    return (value >> low) & ((1 << (high - low + 1)) - 1)


def fold_unary(operator: str, value: Any, kind: Type) -> Any:
    """Return the value, or None if the operand's value is unknown."""
    if value is None:
        return None
    if operator == "!":
        return not value
    folded = {"-": -value, "~": ~value, "+": value}[operator]
    return kind.wrap(folded) if isinstance(kind, Bits) else folded


def fold_cast(operand: ast.Expression, kind: Type) -> Any:
    """Return the value as a ``kind``, or None if the operand's value is unknown."""
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
        return node.type.wrap(left << width | right & ((1 << width) - 1))
    if operator in ("<<", ">>"):
        return shift(node.type, operator, left, right)
    plain_operator = operator.strip("|") or "|"  # |+| and |-| add and subtract, and saturate below
    folded = _ARITHMETIC[plain_operator](left, right)
    if not isinstance(node.type, Bits):
        return folded
    if operator in ("|+|", "|-|"):
        low, high = node.type.limits
        return max(low, min(high, folded))
    return node.type.wrap(folded)


def shift(kind: Type, operator: str, value: int, amount: int) -> int:
    """Return ``value`` shifted; a shift by its width or more leaves 0, or the sign."""
    if not isinstance(kind, Bits):
        return value << amount if operator == "<<" else value >> amount
    if operator == ">>":
        return value >> min(amount, kind.width)
    return 0 if amount >= kind.width else kind.wrap(value << amount)


_COMPARISONS = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}
_ARITHMETIC = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
