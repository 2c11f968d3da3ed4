"""Charts of a page. Plotly draws them in the reader's browser (``charts.js``)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, Literal

from fanin.report.palette import Style

Point = tuple[float, float | None]

_FRAME_PX = 104.0  # height of legend, ticks and axis label, beside the rows
_MAX_SINGLE_TICKS = 12  # up to this number, every whole number has a tick
_MARK_PX = 14.0  # distance of the texts of two marks
_BAND_OPACITY = 0.2
_HATCH = {"shape": "/", "fillmode": "replace", "size": 5, "solidity": 0.55}


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis.

    - ``form``: d3's format of ticks.
    - ``exact``: d3's format of the value under the pointer.
    - ``unit``: suffix of both.
    - ``ends``: first and last value; None: determined by the series.
    - ``step``: distance of ticks, in the axis's unit; None: automatic.
    - ``names``: labels at 0, 1, … in place of numbers.
    """

    label: str
    form: str = ""
    exact: str = ""
    unit: str = ""
    log: bool = False
    ends: tuple[float, float] | None = None
    step: float | None = None
    names: Sequence[str] = ()

    @classmethod
    def share(cls, label: str, *, high: float | None = None) -> Axis:
        """Return an axis of shares, 1 written as 100 %, from 0 to ``high`` if given."""
        return cls(label, "~%", ".2%", ends=_from_0(high))

    @classmethod
    def count(cls, label: str, maximum: int, **members: Any) -> Axis:
        """Return an axis of whole numbers up to ``maximum``, with thousands separators."""
        return cls(label, ",", ",", step=1 if maximum <= _MAX_SINGLE_TICKS else None, **members)

    @classmethod
    def seconds(cls, label: str, *, high: float | None = None) -> Axis:
        """Return an axis of seconds, in ms, µs or ns where shorter, from 0 to ``high`` if given."""
        return cls(label, "~s", ".4s", "s", ends=_from_0(high))

    def layout(self) -> dict[str, Any]:
        """Return the axis in Plotly's form."""
        layout: dict[str, Any] = {
            "title": {"text": self.label},
            "tickformat": self.form,
            "exponentformat": "power",  # without ``form``; Plotly's default would write B for 10^9
            "hoverformat": self.exact,
            "ticksuffix": self.unit,
            "dtick": self.step,
        }
        if self.log:
            layout["type"] = "log"
        if self.names:
            layout |= {"tickvals": list(range(len(self.names))), "ticktext": list(self.names)}
        if self.ends:
            layout["range"] = [math.log10(end) if self.log else end for end in self.ends]
        return {key: value for key, value in layout.items() if value not in ("", None)}


def _from_0(high: float | None) -> tuple[float, float] | None:
    return None if high is None else (0.0, high)


@dataclass(frozen=True)
class Bar:
    """A bar at ``place`` with length ``size``, starting at ``begin``, in the units of the axes.

    - ``hint``: text under the pointer.
    - ``text``: text inside the bar, if there is room.
    - ``interval``: ends of a whisker, if any.
    """

    place: float
    size: float
    hint: str
    begin: float = 0.0
    text: str = ""
    opacity: float = 1.0
    interval: tuple[float, float] | None = None


