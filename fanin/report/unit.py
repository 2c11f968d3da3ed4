"""Numbers with units, as text."""

from __future__ import annotations

from dataclasses import dataclass

_UNITS = {1.0: "s", 1e-3: "ms", 1e-6: "µs"}
_PREFIXES = {1e18: "E", 1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: ""}
_SYMBOLS = {"FLOP/s": "FLOP/s", "bytes/s": "B/s", "bit/s": "bit/s"}  # of units that take a prefix


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


def quantity(value: float, unit: str = "") -> str:
    """Return a number of up to ten digits with thousands separators and its unit.

    Rates in FLOP/s, bytes/s and bit/s get an SI prefix: 2.08e12 FLOP/s is ``2.08 TFLOP/s``.
    """
    if unit in _SYMBOLS:
        scale = next((scale for scale in _PREFIXES if abs(value) >= scale), 1.0)
        value, unit = value / scale, f"{_PREFIXES[scale]}{_SYMBOLS[unit]}"
    digits = f"{value:,}" if isinstance(value, int) else f"{value:,.10g}"
    return f"{digits} {unit}" if unit else digits
