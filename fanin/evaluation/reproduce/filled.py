"""Rows, and facts that a model is fitted to, with what was measured for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fanin.evaluation.reproduce.measure import Measured
from fanin.evaluation.reproduce.row import Fit, Measurement, Paper, Row, taken


@dataclass(frozen=True)
class Filled:
    """A row, and what was measured for it; ``missing``: what stood in for a data set that is not at hand."""

    paper: Paper
    row: Row
    quick: bool
    measured: Measured | None
    missing: str = ""

    @property
    def measurement(self) -> Measurement:
        """The one that fills it."""
        return self.row.measurement(quick=self.quick)

    @cached_property
    def value(self) -> float | None:
        """Ours; None where it was not measured."""
        return _value(self.measurement, self.measured)

    @property
    def error(self) -> str:
        """Why there is no value."""
        if self.measured is None:
            return "not measured"
        nothing = f"{self.measured.command} prints no such figure"
        return self.measured.error or "; ".join((nothing, *self.measured.warnings))

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        return None if self.value is None else self.value / self.row.paper

    @property
    def how(self) -> str:
        """Where the number comes from."""
        return self.row.source(quick=self.quick).value

    @property
    def command(self) -> str:
        """As a reader types it, so that it prints the figures that the row takes."""
        command = self.measured.command if self.measured else " ".join(("fanin", *self.measurement.command))
        return f"{command} --json" + (" -o DIR" if self.measurement.folder else "")

    @property
    def why(self) -> str:
        """What the difference is made of, and what was not at hand."""
        return "; ".join(filter(None, (self.row.why, self.missing)))

    def as_json(self) -> dict[str, Any]:
        """The row of docs/reference/json.md."""
        return {
            "paper": self.paper.name,
            "figure": self.row.figure,
            "what": self.row.what,
            "section": self.row.section,
            "claimed": self.row.paper,
            "found": self.value,
            "unit": self.row.unit,
            "ratio": self.ratio,
            "how": self.how,
            "model": self.row.model,
            "command": self.command,
            "taken": taken(self.measurement.value),
            "seconds": self.measured.seconds if self.measured else None,
            "date": self.measured.date if self.measured else None,
            "why": self.why,
            "error": "" if self.value is not None else self.error,
        }


@dataclass(frozen=True)
class Fitted:
    """A fact that a model is fitted to, and what its command printed, where that was carried out."""

    paper: Paper
    fit: Fit
    measured: Measured | None

    @cached_property
    def value(self) -> float | None:
        """What the model makes of the fact."""
        return _value(self.fit.found, self.measured) if self.fit.found else None

    def as_json(self) -> dict[str, Any]:
        """The fact of docs/reference/json.md."""
        return {
            "paper": self.paper.name,
            "model": self.fit.model,
            "what": self.fit.what,
            "to": self.fit.paper,
            "claimed": self.fit.claimed,
            "found": self.value,
            "unit": self.fit.unit,
        }


def _value(measurement: Measurement, measured: Measured | None) -> float | None:
    if measured is None or measured.error:
        return None
    try:
        return measurement.value(measured.figures)
    except (KeyError, ZeroDivisionError):
        return None
