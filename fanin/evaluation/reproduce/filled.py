"""Rows of the table and facts to which models are fitted, with the outputs of their commands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fanin.evaluation.bench.result import number
from fanin.evaluation.reproduce.measure import CommandOutput
from fanin.evaluation.reproduce.row import Fit, Measurement, Paper, Row
from fanin.evaluation.reproduce.value import Value


@dataclass(frozen=True)
class FilledRow:
    """Row of the table with the output of its command.

    - ``paper``: paper of the row.
    - ``row``: the row.
    - ``quick``: True for the quick measurement.
    - ``output``: output of the command; None: not measured.
    - ``missing``: text: stand-in for a missing data set.
    """

    paper: Paper
    row: Row
    quick: bool
    output: CommandOutput | None
    missing: str = ""

    @property
    def measurement(self) -> Measurement:
        """Measurement of the row, full or quick."""
        return self.row.measurement(quick=self.quick)

    @cached_property
    def value(self) -> float | None:
        """fanin's number; None if it was not measured."""
        return _value(self.measurement.value, self.output)

    @property
    def settings(self) -> dict[str, float | None]:
        """fanin's number by setting, for a row with several settings."""
        return {name: _value(value, self.output) for name, value in self.row.settings.items()}

    @property
    def error(self) -> str:
        """Cause of a missing value."""
        if self.output is None:
            return "not measured"
        no_figure = f"{self.output.command} prints no such figure"
        return self.output.error or "; ".join((no_figure, *self.output.warnings))

    @property
    def ratio(self) -> float | None:
        """fanin's number divided by the paper's."""
        return None if self.value is None else self.value / self.row.claimed

    @property
    def origin_kind(self) -> str:
        """Kind of the number's origin, as text."""
        return self.measurement.origin.kind.value

    @property
    def command(self) -> str:
        """Command line that prints the row's figures, as a user types it."""
        command = self.output.command if self.output else " ".join(("fanin", *self.measurement.command))
        return f"{command} --json" + (" -o DIR" if self.measurement.folder else "")

    @property
    def explanation(self) -> str:
        """Notes on the number: other settings, algebra, explanation of the difference, missing data set."""
        texts = {name: "—" if value is None else number(value) for name, value in self.settings.items()}
        settings = ", ".join(f"{name}: {value} {self.row.unit}" for name, value in texts.items())
        derivation = f"follows from {self.row.derivation.text}" if self.row.derivation else ""
        setting_note = f"one of {len(texts)} settings ({settings})" if texts else ""
        return "; ".join(filter(None, (setting_note, derivation, self.row.explanation, self.missing)))

    def as_json(self) -> dict[str, Any]:
        """Return the row as docs/reference/json.md describes it."""
        return {
            "paper": self.paper.name,
            "figure": self.row.figure,
            "what": self.row.quantity,
            "section": self.row.section,
            "claimed": self.row.claimed,
            "found": self.value,
            "unit": self.row.unit,
            "ratio": self.ratio,
            "how": self.origin_kind,
            "inputs": self.measurement.origin.text,
            "model": self.row.model,
            "command": self.command,
            "taken": self.measurement.value.text,
            "seconds": self.output.seconds if self.output else None,
            "date": self.output.date if self.output else None,
            "why": self.explanation,
            "error": "" if self.value is not None else self.error,
        }


@dataclass(frozen=True)
class FittedFact:
    """Fact to which a model is fitted, with the output of its command; None: not measured."""

    paper: Paper
    fit: Fit
    output: CommandOutput | None

    @cached_property
    def value(self) -> float | None:
        """The model's value for the fact; None if it was not measured."""
        return _value(self.fit.measurement.value, self.output) if self.fit.measurement else None

    def as_json(self) -> dict[str, Any]:
        """Return the fact as docs/reference/json.md describes it."""
        return {
            "paper": self.paper.name,
            "model": self.fit.model,
            "what": self.fit.fitted_input,
            "to": self.fit.claim,
            "claimed": self.fit.claimed,
            "found": self.value,
            "unit": self.fit.unit,
        }


def _value(value: Value, output: CommandOutput | None) -> float | None:
    """Return a value computed from a command's output; None if the command failed or a figure is missing."""
    if output is None or output.error:
        return None
    try:
        return value(output.figures)
    except (KeyError, ZeroDivisionError):
        return None
