"""Units of time."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = {1.0: "s", 1e-3: "ms", 1e-6: "µs"}


@dataclass(frozen=True)
class Unit:
    """A unit of time in which a run's length is easy to read; called, it writes seconds in it."""

    seconds: float

    @classmethod
    def of(cls, seconds: float) -> Unit:
        """The largest one that goes into these."""
        return cls(next((unit for unit in _UNITS if seconds >= unit), 1e-6))

    @property
    def name(self) -> str:
        """s, ms or µs."""
        return _UNITS[self.seconds]

    def __call__(self, seconds: float) -> str:
        """With four digits."""
        value = seconds / self.seconds
        digits = f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}".rstrip(".")
        return f"{digits} {self.name}"
