"""A campaign's table, as the page and the comparison read it: a row per run, options and figures by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from sys import float_info
from typing import Any

from fanin.campaign.page.statistics import Mean, mean_of

SEED = "seed"
ABSENT = "–"  # an option that a run does not have

Row = dict[str, Any]
Point = tuple[Any, ...]  # values of some options


@dataclass(frozen=True)
class Sheet:
    """``rows`` of the runs that have figures; ``options`` and ``figures`` are names of columns."""

    rows: Sequence[Row]
    options: Sequence[str]
    figures: Sequence[str]

    def values(self, option: str) -> list[Any]:
        """What an option has been: numbers in order, else as the runs come; None where a run has none."""
        found = list(dict.fromkeys(row.get(option) for row in self.rows))
        return sorted(found) if all(map(is_number, found)) else found

    @property
    def joined(self) -> Sheet:
        """The same with one option in place of those that depend on one another.

        Options that some runs lack (the bound of one codec, the mantissa of another) and the option that
        decides which (the codec) make one option together, whose values are texts.
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
        """Whether the value of an option says which of ``partial`` a run has."""
        if option in partial:
            return False
        has = {(row.get(option), tuple(row.get(each) is None for each in partial)) for row in self.rows}
        return len(has) == len(self.values(option))

    @property
    def varying(self) -> list[str]:
        """The options that vary, but for seeds."""
        return [option for option in self.options if option != SEED and len(self.values(option)) > 1]

    def is_numeric(self, option: str) -> bool:
        """Whether every run has a number there."""
        return all(map(is_number, self.values(option)))

    def means(self, figure: str, options: Sequence[str]) -> dict[Point, Mean]:
        """A figure by the values of some options, over all runs that have these."""
        groups: dict[Point, list[float]] = {}
        for row in self.rows:
            value = row.get(figure)
            if isinstance(value, (bool, int, float)):
                groups.setdefault(tuple(row.get(option) for option in options), []).append(float(value))
        return {point: mean_of(values) for point, values in groups.items()}


def shown(value: Any) -> str:
    """A value, for people."""
    return ABSENT if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _words(values: Iterable[Any]) -> str:
    """The values that are there."""
    return " ".join(shown(value) for value in values if value is not None)


def is_number(value: Any) -> bool:
    """Whether it is one that an axis has; true and false are none, nor is what is not finite."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= float_info.max
