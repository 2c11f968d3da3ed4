"""The page of ``fanin reproduce``: a table for each paper, ratios at a glance, and figures redrawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fanin.report.chart import Axis, Bar, Chart
from fanin.report.html import fill
from fanin.report.palette import STYLES, Style

Points = Sequence[tuple[float, float]]

#: What a ratio's colour says of where our number comes from.
_HOWS = {
    "RTL": STYLES["run"],
    "synthesis": STYLES["luts"],
    "model held to RTL": STYLES["update"],
    "plan": STYLES["sum"],
    "model": STYLES["overhead"],
}
_COLOURS = ("blue", "orange", "green", "purple", "sky", "red", "yellow", "grey")
_HEAD = ("what", "claimed", "found", "ratio", "how", "section", "why they differ")


@dataclass(frozen=True)
class Line:
    """A row, in words; ``ratio``: ours over the paper's, None where there is no number of ours."""

    paper: str
    title: str
    figure: str
    what: str
    section: str
    claimed: str
    found: str
    ratio: float | None
    how: str
    command: str
    seconds: float | None
    why: str


@dataclass(frozen=True)
class Drawing:
    """A figure: our series."""

    paper: str
    title: str
    x: str
    y: str
    series: Mapping[str, Points]
    log: bool = False


def page(lines: Sequence[Line], drawings: Sequence[Drawing], document: Mapping[str, Any]) -> str:
    """The whole page; ``document``: what ``--json`` prints."""
    filled = sum(line.ratio is not None for line in lines)
    near = sum(line.ratio is not None and 0.9 <= line.ratio <= 1.1 for line in lines)
    return fill(
        "reproduction.html.j2",
        title="Five papers, number by number",
        whole=filled == len(lines),
        verdict=f"{filled} of {len(lines)} rows are filled",
        headline=[("rows filled", f"{filled}"), ("within 10 % of the paper", f"{near}")],
        quick=document["quick"],
        papers=[
            _paper(name, lines, drawings, document) for name in dict.fromkeys(line.paper for line in lines)
        ],
        commands=_commands(lines),
    )


def _paper(
    name: str, lines: Sequence[Line], drawings: Iterable[Drawing], document: Mapping[str, Any]
) -> dict[str, Any]:
    own = [line for line in lines if line.paper == name]
    return {
        "name": name,
        "title": own[0].title,
        "ratios": _ratios(own),
        "rows": [("figure", *_HEAD), *(_cells(line) for line in own)],
        "drawings": [_drawn(drawing) for drawing in drawings if drawing.paper == name],
        "fits": [
            ("model", "what is fitted", "to"),
            *((fit["model"], fit["what"], fit["claimed"]) for fit in document["fits"] if fit["paper"] == name),
        ],
        "not_here": document["not_here"][name],
    }


def _cells(line: Line) -> tuple[str, ...]:
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    return (line.figure, line.what, line.claimed, line.found, ratio, line.how, line.section, line.why)


def _ratios(lines: Sequence[Line]) -> Chart:
    """Ours over the paper's, a bar for each row."""
    names = [f"{line.figure}: {line.what}" for line in lines]
    most = max((line.ratio for line in lines if line.ratio is not None), default=1.0)
    axis = Axis("ours over the paper's", "~g", ".2f", ends=(0.0, 1.05 * max(most, 1.0)))
    chart = Chart("Ours over the paper's", axis, rows=names, bars="overlay")
    for how in dict.fromkeys(line.how for line in lines):
        chart.bars(how, _bars(lines, how), _HOWS[how])
    chart.mark(1.0, "the paper")
    return chart


def _bars(lines: Sequence[Line], how: str) -> Iterable[Bar]:
    for place, line in enumerate(lines):
        if line.how == how and line.ratio is not None:
            hint = f"{line.what}: {line.found}, the paper: {line.claimed}"
            yield Bar(place, line.ratio, hint, text=f"{line.ratio:.2f}")


def _drawn(drawing: Drawing) -> Chart:
    chart = Chart(drawing.title, Axis(drawing.x, log=drawing.log), Axis(drawing.y, "~g", log=drawing.log))
    for (name, points), colour in zip(drawing.series.items(), _COLOURS * 3, strict=False):
        chart.line(name, points, Style(colour))
    return chart


def _commands(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Each command once, with its time and its rows."""
    seconds = {line.command: line.seconds for line in lines}
    rows = {command: sum(line.command == command for line in lines) for command in seconds}
    cells = [
        (command, f"{rows[command]}", "" if took is None else f"{took:,.0f} s")
        for command, took in seconds.items()
    ]
    return [("command", "rows", "time"), *cells]