class Chart:
    """A chart of series over two axes; in a template it becomes a figure.

    With a ``y`` axis it has lines, and vertical bars whose places are values of x. Without one, bars are
    horizontal in ``rows``, named from top to bottom: a bar's place is the number of its row. The legend lists
    the series in their order; the first line is drawn on top.
    """

    def __init__(
        self,
        name: str,
        x: Axis,
        y: Axis | None = None,
        *,
        rows: Sequence[str] = (),
        row: float = 24.0,
        height: float = 300.0,
        bars: Literal["group", "stack", "overlay"] = "group",
    ):
        """``row``: height of a row in px. ``height``: height of a chart without rows in px."""
        self.name, self.is_horizontal = name, y is None
        self.height = height if y else row * len(rows) + _FRAME_PX
        self._series: list[dict[str, Any]] = []
        self._layout = {"xaxis": x.layout(), "yaxis": y.layout() if y else _rows(rows), "barmode": bars}
        self._shapes: list[dict[str, Any]] = []
        self._notes: list[dict[str, Any]] = []

    def line(
        self,
        name: str,
        points: Sequence[Point],
        style: Style,
        *,
        hints: Sequence[str] = (),
        up_to: Sequence[float] = (),
    ) -> None:
        """Add a line through ``points``, with a gap where y is None or not finite.

        - ``hints``: text of each point under the pointer; by default x and y.
        - ``up_to``: upper end of each point's whisker; by default none.
        """
        ys = [y if y is not None and math.isfinite(y) else None for _, y in points]
        series: dict[str, Any] = {
            "type": "scatter",
            "name": name,
            "mode": "lines+markers",
            "x": [x for x, _ in points],
            "y": ys,
            "line": {"color": _colour(style), "dash": style.dash, "width": style.width},
            "marker": {"color": _colour(style), "size": max(5.0, style.width + 3)},
            "opacity": style.opacity,
        }
        if hints:
            series |= {"hovertext": list(hints), "hoverinfo": "text"}
        if up_to:
            lengths = [top - (y or 0.0) for top, y in zip(up_to, ys, strict=True)]
            series["error_y"] = {"type": "data", "symmetric": False, "array": lengths}
            series["error_y"] |= {"arrayminus": [0.0] * len(lengths), "thickness": 1.5}
        self._series.insert(0, series)

    def points(self, name: str, points: Sequence[Point], style: Style) -> None:
        """Add open diamonds without a line, for reference numbers beside the chart's own."""
        marker = {"color": _colour(style), "symbol": "diamond-open", "size": 11, "line": {"width": 2}}
        series = {"type": "scatter", "name": name, "mode": "markers", "marker": marker}
        self._series.insert(0, series | {"x": [x for x, _ in points], "y": [y for _, y in points]})

    def band(self, name: str, points: Sequence[tuple[float, float, float]], style: Style) -> None:
        """Add an area behind a line: for each point x, and the lower and upper y."""
        back = points[::-1]
        series = {
            "type": "scatter",
            "name": name,
            "mode": "lines",
            "x": [x for x, _, _ in (*points, *back)],
            "y": [*(high for _, _, high in points), *(low for _, low, _ in back)],
            "fill": "toself",
            "fillcolor": _colour(style),
            "line": {"width": 0},
            "opacity": _BAND_OPACITY,
            "hoverinfo": "skip",
            "showlegend": False,
        }
        self._series.insert(0, series)

    def bars(self, name: str, bars: Iterable[Bar], style: Style, *, width: float | None = None) -> None:
        """Add bars; ``width`` is their thickness, in rows or in x, by default as large as there is room."""
        bars = list(bars)
        length_axis, place_axis = ("x", "y") if self.is_horizontal else ("y", "x")
        series: dict[str, Any] = {
            "type": "bar",
            "name": name,
            "orientation": "h" if self.is_horizontal else "v",
            place_axis: [bar.place for bar in bars],
            length_axis: [bar.size for bar in bars],
            "hovertext": [bar.hint for bar in bars],
            "hoverinfo": "text",
            "marker": {"color": _colour(style)} | ({"pattern": _HATCH} if style.hatched else {}),
            "opacity": style.opacity,
        }
        if any(bar.opacity != 1 for bar in bars):
            series["marker"]["opacity"] = [bar.opacity for bar in bars]
        if any(bar.begin for bar in bars):
            series["base"] = [bar.begin for bar in bars]
        if any(bar.text for bar in bars) and not style.hatched:  # text on hatching is not legible
            series["text"] = [bar.text for bar in bars]
        if any(bar.interval for bar in bars):
            ends = [bar.interval or (bar.size, bar.size) for bar in bars]
            whisker = {"type": "data", "symmetric": False, "thickness": 1.5, "color": "var(--ink)"}
            whisker["array"] = [high - bar.size for bar, (_, high) in zip(bars, ends, strict=True)]
            whisker["arrayminus"] = [bar.size - low for bar, (low, _) in zip(bars, ends, strict=True)]
            series[f"error_{length_axis}"] = whisker
        if width is not None:
            series["width"] = width
        self._series.append(series)

    def mark(self, x: float, text: str) -> None:
        """Add a vertical line with ``text`` above it; texts of several marks are stacked."""
        self._shapes.append(_dashed_line({"x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}))
        place = {"x": x, "y": 1, "yref": "paper", "xanchor": "center", "yanchor": "bottom"}
        self._notes.append({"text": text, "showarrow": False, "yshift": _MARK_PX * len(self._notes), **place})

    def level(self, y: float) -> None:
        """Add a horizontal line."""
        self._shapes.append(_dashed_line({"x0": 0, "x1": 1, "xref": "paper", "y0": y, "y1": y}))

    def figure(self) -> dict[str, Any]:
        """Return the figure for Plotly; its colours are names from the style sheet, such as ``var(--blue)``."""
        lines = all(series["type"] == "scatter" for series in self._series)
        layout: dict[str, Any] = {
            **self._layout,
            "legend": {"traceorder": "reversed" if lines else "normal"},
            "hovermode": "x unified" if lines and "hovertext" not in self._series[0] else "closest",
        }
        if self._shapes:
            layout |= {"shapes": self._shapes, "annotations": self._notes}
            layout["margin"] = {"t": 8 + _MARK_PX * len(self._notes)}
        return {"data": self._series, "layout": layout}

    def __html__(self) -> str:
        """Return the figure as HTML, with its data as JSON for ``charts.js``."""
        text = json.dumps(self.figure(), separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text = text.replace("<", r"\u003c")  # a name must not end the script element
        return (
            f'<figure class="chart" aria-label="{escape(self.name)}">'
            f'<script type="application/json">{text}</script><div style="height: {self.height:g}px">'
            "<noscript>This chart needs JavaScript; the tables do not.</noscript></div></figure>"
        )


def _rows(names: Sequence[str]) -> dict[str, Any]:
    """Return an axis of names, the first at the top."""
    return {
        "tickvals": list(range(len(names))),
        "ticktext": list(names),
        "range": [len(names) - 0.5, -0.5],
        "showgrid": False,
    }


def _colour(style: Style) -> str:
    return f"var(--{style.colour})"


def _dashed_line(ends: dict[str, Any]) -> dict[str, Any]:
    return {"type": "line", "line": {"color": "var(--ink)", "width": 1.2, "dash": "dash"}, **ends}
