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
        found = list(dict.fromkeys(row.get(option) for row in self.rows))
        return sorted(found) if all(map(is_number, found)) else found

    @property
    def joined(self) -> Sheet:
        """Sheet with a single text option in place of options that depend on one another.

        The joined option combines options that some runs lack (the bound of one codec, the mantissa of another)
        with the option that determines which exist (the codec).
        """
        partial = [option for option in self.varying if None in self.values(option)]
        deciding = next((option for option in self.varying if self._decides(option, partial)), None)
        together = [*([deciding] if deciding else ()), *partial]
        if len(together) < 2:
            return self
        name = ", ".join(together)
        rows = [{**row, name: _words(row.get(option) for option in together)} for row in self.rows]
        kept = [option for option in self.options if option not in together]
        return replace(self, rows=rows, options=[*kept, name])

    def _decides(self, option: str, partial: Sequence[str]) -> bool:
        """Whether the value of an option determines which options of ``partial`` a run has."""
        if option in partial:
            return False
        has = {(row.get(option), tuple(row.get(each) is None for each in partial)) for row in self.rows}
        return len(has) == len(self.values(option))

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


def shown(value: Any) -> str:
    """Return a value as text for the page."""
    return ABSENT if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _words(values: Iterable[Any]) -> str:
    """Join the values that are not None."""
    return " ".join(shown(value) for value in values if value is not None)


def is_number(value: Any) -> bool:
    """Whether a value is a finite number that fits an axis, and no bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= float_info.max
