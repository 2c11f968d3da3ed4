"""A little SVG: a canvas, and axes that know where a value lies. Colours are the page's CSS classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

TICKED_APART = 6  # from this ratio on a logarithmic axis has other ticks than a linear one


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic map of [low, high] to the canvas' [start, stop]."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where ``value`` lies on the canvas; values outside lie on the nearer end."""
        low, high, value = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.stop - self.start)

    def ticks(self, count: int = 6) -> list[float]:
        """About ``count`` round values inside the axis; powers of ten on a logarithmic one that has three."""
        if self.log and self.high / self.low > TICKED_APART:
            first, last = (math.floor(math.log10(value)) for value in (self.low, self.high))
            ticks = [k * 10.0**e for e in range(first, last + 1) for k in (1, 2, 5)]
            powers, ticks = ([t for t in each if self.low <= t <= self.high] for each in (ticks[::3], ticks))
            return powers if len(powers) >= 3 else ticks
        span = self.high - self.low
        if span <= 0:
            return [self.low]
        rough = span / count
        step = 10 ** math.floor(math.log10(rough))
        step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def number(value: float) -> str:
    """A tick's text: as few digits as it needs, thousands apart; powers of ten for what is huge."""
    if 1000 <= abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.6g}"


class Canvas:
    """Collects elements; ``svg()`` is the drawing, as wide as the page allows."""

    def __init__(self, width: float, height: float, label: str):
        self.width, self.height, self.label = width, height, label
        self._parts: list[str] = []

    def _add(self, element: str, css: str, title: str, **attributes: float | str) -> None:
        shown = " ".join(
            f'{name.replace("_", "-")}="{round(value, 2) if isinstance(value, float) else escape(str(value))}"'
            for name, value in attributes.items()
        )
        inner = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(f'<{element} class="{css}" {shown}>{inner}</{element}>')

    def rect(self, x: float, y: float, width: float, height: float, css: str, title: str = "") -> None:
        """A rectangle with slightly round corners."""
        self._add("rect", css, title, x=x, y=y, width=max(width, 0.0), height=height, rx=1.5)

    def line(self, start: Point, end: Point, css: str, title: str = "") -> None:
        """A straight line."""
        self._add("line", css, title, x1=start[0], y1=start[1], x2=end[0], y2=end[1])

    def polyline(self, points: Sequence[Point], css: str, title: str = "") -> None:
        """A line through points."""
        self._add("polyline", css, title, points=" ".join(f"{x:.2f},{y:.2f}" for x, y in points))

    def circle(self, centre: Point, radius: float, css: str, title: str = "") -> None:
        """A circle."""
        self._add("circle", css, title, cx=centre[0], cy=centre[1], r=radius)

    def text(self, x: float, y: float, text: str, css: str = "tick", anchor: str = "start") -> None:
        """A line of text on the baseline ``y``; ``anchor`` is start, middle or end."""
        self._parts.append(
            f'<text class="{css}" x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def x_axis(self, axis: Axis, y: float, label: str, *, top: float | None = None, count: int = 8) -> None:
        """Ticks and their values below ``y``, a label under them; grid lines up to ``top``."""
        for tick in axis.ticks(count):
            x = axis(tick)
            self.line((x, y if top is None else top), (x, y), "grid")
            self.text(x, y + 16, number(tick), anchor="middle")
        self.line((axis.start, y), (axis.stop, y), "axis")
        self.text((axis.start + axis.stop) / 2, y + 34, label, "label", "middle")

    def y_axis(self, axis: Axis, x: float, label: str, *, right: float, count: int = 5) -> None:
        """Grid lines from ``x`` to ``right`` with their values, the label above the axis."""
        for tick in axis.ticks(count):
            self.line((x, axis(tick)), (right, axis(tick)), "grid")
            self.text(x - 8, axis(tick) + 4, number(tick), anchor="end")
        self.text(8, axis.stop - 16, label, "label")

    def svg(self) -> str:
        """The drawing as an inline element."""
        return (
            f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(self.label)}">'
            f"{''.join(self._parts)}</svg>"
        )
