"""Drawings of the papers' figures, from rows and from the figures that commands print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fanin.evaluation.origins.kinds import OriginKind
from fanin.evaluation.reproduce.filled import FilledRow, FittedFact
from fanin.evaluation.reproduce.page import Bars, Drawing
from fanin.evaluation.reproduce.row import Fit, Paper, Picture, Row

_MIN_BARS = 3  # minimum count of numbers of one unit for a bar chart


def drawings(rows: Sequence[FilledRow], fits: Sequence[FittedFact]) -> Iterator[Drawing | Bars]:
    """Yield curves for the papers' pictures, and bars for the other numbers of a figure."""
    for paper in {row.paper.name: row.paper for row in rows}.values():
        paper_rows = [row for row in rows if row.paper is paper]
        paper_fits = [fit for fit in fits if fit.paper is paper]
        for picture in paper.pictures:
            yield from _curves(paper, picture, paper_rows, paper_fits)
        for figure in dict.fromkeys(row.row.figure for row in paper_rows):
            yield from _bars(paper, figure, paper_rows, paper_fits)


def _curves(
    paper: Paper, picture: Picture, rows: Sequence[FilledRow], fits: Sequence[FittedFact]
) -> Iterator[Drawing]:
    figures = {name: value for row in rows if row.output for name, value in row.output.figures.items()}
    points = {name: point for row in rows if row.output for name, point in row.output.points.items()}
    series = picture.series(figures, points)
    claimed: dict[str, list[tuple[float, float]]] = {}
    for source, number in _numbers(picture.figure, rows, fits):
        if source.x is not None and number is not None:
            claimed.setdefault(source.series, []).append((source.x, number))
    if not picture.patterns:
        for row in rows:
            if row.row.figure == picture.figure and row.row.x is not None and row.value is not None:
                series.setdefault(row.row.series, []).append((row.row.x, row.value))
    if series:
        title = f"Figure {picture.figure}: {picture.title}"
        yield Drawing(paper.name, title, picture.x, picture.y, series, claimed, log=picture.log)


def _numbers(
    figure: str, rows: Sequence[FilledRow], fits: Sequence[FittedFact]
) -> Iterator[tuple[Row | Fit, float | None]]:
    """Yield the paper's numbers in a figure, of rows and of fits."""
    yield from ((row.row, row.row.claimed) for row in rows if row.row.figure == figure)
    yield from ((fit.fit, fit.fit.claimed) for fit in fits if fit.fit.figure == figure)


def _bars(paper: Paper, figure: str, rows: Sequence[FilledRow], fits: Sequence[FittedFact]) -> Iterator[Bars]:
    """Yield a bar chart for each unit with enough numbers without an x."""
    numbers = [
        (row.row.unit, row.row.quantity, row.row.claimed, row.value, row.origin_kind)
        for row in rows
        if row.row.figure == figure and row.row.x is None
    ]
    numbers += [
        (fit.fit.unit, f"{fit.fit.claim} (fitted)", fit.fit.claimed, fit.value, OriginKind.FITTED.value)
        for fit in fits
        if fit.fit.figure == figure and fit.fit.x is None and fit.fit.claimed is not None
    ]
    for unit in dict.fromkeys(unit for unit, *_ in numbers):
        unit_numbers = [
            (quantity, claimed, value, origin_kind)
            for number_unit, quantity, claimed, value, origin_kind in numbers
            if number_unit == unit
        ]
        if len(unit_numbers) >= _MIN_BARS:
            yield Bars(paper.name, f"{_title(figure)}, in {unit}", unit, unit_numbers)


def _title(figure: str) -> str:
    """Return a title: ``12`` names a figure, ``table-1`` a table, ``section-V`` a section."""
    return f"Figure {figure}" if figure[0].isdigit() else figure.replace("-", " ").capitalize()
