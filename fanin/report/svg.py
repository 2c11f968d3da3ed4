"""Minimal SVG for drawings that no charting library supports. Colours are the page's CSS classes."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Point = tuple[float, float]


class Canvas:
    """Collects elements; ``svg()`` returns the drawing, as wide as the page allows."""

    def __init__(self, width: float, height: float, label: str):
        self.width, self.height, self.label = width, height, label
        self._parts: list[str] = []

    def _add(self, element: str, css: str, title: str, **attributes: float | str) -> None:
        text = " ".join(
            f'{name.replace("_", "-")}="{round(value, 2) if isinstance(value, float) else escape(str(value))}"'
            for name, value in attributes.items()
        )
        inner = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(f'<{element} class="{css}" {text}>{inner}</{element}>')

    def rect(self, x: float, y: float, width: float, height: float, css: str, title: str = "") -> None:
        """Add a rectangle with slightly rounded corners."""
        self._add("rect", css, title, x=x, y=y, width=max(width, 0.0), height=height, rx=1.5)

    def line(self, start: Point, end: Point, css: str, title: str = "") -> None:
        """Add a straight line."""
        self._add("line", css, title, x1=start[0], y1=start[1], x2=end[0], y2=end[1])

    def polyline(self, points: Sequence[Point], css: str, title: str = "") -> None:
        """Add a line through points."""
        self._add("polyline", css, title, points=" ".join(f"{x:.2f},{y:.2f}" for x, y in points))

    def circle(self, centre: Point, radius: float, css: str, title: str = "") -> None:
        """Add a circle."""
        self._add("circle", css, title, cx=centre[0], cy=centre[1], r=radius)

    def text(self, x: float, y: float, text: str, css: str = "tick", anchor: str = "start") -> None:
        """Add a line of text on the baseline ``y``; ``anchor`` is start, middle or end."""
        self._parts.append(
            f'<text class="{css}" x="{x:.2f}" y="{y:.2f}" text-anchor="{anchor}">{escape(text)}</text>'
        )

    def svg(self) -> str:
        """Return the drawing as an inline element."""
        box = f'viewBox="0 0 {self.width:g} {self.height:g}"'
        name = f'role="img" aria-label="{escape(self.label)}"'
        return f'<svg class="drawing" {box} {name}>{"".join(self._parts)}</svg>'
