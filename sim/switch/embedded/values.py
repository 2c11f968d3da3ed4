"""Values at run time: the undefined value, and arithmetic that Python's operators do not have.

A defined value is a plain ``int`` or ``bool``. An undefined value is ``UNDEFINED``. It passes through
operators, and stops the run when a decision depends on it or when it would leave the switch.
"""

from __future__ import annotations

from typing import Any, NoReturn

from fanin.sim.switch.embedded.errors import RunRefused, RunUndefined


class Undefined:
    """An uninitialized value. Its only object is ``UNDEFINED``."""

    __slots__ = ()

    def _spread(self, *_: object) -> Undefined:
        return self

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise RunUndefined("an undefined value decides something, is a key or an index, or leaves the switch")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __floordiv__ = __rfloordiv__ = _spread
    __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _spread
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __neg__ = __invert__ = _spread
    __lt__ = __le__ = __gt__ = __ge__ = _spread
    __eq__ = __ne__ = _spread  # type: ignore[assignment]
    __bool__ = __index__ = __int__ = __hash__ = _refuse
    to_bytes = _refuse

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = Undefined()


class Exit(Exception):
    """``exit`` during its propagation; ``out_values``: out parameters of the action that it leaves."""

    out_values: Any = ()


class Reject(Exception):
    """A parser's transition to ``reject``, with the error's number."""

    def __init__(self, error: int):
        self.error = error


def shift_left(value: Any, amount: Any, width: int) -> Any:
    """Return ``value << amount``, 0 if ``amount`` is ``width`` or more; not yet cut to the width."""
    if amount is UNDEFINED or value is UNDEFINED:
        return UNDEFINED
    return value << amount if amount < width else 0


def clamp(value: Any, low: int, high: int) -> Any:
    """Return ``value`` limited to ``low`` … ``high``."""
    if value is UNDEFINED:
        return value
    return low if value < low else high if value > high else value


def divide(value: Any, divisor: Any) -> Any:
    """Return ``value / by`` of unsigned numbers."""
    if divisor == 0 and divisor is not UNDEFINED:
        raise RunRefused("a division by 0")
    return value // divisor


def modulo(value: Any, divisor: Any) -> Any:
    """Return ``value % by`` of unsigned numbers."""
    if divisor == 0 and divisor is not UNDEFINED:
        raise RunRefused("a division by 0")
    return value % divisor


def equal_parts(first: tuple[Any, ...], second: tuple[Any, ...]) -> Any:
    """Return whether tuples are equal. In Python two undefined values would be equal, as the same object."""
    all_equal = True
    for a, b in zip(first, second, strict=True):
        is_equal = (
            a.equals(b) if hasattr(a, "equals") else equal_parts(a, b) if isinstance(a, tuple) else a == b
        )
        if is_equal is UNDEFINED:
            all_equal = UNDEFINED
        elif not is_equal:
            return False  # whatever the other parts are
    return all_equal


def pack(*parts: Any) -> tuple[int, int]:
    """Concatenate (value, width) pairs to one (value, width)."""
    value, width = 0, 0
    for part, bits in parts:
        value = value << bits | part & ((1 << bits) - 1)
        width += bits
    return value, width
