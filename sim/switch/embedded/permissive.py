"""BMv2's behaviour for values that P4 leaves undefined: a field of an invalid header keeps its value.

An uninitialized field, or one cleared by ``setValid``, is 0. These values are numbers that report their use, so
that each place in a program that depends on one can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_USES = (
    "add radd sub rsub mul rmul floordiv rfloordiv mod rmod and rand or ror xor rxor "
    "lshift rlshift rshift rrshift neg invert lt le gt ge eq ne bool hash index int"
)


class Unset(int):
    """An uninitialized number; its operators call ``on_use``. Each switch has a subclass with its function."""

    on_use: Callable[[], None]

    @classmethod
    def mark(cls, value: Any) -> Any:
        """Return ``value`` as an uninitialized number."""
        return cls(value) if isinstance(value, int) and not isinstance(value, cls) else value

    def to_bytes(self, *arguments: Any, **keywords: Any) -> bytes:  # noqa: D102
        self.on_use()
        return super().to_bytes(*arguments, **keywords)


def _reporting_operator(name: str) -> Callable[..., Any]:
    method = getattr(int, name)

    def operator(self: Unset, *operands: Any) -> Any:
        self.on_use()
        return method(self, *operands)

    return operator


for _name in (f"__{use}__" for use in _USES.split()):
    setattr(Unset, _name, _reporting_operator(_name))


def names(on_use: Callable[[], None]) -> Mapping[str, Any]:
    """Return the names that generated code needs for undefined values; each use of one calls ``on_use``."""

    class SwitchUnset(Unset):
        pass

    SwitchUnset.on_use = staticmethod(on_use)
    return {"UNDEFINED": SwitchUnset(0), "mark_unset": SwitchUnset.mark}
