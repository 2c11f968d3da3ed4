"""The page of ``fanin reproduce``: a table for each paper, ratios at a glance, and figures redrawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fanin.evaluation.origins.kinds import How
from fanin.report.chart import Axis, Bar, Chart
from fanin.report.html import fill
from fanin.report.palette import STYLES, Style

Points = Sequence[tuple[float, float]]

#: Colour of a ratio, by how our number came about.
_HOWS = {
    How.RTL: STYLES["run"],
    How.SYNTHESIS: STYLES["luts"],
    How.GOLDEN: STYLES["golden"],
    How.TIMED: STYLES["update"],
    How.PLAN: STYLES["sum"],
    How.HOST: STYLES["communication"],
    How.QUOTED: STYLES["planned"],
    How.FITTED: STYLES["planned"],
    How.DERIVED_QUOTED: STYLES["waiting"],
    How.DERIVED: STYLES["overhead"],
}
_PAPER = Style("ink")
_COLOURS = ("blue", "orange", "green", "purple", "sky", "red", "yellow", "grey")
#: Headers of the tables of rows and of models' facts.
ROW_HEAD = (
    *("figure", "what", "claimed", "found", "ratio", "how", "inputs", "section"),
    *("command", "what of it", "why they differ"),
)
FACT_HEAD = (
    "model",
    "",
    "number of the paper",
    "claimed",
    "found",
    "error",
    "fitted inputs, or what it follows from",
)


@dataclass(frozen=True)
class Line:
    """Row of the table as text. ``ratio``: fanin's number divided by the paper's; None without a number."""

    paper: str
    title: str
    figure: str
    what: str
    section: str
    claimed: str
    found: str
    ratio: float | None
    how: str
    inputs: str
    command: str
    taken: str
    seconds: float | None
    why: str


@dataclass(frozen=True)
class Fact:
    """A number of a paper beside a model's, in words; ``kind``: fitted, derived (by algebra) or predicted."""

    paper: str
    model: str
    kind: str
    what: str
    claimed: str
    found: str
    error: str
    inputs: str

    @property
    def cells(self) -> tuple[str, ...]:
        """As ``FACT_HEAD`` has them."""
        return (self.model, self.kind, self.what, self.claimed, self.found, self.error, self.inputs)


@dataclass(frozen=True)
class Drawing:
    """Figure with a numeric x axis: fanin's series, and the paper's points."""

    paper: str
    title: str
    x: str
    y: str
    series: Mapping[str, Points]
    claimed: Mapping[str, Points]
    log: bool = False


@dataclass(frozen=True)
class Bars:
    """Numbers of a figure in one unit: name, claimed, found (None: not measured), kind of origin."""

    paper: str
    title: str
    unit: str
    numbers: Sequence[tuple[str, float, float | None, str]]


def page(
    lines: Sequence[Line],
    facts: Sequence[Fact],
    drawings: Sequence[Drawing | Bars],
    document: Mapping[str, Any],
) -> str:
    """Return the page as HTML. ``document``: the object that ``--json`` prints."""
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
            _paper(name, lines, facts, drawings, document)
            for name in dict.fromkeys(line.paper for line in lines)
        ],
        commands=command_table(lines),
    )


def _paper(
    name: str,
    lines: Sequence[Line],
    facts: Sequence[Fact],
    drawings: Iterable[Drawing | Bars],
    document: Mapping[str, Any],
) -> dict[str, Any]:
    own = [line for line in lines if line.paper == name]
    numbers = command_numbers(lines)
    return {
        "name": name,
        "title": own[0].title,
        "ratios": _ratios(own),
        "rows": [ROW_HEAD, *(row_cells(line, numbers[line.command]) for line in own)],
        "drawings": [_drawn(drawing) for drawing in drawings if drawing.paper == name],
        "facts": [FACT_HEAD, *(fact.cells for fact in facts if fact.paper == name)],
        "not_here": document["not_here"][name],
    }


def command_numbers(lines: Sequence[Line]) -> dict[str, int]:
    """Return the number of each command on the page."""
    return {command: n for n, command in enumerate(dict.fromkeys(line.command for line in lines), start=1)}


def row_cells(line: Line, command: int) -> tuple[str, ...]:
    """Return the cells of a row under ``ROW_HEAD``. ``command``: number of the command."""
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    found = (line.what, line.claimed, line.found, ratio, line.how, line.inputs, line.section)
    return (line.figure, *found, f"{command}", line.taken, line.why)


def _ratios(lines: Sequence[Line]) -> Chart:
    """Return a chart of fanin's number divided by the paper's, with a bar per row."""
    names = [f"{line.figure}: {line.what}" for line in lines]
    most = max((line.ratio for line in lines if line.ratio is not None), default=1.0)
    axis = Axis("ours over the paper's", "~g", ".2f", ends=(0.0, 1.05 * max(most, 1.0)))
    chart = Chart("Ours over the paper's", axis, rows=names, bars="overlay")
    for how in dict.fromkeys(line.how for line in lines):
        chart.bars(how, _bars(lines, how), _HOWS[How(how)])
    chart.mark(1.0, "the paper")
    return chart


def _bars(lines: Sequence[Line], how: str) -> Iterable[Bar]:
    for place, line in enumerate(lines):
        if line.how == how and line.ratio is not None:
            hint = f"{line.what}: {line.found}, the paper: {line.claimed}"
            yield Bar(place, line.ratio, hint, text=f"{line.ratio:.2f}")


def _drawn(drawing: Drawing | Bars) -> Chart:
    return _curves(drawing) if isinstance(drawing, Drawing) else _beside(drawing)


def _curves(drawing: Drawing) -> Chart:
    """Return a chart with a line per measured series, and open diamonds for the paper's numbers."""
    chart = Chart(drawing.title, Axis(drawing.x, log=drawing.log), Axis(drawing.y, "~g", log=drawing.log))
    names = dict.fromkeys((*drawing.series, *drawing.claimed))
    for name, colour in zip(names, _COLOURS * 3, strict=False):
        if name in drawing.series:
            chart.line(name, drawing.series[name], Style(colour))
        if name in drawing.claimed:
            chart.points(f"the paper: {name}" if name else "the paper", drawing.claimed[name], Style(colour))
    return chart


def _beside(bars: Bars) -> Chart:
    """Return a chart with fanin's numbers as bars, coloured by origin, and the paper's as open diamonds."""
    rows = [what for what, *_ in bars.numbers]
    chart = Chart(bars.title, Axis(bars.unit, "~g", ".4~g"), rows=rows, bars="overlay")
    for source in dict.fromkeys(how for *_, how in bars.numbers):
        found = [
            Bar(place, ours, f"{what}: {ours:.4g} {bars.unit}, the paper: {claimed:g}", text=f"{ours:.4g}")
            for place, (what, claimed, ours, how) in enumerate(bars.numbers)
            if ours is not None and how == source
        ]
        chart.bars(source, found, _HOWS[How(source)])
    claimed = [(claimed, place) for place, (_, claimed, *_) in enumerate(bars.numbers)]
    chart.points("the paper", claimed, _PAPER)
    return chart


def command_table(lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Return a table of the commands, with their time and number of rows."""
    seconds = {line.command: line.seconds for line in lines}
    rows = {command: sum(line.command == command for line in lines) for command in seconds}
    cells = [
        (f"{n}", command, f"{rows[command]}", "" if seconds[command] is None else f"{seconds[command]:,.0f} s")
        for command, n in command_numbers(lines).items()
    ]
    return [("", "command", "rows", "time"), *cells]
