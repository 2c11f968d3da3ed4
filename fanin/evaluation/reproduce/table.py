"""Output of the measured rows: text, JSON, CSV, Markdown and a page."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fanin import __version__
from fanin.base.printable import cell
from fanin.base.scratch import write_file
from fanin.evaluation.bench.result import number
from fanin.evaluation.reproduce.drawings import drawings
from fanin.evaluation.reproduce.filled import Filled, Fitted
from fanin.evaluation.reproduce.page import (
    FACT_HEAD,
    ROW_HEAD,
    Fact,
    Line,
    command_numbers,
    command_table,
    page,
    row_cells,
)
from fanin.evaluation.reproduce.row import Paper, Row
from fanin.runs.output import REPORT_FILE, REPRODUCTION, finite
from fanin.runs.output import table as columns


def document(rows: Sequence[Filled], fits: Sequence[Fitted], quick: bool) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    papers = {row.paper.name: row.paper for row in rows}
    return {
        "fanin": __version__,
        "quick": quick,
        "filled": sum(row.value is not None for row in rows),
        "rows": [row.as_json() for row in rows],
        "fits": [fit.as_json() for fit in fits],
        "not_here": {paper.name: list(paper.not_here) for paper in papers.values()},
    }


def listing(chosen: Iterable[tuple[Paper, Row]], *, quick: bool) -> list[str]:
    """Return the lines of ``--list``: the rows without measurement."""
    head = ("figure", "what", "claimed", "how", "command")
    cells = [
        (
            f"{paper.name}/{row.figure}",
            row.what,
            f"{number(row.paper)} {row.unit}",
            row.measurement(quick=quick).origin.how.value,
            " ".join(("fanin", *row.measurement(quick=quick).command)),
        )
        for paper, row in chosen
    ]
    return columns([head, *cells], right=(2,)).splitlines()


def lines(rows: Sequence[Filled]) -> list[str]:
    """Return the lines of the table for a terminal."""
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


def write(folder: Path, document: dict[str, Any], rows: Sequence[Filled], fits: Sequence[Fitted]) -> None:
    """Write JSON, CSV, Markdown and the page into ``folder``."""
    found, drawn = [_line(row) for row in rows], list(drawings(rows, fits))
    told = list(_facts(rows, fits))
    write_file(folder / REPRODUCTION.mark, json.dumps(finite(document), indent=2) + "\n")
    write_file(folder / "table.csv", _csv(rows))
    write_file(folder / "table.md", "\n".join(_markdown(found, told)) + "\n")
    write_file(folder / REPORT_FILE, page(found, told, drawn, document))


def _csv(rows: Sequence[Filled]) -> str:
    text = io.StringIO()
    found = [row.as_json() for row in rows]
    writer = csv.DictWriter(text, list(found[0]), lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow({name: cell(value) if isinstance(value, str) else value for name, value in row.items()})
    return text.getvalue()


def _markdown(lines: Sequence[Line], facts: Sequence[Fact]) -> Iterator[str]:
    """Yield the lines of the Markdown tables: rows and models of each paper, then the commands."""
    numbers = command_numbers(lines)
    for paper in dict.fromkeys(line.paper for line in lines):
        yield from ("", f"### {paper}", "")
        own = [line for line in lines if line.paper == paper]
        yield from _table(ROW_HEAD, (row_cells(line, numbers[line.command]) for line in own))
        if told := [fact for fact in facts if fact.paper == paper]:
            yield from ("", "Models of machines that fanin does not build:", "")
            yield from _table(FACT_HEAD, (fact.cells for fact in told))
    yield from ("", "### Commands", "")
    head, *commands = command_table(lines)
    yield from _table(head, commands)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for row in rows:
        cells = [cell.replace("|", r"\|") for cell in row]
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
        inputs=each.measurement.origin.text,
        taken=each.measurement.value.text,
        seconds=each.measured.seconds if each.measured else None,
        why=each.why if each.value is not None else each.error,
    )


def _facts(rows: Sequence[Filled], fits: Sequence[Fitted]) -> Iterator[Fact]:
    """Yield the facts of each model: fitted numbers first, then derived and predicted ones in row order."""
    names = [(each.paper.name, each.fit.model) for each in fits]
    for paper, model in dict.fromkeys(names):
        for each in fits:
            if (each.paper.name, each.fit.model) == (paper, model):
                fit = each.fit
                claimed = (fit.claimed, each.value, fit.unit)
                yield _fact(paper, model, "fitted", fit.paper, claimed, fit.what)
        for row in rows:
            if (row.paper.name, row.row.model) == (paper, model):
                what, follows = f"{row.row.figure}: {row.row.what}", row.row.follows
                number_ = (row.row.paper, row.value, row.row.unit)
                kind, inputs = ("derived", follows.text) if follows else ("predicted", "")
                yield _fact(paper, model, kind, what, number_, inputs)


def _fact(
    paper: str, model: str, kind: str, what: str, number_: tuple[float | None, float | None, str], inputs: str
) -> Fact:
    """Return a fact as text.

    - ``number_``: claimed number, fanin's number, unit.
    - ``inputs``: fitted inputs, or the numbers from which the fact follows.
    """
    claimed, found, unit = number_
    return Fact(
        paper=paper,
        model=model,
        kind=kind,
        what=what,
        claimed="" if claimed is None else f"{number(claimed)} {unit}",
        found="" if found is None else f"{number(found)} {unit}",
        error="" if claimed is None or found is None else f"{100 * (found / claimed - 1):+z.1f} %",
        inputs=inputs,
    )
