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
        difference = self.difference
        is_single = difference.low is None or difference.high is None
        interval = ABSENT if is_single else f"{difference.low:+.4g} to {difference.high:+.4g}"
        pairs = f"{difference.count}{'' if self.paired else ', unpaired'}"
        point = [ABSENT if value is None else str(value) for value in self.point.values()]
        numbers = [f"{self.before:.6g}", f"{self.after:.6g}", f"{difference.value:+.4g}"]
        return [*point, self.figure, *numbers, interval, pairs, self.verdict]


def compare_campaigns(
    before: Path, after: Path, figure_names: Sequence[str]
) -> tuple[list[str], list[Difference]]:
    """Compare two campaigns: return the varying options, and the differences at each common point.

    Raises InputError unless the campaigns have runs in common. An option that only one campaign has may not
    vary at a common point, because the runs could not be paired.

    - ``before``, ``after``: folders of the two campaigns.
    - ``figure_names``: figures to compare; empty: all common figures.
    """
    before_sheet, after_sheet = (sheet_of(read_table(folder)) for folder in (before, after))
    options = [
        name
        for name in dict.fromkeys((*before_sheet.varying, *after_sheet.varying))
        if _is_common(before_sheet, after_sheet, name)
    ]
    figures = [name for name in before_sheet.figures if name in after_sheet.figures]
    if unknown := [name for name in figure_names if name not in figures]:
        raise InputError(f"--figure {unknown[0]}: {before} and {after} have {', '.join(figures) or 'none'}")
    differences: list[Difference] = []
    before_groups, after_groups = _group_rows(before_sheet, options), _group_rows(after_sheet, options)
    for point, rows in before_groups.items():
        if point not in after_groups:
            continue
        _check_constant(rows, [name for name in before_sheet.varying if name not in options], before, after)
        _check_constant(
            after_groups[point], [name for name in after_sheet.varying if name not in options], after, before
        )
        for figure in figure_names or figures:
            statistics = _difference(rows, after_groups[point], figure)
            if statistics is not None:
                differences.append(Difference(dict(zip(options, point, strict=True)), figure, *statistics))
    if not differences:
        raise InputError(f"{before} and {after}: have no runs in common, by {', '.join(options) or 'figures'}")
    return options, differences


def _is_common(before: Sheet, after: Sheet, option: str) -> bool:
    """Return whether both campaigns have an option, which can then pair their runs."""
    return option in before.options and option in after.options


def _check_constant(rows: Sequence[Row], names: Sequence[str], folder: Path, other_folder: Path) -> None:
    """Raise InputError if one of the options ``names``, which ``other_folder``'s runs lack, varies."""
    for name in names:
        if len({row.get(name) for row in rows}) > 1:
            raise InputError(
                f"{other_folder}: its runs have no {name}, which varies in {folder}: they do not pair"
            )


def _group_rows(sheet: Sheet, options: Sequence[str]) -> dict[Point, list[Row]]:
    """Return the rows by the values of ``options``."""
    groups: dict[Point, list[Row]] = {}
    for row in sheet.rows:
        groups.setdefault(tuple(row.get(option) for option in options), []).append(row)
    return groups


def _difference(before: list[Row], after: list[Row], figure: str) -> tuple[float, float, Mean, bool] | None:
    """Return both means, the mean difference, and whether it is paired; None if one side has no number."""
    before_numbers, after_numbers = (
        [(row.get(SEED), float(row[figure])) for row in rows if is_number(row.get(figure))]
        for rows in (before, after)
    )
    if not before_numbers or not after_numbers:
        return None
    by_seed = (dict(before_numbers), dict(after_numbers))
    common = [seed for seed in by_seed[0] if seed in by_seed[1]]
    if common and len(by_seed[0]) == len(before_numbers) and len(by_seed[1]) == len(after_numbers):
        pairs = [(by_seed[0][seed], by_seed[1][seed]) for seed in common]
        mean = mean_of([b - a for a, b in pairs])
        return sum(a for a, _ in pairs) / len(pairs), sum(b for _, b in pairs) / len(pairs), mean, True
    values = [value for _, value in before_numbers], [value for _, value in after_numbers]
    return sum(values[0]) / len(before_numbers), sum(values[1]) / len(after_numbers), welch(*values), False
