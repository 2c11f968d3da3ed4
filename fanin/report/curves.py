"""Curves of a training: values over epochs or over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.report.chart import Axis, Chart, Point
from fanin.report.palette import STYLES


def curves_chart(series: Mapping[str, tuple[str, Sequence[Point]]], x: Axis, y: Axis) -> Chart:
    """Return a chart with a line per series; the first one is on top.

    - ``series``: by name, the key of its style in ``STYLES``, and its points.
    """
    chart = Chart(f"{y.label} over {x.label}", x, y)
    for name, (style, points) in series.items():
        chart.line(name, points, STYLES[style])
    return chart


def epoch_axis(epochs: int) -> Axis:
    """Return the axis for ``epochs`` epochs."""
    return Axis.count("epoch", epochs)


def loss_axis(label: str = "loss", *, log: bool = False) -> Axis:
    """Return an axis for losses and similar values, with six digits under the pointer."""
    return Axis(label, exact=".6g", log=log)
