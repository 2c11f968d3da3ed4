"""Curves of a training: values over epochs or over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.report.svg import Axis, Canvas, Point


def curves_chart(
    series: Mapping[str, Sequence[Point]],
    x_label: str,
    y_label: str,
    *,
    start: float,
    log: bool = False,
) -> str:
    """A line per series, the first one on top; x begins at ``start``. ``log``: of y, which is above 0 then."""
    width = 470.0
    top, bottom, left, right = 34.0, 216.0, 52.0, width - 14
    canvas = Canvas(width, 262, f"{y_label} over {x_label}")
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    x = Axis(start, max(xs), left, right)
    y = Axis(*_room(min(ys), max(ys), log), bottom, top, log)
    canvas.y_axis(y, left, y_label, right=right)
    canvas.x_axis(x, bottom, x_label, count=_ticks([start, *xs], 6))
    for index, (name, points) in reversed(list(enumerate(series.items()))):
        places = [(x(at), y(value)) for at, value in points]
        canvas.polyline(places, f"series curve{index}", name)
        for place, (at, value) in zip(places, points, strict=True):
            canvas.circle(place, 2.6, f"dot point{index}", f"{name}, {x_label} {at:.6g}: {value:.6g}")
    return canvas.svg()


def _room(low: float, high: float, log: bool) -> tuple[float, float]:
    """A little more than from ``low`` to ``high``."""
    if log:
        return low / 1.25, high * 1.25
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return low - margin, high + margin


def _ticks(values: Sequence[float], most: int) -> int:
    """How many ticks leave whole numbers whole."""
    whole = all(float(value).is_integer() for value in values)
    return max(1, min(most, round(max(values) - min(values)))) if whole else most
