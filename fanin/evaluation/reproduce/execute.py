"""Execution of ``fanin reproduce``: choose rows, measure them, write table and page."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from fanin import __version__
from fanin.base.errors import CheckFailed, InputError
from fanin.base.scratch import write_file
from fanin.evaluation.reproduce import table
from fanin.evaluation.reproduce.filled import Filled, Fitted
from fanin.evaluation.reproduce.measure import Measured, Measuring
from fanin.evaluation.reproduce.row import Measurement, Paper, Row
from fanin.evaluation.reproduce.rows import PAPERS
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import Manifest
from fanin.runs.output import REPRODUCTION, check_directory, is_kind, output_directory, print_json
from fanin.runs.unfinished import UNFINISHED

Chosen = list[tuple[Paper, Row]]


def execute(args: argparse.Namespace) -> int:
    """Run the command; return its exit status. Raises InputError, and CheckFailed if a row stays empty."""
    chosen, data = choose(args.what, quick=args.quick), data_sets(args.data)
    if args.list:
        nothing = [Filled(paper, row, args.quick, None) for paper, row in chosen]
        document = table.document(nothing, _fitted(chosen, lambda measurement: None), args.quick)
        print_json(document) if args.json else print("\n".join(table.listing(chosen, quick=args.quick)))
        return 0
    others = _others(args.others)
    check_directory(args.output, REPRODUCTION)
    with sole_writer(args.output):
        measuring = Measuring(args.output, data, others)
        for measurement in _needed(chosen, quick=args.quick):
            measuring.check(measurement)  # raise errors before anything is written
        begin(args.output)
        rows = measured(chosen, measuring, quick=args.quick, data=data)
        fits = _fitted(chosen, measuring.earlier)
        document = table.document(rows, fits, args.quick)
        with output_directory(args.output, REPRODUCTION) as folder:
            table.write(folder, document, rows, fits)
    print_json(document) if args.json else print("\n".join(table.lines(rows)))
    if empty := [f"{each.paper.name}/{each.row.figure}: {each.error}" for each in rows if each.value is None]:
        raise CheckFailed(f"{len(empty)} of {len(rows)} rows are empty; the first: {empty[0]}")
    return 0


def begin(output: Path) -> None:
    """Mark the folder as a reproduction's, so that a stopped run can be resumed. Raises InputError."""
    if not is_kind(output, REPRODUCTION):
        output.mkdir(parents=True, exist_ok=True)
        Manifest(REPRODUCTION.mark, (REPRODUCTION.mark,)).write(output)
        write_file(
            output / REPRODUCTION.mark,
            json.dumps({"fanin": __version__, "rows": [], "error": UNFINISHED}) + "\n",
        )


def choose(named: Sequence[str], *, quick: bool = False) -> Chosen:
    """Return the rows of the ``named`` papers and figures; all rows if none is named.

    Raises InputError with the known names. ``quick``: leave out slow rows.
    """
    wanted = list(map(_named, named)) or [(paper, "") for paper in PAPERS]
    found = [
        (paper, row)
        for paper in PAPERS
        for row in paper.rows
        if any(paper is each and figure in ("", row.figure) for each, figure in wanted)
    ]
    chosen = [(paper, row) for paper, row in found if not (quick and row.slow)]
    if not chosen:
        raise InputError(f"{' '.join(named)}: has no quick measurement; leave --quick out")
    return chosen


def _named(what: str) -> tuple[Paper, str]:
    """Parse PAPER[/FIGURE]; the figure may be empty. Raises InputError with the known names."""
    name, _, figure = what.partition("/")
    papers = {paper.name: paper for paper in PAPERS}
    if name not in papers:
        raise InputError(f"{what}: no such paper; there are {', '.join(papers)}")
    paper = papers[name]
    if figure and figure not in paper.figures:
        raise InputError(f"{what}: no such figure; of {name} there are {', '.join(paper.figures)}")
    return paper, figure


def data_sets(entries: Sequence[str]) -> dict[str, Path]:
    """Parse the ``NAME=PATH`` of data sets; return the paths by name. Raises InputError."""
    known = sorted({name for paper in PAPERS for row in paper.rows for name in row.full.data})
    found: dict[str, Path] = {}
    for entry in entries:
        name, _, path = entry.partition("=")
        if name not in known or not path:
            raise InputError(f"--data {entry}: must be NAME=PATH; names are {', '.join(known)}")
        if not Path(path).exists():
            raise InputError(f"--data {entry}: {path} does not exist")
        found[name] = Path(path).absolute()
    return found


def _others(folders: Sequence[Path]) -> Sequence[Path]:
    """Return ``folders``. Raises InputError for a folder that this command has not written."""
    for folder in folders:
        if not is_kind(folder, REPRODUCTION):
            raise InputError(f"--from {folder}: holds no {REPRODUCTION.mark}: not a folder of fanin reproduce")
    return folders


def measured(chosen: Chosen, measuring: Measuring, *, quick: bool, data: Mapping[str, Path]) -> list[Filled]:
    """Return the rows with their numbers. Each command runs once; complete earlier measurements are reused."""
    wanted = {each.name: each for _, row in chosen for each in [row.measurement(quick=quick)]}
    found = {
        name: earlier
        for name, each in wanted.items()
        if (earlier := measuring.earlier(each, enough=partial(_fills, chosen, each, quick)))
    }
    for number, (name, measurement) in enumerate(wanted.items(), start=1):
        if name in found:
            continue
        print(f"[{number}/{len(wanted)}] {measuring.text(measurement)}", file=sys.stderr, flush=True)
        found[name] = measuring.measure(measurement)
    return [
        Filled(paper, row, quick, found[row.measurement(quick=quick).name], missing=_missing(row, quick, data))
        for paper, row in chosen
    ]


def _needed(chosen: Chosen, *, quick: bool) -> Iterator[Measurement]:
    """Yield the measurements of the rows, and of the facts to which models are fitted."""
    for paper, row in chosen:
        yield row.measurement(quick=quick)
        yield from (fit.found for fit in paper.fits if fit.found)


def _fills(chosen: Chosen, measurement: Measurement, quick: bool, found: Measured) -> bool:
    """Whether an earlier measurement has the figures of all its rows. A package may have been missing then."""
    rows = ((paper, row) for paper, row in chosen if row.measurement(quick=quick).name == measurement.name)
    return all(Filled(paper, row, quick, found).value is not None for paper, row in rows)


def _fitted(chosen: Chosen, earlier: Callable[[Measurement], Measured | None]) -> list[Fitted]:
    """Return the facts to which models are fitted, with ``earlier`` measurements; nothing is measured."""
    papers = {paper.name: paper for paper, _ in chosen}
    return [
        Fitted(paper, fit, earlier(fit.found) if fit.found else None)
        for paper in papers.values()
        for fit in paper.fits
    ]


def _missing(row: Row, quick: bool, data: Mapping[str, Path]) -> str:
    """Return the note on the replacement for missing data sets; empty if none is missing."""
    taken = [row.data_set] if row.data_set else row.measurement(quick=quick).data
    lacking = [name for name in taken if name not in data]
    return f"{row.stand_in} (fanin reproduce --data {lacking[0]}=PATH)" if lacking else ""
