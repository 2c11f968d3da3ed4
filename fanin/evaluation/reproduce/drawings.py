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
    for paper in {filled.paper.name: filled.paper for filled in rows}.values():
        paper_rows = [filled for filled in rows if filled.paper is paper]
        paper_fits = [fitted for fitted in fits if fitted.paper is paper]
        for picture in paper.pictures:
            yield from _curves(paper, picture, paper_rows, paper_fits)
        for figure in dict.fromkeys(filled.row.figure for filled in paper_rows):
            yield from _bars(paper, figure, paper_rows, paper_fits)


def _curves(
    paper: Paper, picture: Picture, rows: Sequence[FilledRow], fits: Sequence[FittedFact]
) -> Iterator[Drawing]:
    figures = {name: value for filled in rows if filled.output for name, value in filled.output.figures.items()}
    points = {name: point for filled in rows if filled.output for name, point in filled.output.points.items()}
    series = picture.series(figures, points)
    claimed: dict[str, list[tuple[float, float]]] = {}
    for source, number in _numbers(picture.figure, rows, fits):
        if source.x is not None and number is not None:
            claimed.setdefault(source.series, []).append((source.x, number))
    if not picture.patterns:
        for filled in rows:
            if filled.row.figure == picture.figure and filled.row.x is not None and filled.value is not None:
                series.setdefault(filled.row.series, []).append((filled.row.x, filled.value))
    if series:
        title = f"Figure {picture.figure}: {picture.title}"
        yield Drawing(paper.name, title, picture.x, picture.y, series, claimed, log=picture.log)


def _numbers(
    figure: str, rows: Sequence[FilledRow], fits: Sequence[FittedFact]
) -> Iterator[tuple[Row | Fit, float | None]]:
    """Yield the paper's numbers in a figure, of rows and of fits."""
    yield from ((filled.row, filled.row.claimed) for filled in rows if filled.row.figure == figure)
    yield from ((fitted.fit, fitted.fit.claimed) for fitted in fits if fitted.fit.figure == figure)


def _bars(paper: Paper, figure: str, rows: Sequence[FilledRow], fits: Sequence[FittedFact]) -> Iterator[Bars]:
    """Yield a bar chart for each unit with enough numbers without an x."""
    numbers = [
        (filled.row.unit, filled.row.quantity, filled.row.claimed, filled.value, filled.origin_kind)
        for filled in rows
        if filled.row.figure == figure and filled.row.x is None
    ]
    numbers += [
        (
            fitted.fit.unit,
            f"{fitted.fit.claim} (fitted)",
            fitted.fit.claimed,
            fitted.value,
            OriginKind.FITTED.value,
        )
        for fitted in fits
        if fitted.fit.figure == figure and fitted.fit.x is None and fitted.fit.claimed is not None
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
