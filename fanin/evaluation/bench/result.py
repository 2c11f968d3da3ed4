"""What a benchmark yields: figures, each beside its limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """One measured figure. ``limit`` bounds it from above, or from below with ``at_least``; None: no limit."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    note: str = ""  #: what it is compared with, for the reader

    @property
    def ok(self) -> bool:
        """Whether the limit holds."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def as_json(self) -> dict[str, Any]:
        """The figure as ``--json`` prints it."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "limit": self.limit,
            "ok": self.ok,
        }

    def __str__(self) -> str:
        """One line: name, value, limit, verdict, note."""
        bound = verdict = ""
        if self.limit is not None:
            bound = f"{'≥' if self.at_least else '≤'} {number(self.limit)}"
            verdict = "ok" if self.ok else "MISSED"
        line = (
            f"{self.name:<56} {number(self.value):>12} {self.unit:<12} {bound:>12}  {verdict:<6}  {self.note}"
        )
        return line.rstrip()


def number(value: float) -> str:
    """A figure for people: integers with separators, others with four significant digits."""
    if float(value).is_integer() or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
