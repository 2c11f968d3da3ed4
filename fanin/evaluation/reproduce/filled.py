"""Rows, and facts to which models are fitted, with their measurements."""

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
    """Row with its measurement.

    - ``paper``: paper of the row.
    - ``row``: the row.
    - ``quick``: True for the quick measurement.
    - ``measured``: output of the command; None: not measured.
    - ``missing``: text: replacement for a missing data set.
    """

    paper: Paper
    row: Row
    quick: bool
    measured: Measured | None
    missing: str = ""

    @property
    def measurement(self) -> Measurement:
        """Measurement of the row, full or quick."""
        return self.row.measurement(quick=self.quick)

    @cached_property
    def value(self) -> float | None:
        """fanin's number; None if it was not measured."""
        return _value(self.measurement.value, self.measured)

    @property
    def settings(self) -> dict[str, float | None]:
        """fanin's number by setting, for a row with several settings."""
        return {name: _value(value, self.measured) for name, value in self.row.settings.items()}

    @property
    def error(self) -> str:
        """Cause of a missing value."""
        if self.measured is None:
            return "not measured"
        nothing = f"{self.measured.command} prints no such figure"
        return self.measured.error or "; ".join((nothing, *self.measured.warnings))

    @property
    def ratio(self) -> float | None:
        """fanin's number divided by the paper's."""
        return None if self.value is None else self.value / self.row.paper

    @property
    def how(self) -> str:
        """Kind of the number's origin, as text."""
        return self.measurement.origin.how.value

    @property
    def command(self) -> str:
        """Command line that prints the row's figures, as a user types it."""
        command = self.measured.command if self.measured else " ".join(("fanin", *self.measurement.command))
        return f"{command} --json" + (" -o DIR" if self.measurement.folder else "")

    @property
    def why(self) -> str:
        """Notes on the number: other settings, algebra, explanation of the difference, missing data set."""
        found = {name: "—" if value is None else number(value) for name, value in self.settings.items()}
        settings = ", ".join(f"{name}: {value} {self.row.unit}" for name, value in found.items())
        follows = f"follows from {self.row.follows.text}" if self.row.follows else ""
        of_all = f"one of {len(found)} settings ({settings})" if found else ""
        return "; ".join(filter(None, (of_all, follows, self.row.why, self.missing)))

    def as_json(self) -> dict[str, Any]:
        """Return the row as docs/reference/json.md describes it."""
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
    """Fact to which a model is fitted, with its measurement, None if there is none."""

    paper: Paper
    fit: Fit
    measured: Measured | None

    @cached_property
    def value(self) -> float | None:
        """The model's value for the fact; None if it was not measured."""
        return _value(self.fit.found.value, self.measured) if self.fit.found else None

    def as_json(self) -> dict[str, Any]:
        """Return the fact as docs/reference/json.md describes it."""
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
