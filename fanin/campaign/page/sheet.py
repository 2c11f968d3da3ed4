"""Table of a campaign for page and comparison: a row per run, options and figures by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from sys import float_info
from typing import Any

from fanin.campaign.page.statistics import Mean, mean_of

SEED = "seed"
ABSENT = "–"  # text for an option that a run does not have

Row = dict[str, Any]
Point = tuple[Any, ...]  # values of a set of options


@dataclass(frozen=True)
class Sheet:
    """Table of the runs with figures.

    - ``rows``: values by column, for each run.
    - ``options``: names of the columns with options.
    - ``figures``: names of the columns with figures.
    """

    rows: Sequence[Row]
    options: Sequence[str]
    figures: Sequence[str]

    def values(self, option: str) -> list[Any]:
        """Return an option's distinct values, None for an absent one: numbers sorted, others in run order."""
        values = list(dict.fromkeys(row.get(option) for row in self.rows))
        return sorted(values) if all(map(is_number, values)) else values

    def join_options(self) -> Sheet:
        """Return a sheet with a single text option in place of options that depend on one another.

        The joined option combines options that some runs lack (the bound of one codec, the mantissa of another)
        with the option that determines which exist (the codec).
        """
        partial = [option for option in self.varying if None in self.values(option)]
        determinant = next((option for option in self.varying if self._determines(option, partial)), None)
        dependent = [*([determinant] if determinant else ()), *partial]
        if len(dependent) < 2:
            return self
        name = ", ".join(dependent)
        rows = [{**row, name: _words(row.get(option) for option in dependent)} for row in self.rows]
        independent = [option for option in self.options if option not in dependent]
        return replace(self, rows=rows, options=[*independent, name])

    def _determines(self, option: str, partial: Sequence[str]) -> bool:
        """Return whether the value of an option determines which options of ``partial`` a run has."""
        if option in partial:
            return False
        patterns = {(row.get(option), tuple(row.get(name) is None for name in partial)) for row in self.rows}
        return len(patterns) == len(self.values(option))

    @property
    def varying(self) -> list[str]:
        """Options that vary, except the seed."""
        return [option for option in self.options if option != SEED and len(self.values(option)) > 1]

    def is_numeric(self, option: str) -> bool:
        """Whether every run has a number for an option."""
        return all(map(is_number, self.values(option)))

    def means(self, figure: str, options: Sequence[str]) -> dict[Point, Mean]:
        """Return the mean of a figure for each combination of the options' values."""
        groups: dict[Point, list[float]] = {}
        for row in self.rows:
            value = row.get(figure)
            if isinstance(value, (bool, int, float)):
                groups.setdefault(tuple(row.get(option) for option in options), []).append(float(value))
        return {point: mean_of(values) for point, values in groups.items()}


def value_text(value: Any) -> str:
    """Return a value as text for the page."""
    return ABSENT if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _words(values: Iterable[Any]) -> str:
    """Join the values that are not None."""
    return " ".join(value_text(value) for value in values if value is not None)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that fits an axis, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= float_info.max
