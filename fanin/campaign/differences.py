"""Differences between two campaigns, point by point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.campaign.page.sheet import ABSENT, SEED, Point, Row, Sheet, is_number
from fanin.campaign.page.statistics import Mean, mean_of, welch
from fanin.campaign.results import sheet_of
from fanin.campaign.table import read_table


@dataclass(frozen=True)
class Difference:
    """Difference of a figure at a point that both campaigns have.

    - ``point``: values of the varying options.
    - ``figure``: name of the figure.
    - ``before``, ``after``: means of the two campaigns.
    - ``difference``: mean difference; its ``count`` is the number of pairs, or the size of the smaller sample.
    - ``paired``: True if the runs are paired by seed.
    """

    point: dict[str, Any]
    figure: str
    before: float
    after: float
    difference: Mean
    paired: bool

    @property
    def verdict(self) -> str:
        """Position of ``after`` by the interval: same, higher, lower, or not shown."""
        low, high = self.difference.low, self.difference.high
        if self.difference.value == 0 and (low is None or low == high):
            return "same"
        if low is None or high is None:
            return "not shown"  # a single pair
        return "higher" if low > 0 else "lower" if high < 0 else "not shown"

    def as_json(self) -> dict[str, Any]:
        """Return the difference as ``--json`` prints it."""
        return {
            "point": self.point,
            "figure": self.figure,
            "before": self.before,
            "after": self.after,
            "difference": self.difference.value,
            "low": self.difference.low,
            "high": self.difference.high,
            "count": self.difference.count,
            "paired": self.paired,
            "verdict": self.verdict,
        }

    def cells(self) -> list[str]:
        """Return a row of the printed table."""
        found = self.difference
        one = found.low is None or found.high is None
        interval = ABSENT if one else f"{found.low:+.4g} to {found.high:+.4g}"
        pairs = f"{found.count}{'' if self.paired else ', unpaired'}"
        point = [ABSENT if value is None else str(value) for value in self.point.values()]
        numbers = [f"{self.before:.6g}", f"{self.after:.6g}", f"{found.value:+.4g}"]
        return [*point, self.figure, *numbers, interval, pairs, self.verdict]


def differences(before: Path, after: Path, chosen: Sequence[str]) -> tuple[list[str], list[Difference]]:
    """Return the varying options, and the differences at each common point. Raises InputError.

    The campaigns must have runs in common. An option that only one campaign has may not vary at a common point,
    because the runs could not be paired.

    - ``chosen``: names of figures; empty: all common figures.
    """
    one, other = (sheet_of(read_table(folder)) for folder in (before, after))
    options = [name for name in dict.fromkeys((*one.varying, *other.varying)) if _both(one, other, name)]
    figures = [name for name in one.figures if name in other.figures]
    if unknown := [name for name in chosen if name not in figures]:
        raise InputError(f"--figure {unknown[0]}: {before} and {after} have {', '.join(figures) or 'none'}")
    found = []
    groups, others = _groups(one, options), _groups(other, options)
    for point, rows in groups.items():
        if point not in others:
            continue
        _check_alone(rows, [name for name in one.varying if name not in options], before, after)
        _check_alone(others[point], [name for name in other.varying if name not in options], after, before)
        for figure in chosen or figures:
            each = _difference(rows, others[point], figure)
            if each is not None:
                found.append(Difference(dict(zip(options, point, strict=True)), figure, *each))
    if not found:
        raise InputError(f"{before} and {after}: have no runs in common, by {', '.join(options) or 'figures'}")
    return options, found


def _both(one: Sheet, other: Sheet, option: str) -> bool:
    """Whether both campaigns have an option, which can then pair their runs."""
    return option in one.options and option in other.options


def _check_alone(rows: Sequence[Row], names: Sequence[str], folder: Path, without: Path) -> None:
    """Raise InputError if one of the options ``names``, which the other campaign lacks, varies."""
    for name in names:
        if len({row.get(name) for row in rows}) > 1:
            raise InputError(f"{without}: its runs have no {name}, which varies in {folder}: they do not pair")


def _groups(sheet: Sheet, options: Sequence[str]) -> dict[Point, list[Row]]:
    found: dict[Point, list[Row]] = {}
    for row in sheet.rows:
        found.setdefault(tuple(row.get(option) for option in options), []).append(row)
    return found


def _difference(before: list[Row], after: list[Row], figure: str) -> tuple[float, float, Mean, bool] | None:
    """Return both means, the mean difference, and whether it is paired; None if one side has no number."""
    one, other = (
        [(row.get(SEED), float(row[figure])) for row in rows if is_number(row.get(figure))]
        for rows in (before, after)
    )
    if not one or not other:
        return None
    by_seed = (dict(one), dict(other))
    common = [seed for seed in by_seed[0] if seed in by_seed[1]]
    if common and len(by_seed[0]) == len(one) and len(by_seed[1]) == len(other):
        pairs = [(by_seed[0][seed], by_seed[1][seed]) for seed in common]
        mean = mean_of([b - a for a, b in pairs])
        return sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs), mean, True
    values = [value for _, value in one], [value for _, value in other]
    return sum(values[0]) / len(one), sum(values[1]) / len(other), welch(*values), False
