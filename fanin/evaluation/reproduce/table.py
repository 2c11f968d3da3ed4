"""Output of the table's rows: text, JSON, CSV, Markdown and a page."""

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
from fanin.evaluation.reproduce.filled import FilledRow, FittedFact
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


def document(rows: Sequence[FilledRow], fits: Sequence[FittedFact], quick: bool) -> dict[str, Any]:
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


def listing(selection: Iterable[tuple[Paper, Row]], *, quick: bool) -> list[str]:
    """Return the lines of ``--list``: the rows without measurement."""
    header = ("figure", "what", "claimed", "how", "command")
    cells = [
        (
            f"{paper.name}/{row.figure}",
            row.quantity,
            f"{number(row.claimed)} {row.unit}",
            row.measurement(quick=quick).origin.kind.value,
            " ".join(("fanin", *row.measurement(quick=quick).command)),
        )
        for paper, row in selection
    ]
    return columns([header, *cells], right=(2,)).splitlines()


def lines(rows: Sequence[FilledRow]) -> list[str]:
    """Return the lines of the table for a terminal."""
    cells = [
        (
            f"{filled.paper.name}/{filled.row.figure}",
            filled.row.quantity,
            f"{number(filled.row.claimed)} {filled.row.unit}",
            "—" if filled.value is None else number(filled.value),
            "" if filled.ratio is None else f"{filled.ratio:.2f}",
            filled.origin_kind,
        )
        for filled in rows
    ]
    return columns(
        [("figure", "what", "claimed", "found", "ratio", "how"), *cells], right=(2, 3, 4)
    ).splitlines()


def write(
    folder: Path, document: dict[str, Any], rows: Sequence[FilledRow], fits: Sequence[FittedFact]
) -> None:
    """Write JSON, CSV, Markdown and the page into ``folder``."""
    table_lines, figures = [_line(row) for row in rows], list(drawings(rows, fits))
    facts = list(_facts(rows, fits))
    write_file(folder / REPRODUCTION.mark, json.dumps(finite(document), indent=2) + "\n")
    write_file(folder / "table.csv", _csv(rows))
    write_file(folder / "table.md", "\n".join(_markdown(table_lines, facts)) + "\n")
    write_file(folder / REPORT_FILE, page(table_lines, facts, figures, document))


def _csv(rows: Sequence[FilledRow]) -> str:
    text = io.StringIO()
    objects = [row.as_json() for row in rows]
    writer = csv.DictWriter(text, list(objects[0]), lineterminator="\n")
    writer.writeheader()
    for row in objects:
        writer.writerow({name: cell(value) if isinstance(value, str) else value for name, value in row.items()})
    return text.getvalue()


def _markdown(lines: Sequence[Line], facts: Sequence[Fact]) -> Iterator[str]:
    """Yield the lines of the Markdown tables: rows and models of each paper, then the commands."""
    numbers = command_numbers(lines)
    for paper in dict.fromkeys(line.paper for line in lines):
        yield from ("", f"### {paper}", "")
        paper_lines = [line for line in lines if line.paper == paper]
        yield from _table(ROW_HEAD, (row_cells(line, numbers[line.command]) for line in paper_lines))
        if paper_facts := [fact for fact in facts if fact.paper == paper]:
            yield from ("", "Models of machines that fanin does not build:", "")
            yield from _table(FACT_HEAD, (fact.cells for fact in paper_facts))
    yield from ("", "### Commands", "")
    header, *commands = command_table(lines)
    yield from _table(header, commands)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    for row in rows:
        cells = [cell.replace("|", r"\|") for cell in row]
        yield f"| {' | '.join(cells)} |"


def _line(filled: FilledRow) -> Line:
    return Line(
        paper=filled.paper.name,
        title=filled.paper.title,
        figure=filled.row.figure,
        quantity=filled.row.quantity,
        section=filled.row.section,
        claimed=f"{number(filled.row.claimed)} {filled.row.unit}",
        measured="—" if filled.value is None else f"{number(filled.value)} {filled.row.unit}",
        ratio=filled.ratio,
        origin_kind=filled.origin_kind,
        command=filled.command,
        inputs=filled.measurement.origin.text,
        formula=filled.measurement.value.text,
        seconds=filled.output.seconds if filled.output else None,
        explanation=filled.explanation if filled.value is not None else filled.error,
    )


def _facts(rows: Sequence[FilledRow], fits: Sequence[FittedFact]) -> Iterator[Fact]:
    """Yield the facts of each model: fitted numbers first, then derived and predicted ones in row order."""
    names = [(fitted.paper.name, fitted.fit.model) for fitted in fits]
    for paper, model in dict.fromkeys(names):
        for fitted in fits:
            if (fitted.paper.name, fitted.fit.model) == (paper, model):
                fit = fitted.fit
                numbers = (fit.claimed, fitted.value, fit.unit)
                yield _fact(paper, model, "fitted", fit.claim, numbers, fit.fitted_input)
        for filled in rows:
            if (filled.paper.name, filled.row.model) == (paper, model):
                quantity, derivation = f"{filled.row.figure}: {filled.row.quantity}", filled.row.derivation
                numbers = (filled.row.claimed, filled.value, filled.row.unit)
                kind, inputs = ("derived", derivation.text) if derivation else ("predicted", "")
                yield _fact(paper, model, kind, quantity, numbers, inputs)


def _fact(
    paper: str,
    model: str,
    kind: str,
    quantity: str,
    numbers: tuple[float | None, float | None, str],
    inputs: str,
) -> Fact:
    """Return a fact as text.

    - ``numbers``: the paper's number, the model's number, their unit.
    - ``inputs``: fitted inputs, or the numbers from which the fact follows.
    """
    claimed, computed, unit = numbers
    return Fact(
        paper=paper,
        model=model,
        kind=kind,
        quantity=quantity,
        claimed="" if claimed is None else f"{number(claimed)} {unit}",
        computed="" if computed is None else f"{number(computed)} {unit}",
        error="" if claimed is None or computed is None else f"{100 * (computed / claimed - 1):+z.1f} %",
        inputs=inputs,
    )
