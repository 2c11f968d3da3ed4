"""Rows with their numbers: as lines, JSON, CSV, Markdown and a page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fanin import __version__
from fanin.cli.bench.result import number
from fanin.cli.output import REPORT_FILE, REPRODUCTION, finite, write_file
from fanin.cli.output import table as columns
from fanin.cli.reproduce.measure import Measured
from fanin.cli.reproduce.row import Paper, Row
from fanin.report.reproduction import Drawing, Line, page


@dataclass(frozen=True)
class Filled:
    """A row, and what was measured for it; ``missing``: what stood in for a data set that is not at hand."""

    paper: Paper
    row: Row
    quick: bool
    measured: Measured | None
    missing: str = ""

    @cached_property
    def value(self) -> float | None:
        """Ours; None where it was not measured."""
        if self.measured is None or self.measured.error:
            return None
        try:
            return self.row.measurement(quick=self.quick).value(self.measured.figures)
        except (KeyError, ZeroDivisionError):
            return None

    @property
    def error(self) -> str:
        """Why there is no value."""
        if self.measured is None:
            return "not measured"
        return self.measured.error or f"{self.measured.command} prints no such figure"

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        return None if self.value is None else self.value / self.row.paper

    @property
    def how(self) -> str:
        """Where the number comes from."""
        return self.row.source(quick=self.quick).value

    @property
    def command(self) -> str:
        """As a reader types it."""
        command = self.row.measurement(quick=self.quick).command
        return self.measured.command if self.measured else " ".join(("fanin", *command))

    @property
    def why(self) -> str:
        """What the difference is made of, and what was not at hand."""
        return "; ".join(filter(None, (self.row.why, self.missing)))

    def as_json(self) -> dict[str, Any]:
        """The row of docs/reference/json.md."""
        return {
            "paper": self.paper.name,
            "figure": self.row.figure,
            "what": self.row.what,
            "section": self.row.section,
            "claimed": self.row.paper,
            "found": self.value,
            "unit": self.row.unit,
            "ratio": self.ratio,
            "how": self.how,
            "command": self.command,
            "seconds": self.measured.seconds if self.measured else None,
            "date": self.measured.date if self.measured else None,
            "why": self.why,
            "error": "" if self.value is not None else self.error,
        }


def document(rows: Sequence[Filled], quick: bool) -> dict[str, Any]:
    """What ``--json`` prints."""
    papers = {row.paper.name: row.paper for row in rows}
    return {
        "fanin": __version__,
        "quick": quick,
        "rows": [row.as_json() for row in rows],
        "fits": [
            {"paper": paper.name, "model": fit.model, "what": fit.what, "claimed": fit.paper}
            for paper in papers.values()
            for fit in paper.fits
        ],
        "not_here": {paper.name: list(paper.not_here) for paper in papers.values()},
    }


def listing(chosen: Iterable[tuple[Paper, Row]], *, quick: bool) -> list[str]:
    """The rows before they are measured."""
    head = ("figure", "what", "claimed", "how", "command")
    cells = [
        (
            f"{paper.name}/{row.figure}",
            row.what,
            f"{number(row.paper)} {row.unit}",
            row.source(quick=quick).value,
            " ".join(("fanin", *row.measurement(quick=quick).command)),
        )
        for paper, row in chosen
    ]
    return columns([head, *cells], right=(2,)).splitlines()


def lines(rows: Sequence[Filled]) -> list[str]:
    """The table for a terminal."""
    cells = [
        (
            f"{each.paper.name}/{each.row.figure}",
            each.row.what,
            f"{number(each.row.paper)} {each.row.unit}",
            "—" if each.value is None else number(each.value),
            "" if each.ratio is None else f"{each.ratio:.2f}",
            each.how,
        )
        for each in rows
    ]
    return columns(
        [("figure", "what", "claimed", "found", "ratio", "how"), *cells], right=(2, 3, 4)
    ).splitlines()


def write(folder: Path, document: dict[str, Any], rows: Sequence[Filled]) -> None:
    """JSON, CSV, Markdown and the page."""
    write_file(folder / REPRODUCTION.mark, json.dumps(finite(document), indent=2) + "\n")
    write_file(folder / "table.csv", _csv(rows))
    write_file(folder / "table.md", "\n".join(_markdown(rows)) + "\n")
    write_file(folder / REPORT_FILE, page([_line(row) for row in rows], list(_drawings(rows)), document))


def _csv(rows: Sequence[Filled]) -> str:
    text = io.StringIO()
    found = [row.as_json() for row in rows]
    writer = csv.DictWriter(text, list(found[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(found)
    return text.getvalue()


def _markdown(rows: Sequence[Filled]) -> Iterator[str]:
    """A table for each paper."""
    for paper in dict.fromkeys(row.paper.name for row in rows):
        yield from ("", f"### {paper}", "", "| figure | what | claimed | found | ratio | how | why |")
        yield "|" + "---|" * 7
        for each in (row for row in rows if row.paper.name == paper):
            found = "—" if each.value is None else number(each.value)
            ratio = "" if each.ratio is None else f"{each.ratio:.2f}"
            claimed = f"{number(each.row.paper)} {each.row.unit}"
            cells = (each.row.figure, each.row.what, claimed, found, ratio, each.how, each.why)
            yield f"| {' | '.join(cells)} |"


def _line(each: Filled) -> Line:
    return Line(
        paper=each.paper.name,
        title=each.paper.title,
        figure=each.row.figure,
        what=each.row.what,
        section=each.row.section,
        claimed=f"{number(each.row.paper)} {each.row.unit}",
        found="—" if each.value is None else f"{number(each.value)} {each.row.unit}",
        ratio=each.ratio,
        how=each.how,
        command=each.command,
        seconds=each.measured.seconds if each.measured else None,
        why=each.why if each.value is not None else each.error,
    )


def _drawings(rows: Sequence[Filled]) -> Iterator[Drawing]:
    """The figures that the rows' commands have points of."""
    for paper in {row.paper.name: row.paper for row in rows}.values():
        for picture in paper.pictures:
            of_it = [row for row in rows if row.paper is paper]  # the pattern says which figures are its own
            figures = {name: v for row in of_it if row.measured for name, v in row.measured.figures.items()}
            if series := picture.series(figures):
                title = f"Figure {picture.figure}: {picture.title}"
                yield Drawing(paper.name, title, picture.x, picture.y, series, log=picture.log)
