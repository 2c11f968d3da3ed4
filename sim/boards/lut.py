"""Conversion of look-up tables to expressions of few operators, which a simulator computes faster."""

from __future__ import annotations

from functools import cache

_FALSE, _TRUE = "1'b0", "1'b1"


@cache
def _expression(table: int, inputs: int) -> str:
    """Return a function as an expression in {0}, {1}, …, the inputs from the lowest bit.

    Bit i of ``table`` is the function's value when the inputs, as a number, are i. The last input, ``x``,
    splits the table: ``low`` holds if x is 0, ``high`` if x is 1.
    """
    size = 1 << inputs
    all_ones = (1 << size) - 1
    if table in (0, all_ones):
        return _TRUE if table else _FALSE
    half, last = size // 2, inputs - 1  # ``last``: number of x, and of the inputs of each half
    low, high = table & ((1 << half) - 1), table >> half
    if low == high:
        return _expression(low, last)
    x = f"{{{last}}}"
    all_half = (1 << half) - 1
    if low == high ^ all_half:
        return _join("^", x, _expression(low, last))
    if low == 0:
        return _join("&", x, _expression(high, last))
    if high == 0:
        return _join("&", _not(x), _expression(low, last))
    if low == all_half:
        return _join("|", _not(x), _expression(high, last))
    if high == all_half:
        return _join("|", x, _expression(low, last))
    # If one half implies the other, an OR replaces the multiplexer.
    if low & high == low:
        return f"({_expression(low, last)} | {_join('&', x, _expression(high, last))})"
    if low & high == high:
        return f"({_expression(high, last)} | {_join('&', _not(x), _expression(low, last))})"
    return f"({x} ? {_expression(high, last)} : {_expression(low, last)})"


def _not(x: str) -> str:
    return f"~{x}"


def _join(operator: str, x: str, operand: str) -> str:
    if operator == "^" and operand in (_TRUE, _FALSE):
        return _not(x) if operand == _TRUE else x
    return x if operator == "&" and operand == _TRUE else f"({x} {operator} {operand})"


def lut_expression(table: int, inputs: list[str]) -> str:
    """Return the expression of a table; bit i is its value when ``inputs``, lowest bit first, are i.

    An input may be a constant, ``1'b0`` or ``1'b1``.
    """
    for position in reversed(range(len(inputs))):
        if inputs[position] in (_FALSE, _TRUE):
            table = _with_fixed_input(table, len(inputs), position, inputs[position] == _TRUE)
            inputs = inputs[:position] + inputs[position + 1 :]
    return _expression(table, len(inputs)).format(*inputs)


def _with_fixed_input(table: int, inputs: int, position: int, value: bool) -> int:
    """Return the table without one input, which has a fixed value."""
    result = 0
    for index in range(1 << (inputs - 1)):
        low = index & ((1 << position) - 1)
        full_index = (index >> position) << (position + 1) | value << position | low
        result |= (table >> full_index & 1) << index
    return result
