"""The papers' figures, drawn from rows and from what their commands print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fanin.evaluation.origins.kinds import How
from fanin.evaluation.reproduce.filled import Filled, Fitted
from fanin.evaluation.reproduce.page import Bars, Drawing
from fanin.evaluation.reproduce.row import Fit, Paper, Picture, Row

_LEAST = 3  # minimum count of numbers with one unit for a bar chart


def drawings(rows: Sequence[Filled], fits: Sequence[Fitted]) -> Iterator[Drawing | Bars]:
    """Yield curves for the papers' pictures, and bars for the other numbers of a figure."""
    for paper in {row.paper.name: row.paper for row in rows}.values():
        own = [row for row in rows if row.paper is paper]
        facts = [fit for fit in fits if fit.paper is paper]
        for picture in paper.pictures:
            yield from _curves(paper, picture, own, facts)
        for figure in dict.fromkeys(row.row.figure for row in own):
            yield from _bars(paper, figure, own, facts)


def _curves(
    paper: Paper, picture: Picture, rows: Sequence[Filled], fits: Sequence[Fitted]
) -> Iterator[Drawing]:
    figures = {name: v for row in rows if row.measured for name, v in row.measured.figures.items()}
    points = {name: point for row in rows if row.measured for name, point in row.measured.points.items()}
    ours = picture.series(figures, points)
    claimed: dict[str, list[tuple[float, float]]] = {}
    for place, number in _numbers(picture.figure, rows, fits):
        if place.x is not None and number is not None:
            claimed.setdefault(place.series, []).append((place.x, number))
    if not picture.patterns:
        for row in rows:
            if row.row.figure == picture.figure and row.row.x is not None and row.value is not None:
                ours.setdefault(row.row.series, []).append((row.row.x, row.value))
    if ours:
        title = f"Figure {picture.figure}: {picture.title}"
        yield Drawing(paper.name, title, picture.x, picture.y, ours, claimed, log=picture.log)


def _numbers(
    figure: str, rows: Sequence[Filled], fits: Sequence[Fitted]
) -> Iterator[tuple[Row | Fit, float | None]]:
    """Yield the paper's numbers in a figure, of rows and of fits."""
    yield from ((row.row, row.row.paper) for row in rows if row.row.figure == figure)
    yield from ((fit.fit, fit.fit.claimed) for fit in fits if fit.fit.figure == figure)


def _bars(paper: Paper, figure: str, rows: Sequence[Filled], fits: Sequence[Fitted]) -> Iterator[Bars]:
    """Yield a bar chart for each unit with enough numbers without an x."""
    found = [
        (row.row.unit, row.row.what, row.row.paper, row.value, row.how)
        for row in rows
        if row.row.figure == figure and row.row.x is None
    ]
    found += [
        (fit.fit.unit, f"{fit.fit.paper} (fitted)", fit.fit.claimed, fit.value, How.FITTED.value)
        for fit in fits
        if fit.fit.figure == figure and fit.fit.x is None and fit.fit.claimed is not None
    ]
    for unit in dict.fromkeys(unit for unit, *_ in found):
        of_it = [(what, claimed, ours, how) for its, what, claimed, ours, how in found if its == unit]
        if len(of_it) >= _LEAST:
            yield Bars(paper.name, f"{_titled(figure)}, in {unit}", unit, of_it)


def _titled(figure: str) -> str:
    """Return a title: ``12`` names a figure, ``table-1`` a table, ``section-V`` a section."""
    return f"Figure {figure}" if figure[0].isdigit() else figure.replace("-", " ").capitalize()
