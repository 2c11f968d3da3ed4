"""Report page of ``fanin reproduce``: for each paper a table, a chart of ratios, and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fanin.evaluation.origins.kinds import OriginKind
from fanin.report.chart import Axis, Bar, Chart
from fanin.report.html import fill
from fanin.report.palette import STYLES, Style

Points = Sequence[tuple[float, float]]

#: Style of a bar, by the origin of fanin's number.
_KIND_STYLES = {
    OriginKind.RTL: STYLES["run"],
    OriginKind.SYNTHESIS: STYLES["luts"],
    OriginKind.GOLDEN: STYLES["golden"],
    OriginKind.TIMED: STYLES["update"],
    OriginKind.PLAN: STYLES["sum"],
    OriginKind.HOST: STYLES["communication"],
    OriginKind.QUOTED: STYLES["planned"],
    OriginKind.FITTED: STYLES["planned"],
    OriginKind.DERIVED_QUOTED: STYLES["waiting"],
    OriginKind.DERIVED: STYLES["overhead"],
}
_PAPER_STYLE = Style("ink")
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
    """Row of the table as text.

    - ``figure``, ``section``: place of the number in the paper.
    - ``quantity``: description of the number.
    - ``claimed``, ``measured``: the paper's number and fanin's, with unit.
    - ``ratio``: fanin's number divided by the paper's; None without a number.
    - ``origin_kind``, ``inputs``: kind of the number's origin, and its quoted and fitted inputs.
    - ``command``: command line that prints the figures.
    - ``formula``: formula of the number from the figures.
    - ``seconds``: duration of the command in s; None: not measured.
    - ``explanation``: explanation of the difference.
    """

    paper: str
    title: str
    figure: str
    quantity: str
    section: str
    claimed: str
    measured: str
    ratio: float | None
    origin_kind: str
    inputs: str
    command: str
    formula: str
    seconds: float | None
    explanation: str


@dataclass(frozen=True)
class Fact:
    """A number of a paper and a model's value for it, as text.

    - ``kind``: fitted, derived (by algebra) or predicted.
    - ``quantity``: description of the number.
    - ``claimed``, ``computed``: the paper's number and the model's, with unit.
    - ``error``: relative error of the model's number, in per cent.
    - ``inputs``: fitted inputs, or the numbers from which the fact follows.
    """

    paper: str
    model: str
    kind: str
    quantity: str
    claimed: str
    computed: str
    error: str
    inputs: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of a table row under ``FACT_HEAD``."""
        return (self.model, self.kind, self.quantity, self.claimed, self.computed, self.error, self.inputs)


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
    """Bar chart of a figure's numbers of one unit.

    ``numbers``: name, paper's number, fanin's number (None: not measured), kind of origin.
    """

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
    close = sum(line.ratio is not None and 0.9 <= line.ratio <= 1.1 for line in lines)
    return fill(
        "reproduction.html.j2",
        title="Five papers, number by number",
        whole=filled == len(lines),
        verdict=f"{filled} of {len(lines)} rows are filled",
        headline=[("rows filled", f"{filled}"), ("within 10 % of the paper", f"{close}")],
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
    paper_lines = [line for line in lines if line.paper == name]
    numbers = command_numbers(lines)
    return {
        "name": name,
        "title": paper_lines[0].title,
        "ratios": _ratios(paper_lines),
        "rows": [ROW_HEAD, *(row_cells(line, numbers[line.command]) for line in paper_lines)],
        "drawings": [_chart(drawing) for drawing in drawings if drawing.paper == name],
        "facts": [FACT_HEAD, *(fact.cells for fact in facts if fact.paper == name)],
        "not_here": document["not_here"][name],
    }


def command_numbers(lines: Sequence[Line]) -> dict[str, int]:
    """Return the number of each command on the page."""
    return {command: n for n, command in enumerate(dict.fromkeys(line.command for line in lines), start=1)}


def row_cells(line: Line, command: int) -> tuple[str, ...]:
    """Return the cells of a row under ``ROW_HEAD``. ``command``: number of the command."""
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    middle_cells = (
        line.quantity,
        line.claimed,
        line.measured,
        ratio,
        line.origin_kind,
        line.inputs,
        line.section,
    )
    return (line.figure, *middle_cells, f"{command}", line.formula, line.explanation)


def _ratios(lines: Sequence[Line]) -> Chart:
    """Return a chart of fanin's number divided by the paper's, with a bar per row."""
    names = [f"{line.figure}: {line.quantity}" for line in lines]
    maximum = max((line.ratio for line in lines if line.ratio is not None), default=1.0)
    axis = Axis("ours over the paper's", "~g", ".2f", ends=(0.0, 1.05 * max(maximum, 1.0)))
    chart = Chart("Ours over the paper's", axis, rows=names, bars="overlay")
    for origin_kind in dict.fromkeys(line.origin_kind for line in lines):
        chart.bars(origin_kind, _bars(lines, origin_kind), _KIND_STYLES[OriginKind(origin_kind)])
    chart.mark(1.0, "the paper")
    return chart


def _bars(lines: Sequence[Line], origin_kind: str) -> Iterable[Bar]:
    for position, line in enumerate(lines):
        if line.origin_kind == origin_kind and line.ratio is not None:
            hint = f"{line.quantity}: {line.measured}, the paper: {line.claimed}"
            yield Bar(position, line.ratio, hint, text=f"{line.ratio:.2f}")


def _chart(drawing: Drawing | Bars) -> Chart:
    return _line_chart(drawing) if isinstance(drawing, Drawing) else _bar_chart(drawing)


def _line_chart(drawing: Drawing) -> Chart:
    """Return a chart with a line per measured series, and open diamonds for the paper's numbers."""
    chart = Chart(drawing.title, Axis(drawing.x, log=drawing.log), Axis(drawing.y, "~g", log=drawing.log))
    names = dict.fromkeys((*drawing.series, *drawing.claimed))
    for name, colour in zip(names, _COLOURS * 3, strict=False):
        if name in drawing.series:
            chart.line(name, drawing.series[name], Style(colour))
        if name in drawing.claimed:
            chart.points(f"the paper: {name}" if name else "the paper", drawing.claimed[name], Style(colour))
    return chart


def _bar_chart(bars: Bars) -> Chart:
    """Return a chart with fanin's numbers as bars, coloured by origin, and the paper's as open diamonds."""
    rows = [quantity for quantity, *_ in bars.numbers]
    chart = Chart(bars.title, Axis(bars.unit, "~g", ".4~g"), rows=rows, bars="overlay")
    for bar_kind in dict.fromkeys(kind for *_, kind in bars.numbers):
        measured_bars = [
            Bar(
                position,
                measured,
                f"{quantity}: {measured:.4g} {bars.unit}, the paper: {claimed:g}",
                text=f"{measured:.4g}",
            )
            for position, (quantity, claimed, measured, kind) in enumerate(bars.numbers)
            if measured is not None and kind == bar_kind
        ]
        chart.bars(bar_kind, measured_bars, _KIND_STYLES[OriginKind(bar_kind)])
    claimed = [(claimed, position) for position, (_, claimed, *_) in enumerate(bars.numbers)]
    chart.points("the paper", claimed, _PAPER_STYLE)
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
