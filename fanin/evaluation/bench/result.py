"""Results of a benchmark: figures with their limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fanin.evaluation.origins.graph import origin


@dataclass(frozen=True)
class Result:
    """One figure of a benchmark.

    - ``name``: name for the reader.
    - ``value``: the figure, in ``unit``.
    - ``limit``: upper bound, or lower bound with ``at_least``; None: no limit.
    - ``at_least``: True if ``limit`` is a lower bound.
    - ``id``: identifier in :mod:`fanin.evaluation.origins.graph`; empty: none.
    - ``curve``: series of which the figure is a point; empty: none.
    - ``x``: x of the point; None: no point.
    """

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    note: str = ""  #: note for the reader, such as a value to compare with
    id: str = ""
    curve: str = ""
    x: float | None = None

    @property
    def ok(self) -> bool:
        """Whether the limit holds."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def as_json(self) -> dict[str, Any]:
        """Return the figure as ``--json`` prints it."""
        return {
            "id": self.id or None,
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "limit": self.limit,
            "ok": self.ok,
            "origin": origin(self.id).kind.value if self.id else None,
            "inputs": [input_.name for input_ in origin(self.id).inputs] if self.id else [],
            "curve": self.curve or None,
            "x": self.x,
        }

    def __str__(self) -> str:
        """Return one line: name, value, limit, verdict, note."""
        bound = mark = ""
        if self.limit is not None:
            bound = f"{'≥' if self.at_least else '≤'} {number(self.limit)}"
            mark = "ok" if self.ok else "MISSED"
        line = f"{self.name:<56} {number(self.value):>12} {self.unit:<12} {bound:>12}  {mark:<6}  {self.note}"
        return line.rstrip()


def number(value: float) -> str:
    """Return a figure as text: integers with separators, others with four significant digits."""
    if float(value).is_integer() or abs(value) >= 10_000:
        return f"{value:,.0f}"
    return f"{value:.4g}"
