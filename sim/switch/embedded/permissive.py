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
    """An uninitialized number. Each switch has a subclass with its own function ``used``, which uses call."""

    used: Callable[[], None]

    @classmethod
    def kept(cls, value: Any) -> Any:
        """Return ``value`` as an uninitialized number."""
        return cls(value) if isinstance(value, int) and not isinstance(value, cls) else value

    def to_bytes(self, *arguments: Any, **named: Any) -> bytes:  # noqa: D102
        self.used()
        return super().to_bytes(*arguments, **named)


def _telling(name: str) -> Callable[..., Any]:
    plain = getattr(int, name)

    def operator(self: Unset, *others: Any) -> Any:
        self.used()
        return plain(self, *others)

    return operator


for _name in (f"__{use}__" for use in _USES.split()):
    setattr(Unset, _name, _telling(_name))


def names(used: Callable[[], None]) -> Mapping[str, Any]:
    """Return the names that generated code needs for undefined values; each use of one calls ``used``."""

    class Own(Unset):
        pass

    Own.used = staticmethod(used)
    return {"UNDEFINED": Own(0), "kept": Own.kept}
