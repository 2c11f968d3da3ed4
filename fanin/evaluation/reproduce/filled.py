"""Rows, and facts that a model is fitted to, with what was measured for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fanin.evaluation.bench.result import number
from fanin.evaluation.reproduce.measure import Measured
from fanin.evaluation.reproduce.row import Fit, Measurement, Paper, Row
from fanin.evaluation.reproduce.value import Value


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
        return _value(self.measurement.value, self.measured)

    @property
    def settings(self) -> dict[str, float | None]:
        """Ours in each setting, where the row has one of several."""
        return {name: _value(value, self.measured) for name, value in self.row.settings.items()}

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
        """How the number came about."""
        return self.measurement.origin.how.value

    @property
    def command(self) -> str:
        """As a reader types it, so that it prints the figures that the row takes."""
        command = self.measured.command if self.measured else " ".join(("fanin", *self.measurement.command))
        return f"{command} --json" + (" -o DIR" if self.measurement.folder else "")

    @property
    def why(self) -> str:
        """What the difference is made of, other settings, what fixes the number, and what was not at hand."""
        found = {name: "—" if value is None else number(value) for name, value in self.settings.items()}
        settings = ", ".join(f"{name}: {value} {self.row.unit}" for name, value in found.items())
        follows = f"follows from {self.row.follows.text}" if self.row.follows else ""
        of_all = f"one of {len(found)} settings ({settings})" if found else ""
        return "; ".join(filter(None, (of_all, follows, self.row.why, self.missing)))

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
            "inputs": self.measurement.origin.text,
            "model": self.row.model,
            "command": self.command,
            "taken": self.measurement.value.text,
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
        return _value(self.fit.found.value, self.measured) if self.fit.found else None

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


def _value(value: Value, measured: Measured | None) -> float | None:
    if measured is None or measured.error:
        return None
    try:
        return value(measured.figures)
    except (KeyError, ZeroDivisionError):
        return None
