"""Units of time."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = {1.0: "s", 1e-3: "ms", 1e-6: "µs"}


@dataclass(frozen=True)
class Unit:
    """A unit of time that suits a run's length; calling it formats seconds."""

    seconds: float

    @classmethod
    def of(cls, seconds: float) -> Unit:
        """Return the largest unit that is not above ``seconds``; at least µs."""
        return cls(next((unit for unit in _UNITS if seconds >= unit), 1e-6))

    @property
    def name(self) -> str:
        """Name of the unit: s, ms or µs."""
        return _UNITS[self.seconds]

    def __call__(self, seconds: float) -> str:
        """Format seconds with four digits and the unit."""
        value = seconds / self.seconds
        digits = f"{value:,.0f}" if value >= 1000 else f"{value:#.4g}".rstrip(".")
        return f"{digits} {self.name}"
