"""What P4 leaves undefined, taken as BMv2 has it: a field keeps what it held when its header became invalid.

A field that nobody has set, or that ``setValid`` has cleared, is 0. Such values are numbers that tell when they
are used, so that each place in a program that depends on one can be named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

_USES = (
    "add radd sub rsub mul rmul floordiv rfloordiv mod rmod and rand or ror xor rxor "
    "lshift rlshift rshift rrshift neg invert lt le gt ge eq ne bool hash index int"
)


class Unset(int):
    """A number that nobody has set. A subclass for each switch has the function that is told of uses."""

    used: Callable[[], None]

    @classmethod
    def kept(cls, value: Any) -> Any:
        """``value``, from now on as one that nobody has set."""
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
    """What generated code calls undefined values and makes them by; ``used`` is told of each use."""

    class Own(Unset):
        pass

    Own.used = staticmethod(used)
    return {"UNDEFINED": Own(0), "kept": Own.kept}
