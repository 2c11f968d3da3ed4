"""Figures of benchmarks: series of points, which become results, JSON and a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from fanin.base.scratch import output_file, write_file
from fanin.evaluation.bench.result import Result
from fanin.evaluation.origins.graph import identifier
from fanin.runs.output import check_writable

_MARKERS = "osD^vPX*<>" * 2
_OFFSET = 0.12  # x offset between series, as a fraction of the distance between two names
_MAX_ROW = 3  # figures side by side; more are drawn in two columns


@dataclass
class Figure:
    """Figure with points (x, y) by series. Its fields are the keys of the JSON file.

    - ``over``: if not empty, a series is named ``kind, variant``. Series of one kind share a marker. Series of
      the variant ``over`` are dotted and black, because they may cover others.
    - ``apart``: True draws the series with an x offset from one another; every x must then have a name.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    log_x: bool = True
    x_names: list[str] = field(default_factory=list)  # names of x = 0, 1, …: points without lines
    log_y: bool = False
    y_from: float = 0.0  # lower end of a linear y axis
    note: str = ""
    over: str = ""
    apart: bool = False
    id: str = ""

    def add(self, series: str, x: float, y: float) -> Result:
        """Add a point, and return it as a result. Its identifier joins the figure's, the series and ``x``."""
        self.series.setdefault(series, []).append((x, y))
        name = f"{self.name}: {series}, {self.x_label} {x:g}"
        point = identifier(self.id, series, f"{x:g}") if self.id else ""
        return Result(name, y, self.y_label, id=point, curve=series, x=x)


def outputs(name: str, folder: Path) -> tuple[Path, Path]:
    """Return the paths of a figure's JSON and PNG. Raises InputError if they cannot be written.

    Raises ModuleNotFoundError without matplotlib, so that the error precedes the measurements.
    """
    import matplotlib  # noqa: F401  (main says how to install it)

    json_path, png_path = (folder / f"{name}.{kind}" for kind in ("json", "png"))
    for path in (json_path, png_path):
        check_writable(path)
    return json_path, png_path


def write(figures: Sequence[Figure], paths: tuple[Path, Path]) -> None:
    """Write figures as JSON and one PNG: up to three side by side, more in two columns.

    They must have the same series, and share the y axis.
    """
    values: list[dict[str, Any]] = [vars(figure) for figure in figures]
    with output_file(paths[1]) as picture:  # complete before the values replace earlier ones
        _plot(figures, picture)
        picture.flush()
        write_file(paths[0], json.dumps(values[0] if len(values) == 1 else values, indent=2) + "\n")


def _plot(figures: Sequence[Figure], file: BinaryIO) -> None:
    import matplotlib

    matplotlib.use("Agg")  # needs no display
    from matplotlib import pyplot

    columns = len(figures) if len(figures) <= _MAX_ROW else 2
    rows = math.ceil(len(figures) / columns)
    size = (7, 4.5) if len(figures) == 1 else (4.5 * columns, 4.5 if rows == 1 else 3.5 * rows)
    drawing = pyplot.figure(figsize=size, layout="constrained")
    grid = drawing.subplots(rows, columns, sharey=True, squeeze=False)
    for figure, axes in zip(figures, grid.flat, strict=False):
        _draw(figure, axes)
    for axes in grid.flat[len(figures) :]:
        axes.set_axis_off()
    for row in grid:
        row[0].set_ylabel(figures[0].y_label)
    grid[0, -1].legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    drawing.text(0.01, -0.02, figures[-1].note, fontsize=7, va="top", wrap=True)
    drawing.savefig(file, format="png", dpi=150, bbox_inches="tight")
    pyplot.close(drawing)


def _draw(figure: Figure, axes: Any) -> None:
    """Draw a figure's series, ticks and scales."""
    name_parts = {name: name.rpartition(", ") if figure.over else (name, "", "") for name in figure.series}
    markers = dict(zip(dict.fromkeys(kind for kind, *_ in name_parts.values()), _MARKERS, strict=False))
    ticks = sorted({x for points in figure.series.values() for x, _ in points})
    names = [f"{tick:g}" for tick in ticks] if figure.apart else figure.x_names
    offsets = _x_offsets(figure, {name: kind for name, (kind, *_) in name_parts.items()})
    for name, points in figure.series.items():
        kind, _, variant = name_parts[name]
        if names:
            points = [(offsets[name] + (ticks.index(x) if figure.apart else x), y) for x, y in points]
        (line,) = axes.plot(*zip(*points, strict=True), marker=markers[kind], label=name, markersize=5)
        if figure.over and variant == figure.over:
            line.set(color="black", linestyle=":", markerfacecolor="none", markersize=8)
        if names:
            line.set(linestyle="none")
    if names:
        axes.set_xticks(range(len(names)), names)
    elif figure.log_x:
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set(xlabel=figure.x_label, title=figure.title)
    if figure.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=figure.y_from, auto=None)  # the next figure may raise the shared top
    axes.grid(alpha=0.3)


def _x_offsets(figure: Figure, kinds: dict[str, str]) -> dict[str, float]:
    """Return the x offset of each series: the same for series of one kind, except with ``apart``."""
    order = list(dict.fromkeys(kinds.values()))
    positions = {name: order.index(kind) for name, kind in kinds.items()}
    if figure.apart:
        positions = {name: n for n, name in enumerate(sorted(positions, key=positions.__getitem__))}
    middle = max(positions.values()) / 2
    return {name: _OFFSET * (position - middle) for name, position in positions.items()}
