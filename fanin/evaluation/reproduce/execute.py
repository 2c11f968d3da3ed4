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
from fanin.evaluation.reproduce.filled import FilledRow, FittedFact
from fanin.evaluation.reproduce.measure import CommandOutput, MeasurementStore
from fanin.evaluation.reproduce.row import Measurement, Paper, Row
from fanin.evaluation.reproduce.rows import PAPERS
from fanin.runs.lock import sole_writer
from fanin.runs.manifest import Manifest
from fanin.runs.output import REPRODUCTION, check_directory, is_kind, output_directory, print_json
from fanin.runs.unfinished import UNFINISHED

Selection = list[tuple[Paper, Row]]


def execute(args: argparse.Namespace) -> int:
    """Run the command; return its exit status. Raises InputError, and CheckFailed if a row stays empty."""
    selection, data = choose(args.what, quick=args.quick), data_sets(args.data)
    if args.list:
        unmeasured = [FilledRow(paper, row, args.quick, None) for paper, row in selection]
        document = table.document(unmeasured, _fitted_facts(selection, lambda measurement: None), args.quick)
        print_json(document) if args.json else print("\n".join(table.listing(selection, quick=args.quick)))
        return 0
    folders = _checked_folders(args.others)
    check_directory(args.output, REPRODUCTION)
    with sole_writer(args.output):
        store = MeasurementStore(args.output, data, folders)
        for measurement in _measurements(selection, quick=args.quick):
            store.check(measurement)  # raise errors before anything is written
        begin(args.output)
        rows = measure_rows(selection, store, quick=args.quick, data=data)
        fits = _fitted_facts(selection, store.find_earlier)
        document = table.document(rows, fits, args.quick)
        with output_directory(args.output, REPRODUCTION) as folder:
            table.write(folder, document, rows, fits)
    print_json(document) if args.json else print("\n".join(table.lines(rows)))
    if empty_rows := [
        f"{filled.paper.name}/{filled.row.figure}: {filled.error}" for filled in rows if filled.value is None
    ]:
        raise CheckFailed(f"{len(empty_rows)} of {len(rows)} rows are empty; the first: {empty_rows[0]}")
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


def choose(names: Sequence[str], *, quick: bool = False) -> Selection:
    """Return the rows of the papers and figures in ``names``, PAPER[/FIGURE]; all rows if it is empty.

    ``quick``: leave out slow rows. Raises InputError for an unknown name, and if no row is left.
    """
    requests = list(map(_parse_request, names)) or [(paper, "") for paper in PAPERS]
    matches = [
        (paper, row)
        for paper in PAPERS
        for row in paper.rows
        if any(paper is requested_paper and figure in ("", row.figure) for requested_paper, figure in requests)
    ]
    selection = [(paper, row) for paper, row in matches if not (quick and row.slow)]
    if not selection:
        raise InputError(f"{' '.join(names)}: has no quick measurement; leave --quick out")
    return selection


def _parse_request(text: str) -> tuple[Paper, str]:
    """Parse PAPER[/FIGURE]; the figure may be empty. Raises InputError with the known names."""
    name, _, figure = text.partition("/")
    papers = {paper.name: paper for paper in PAPERS}
    if name not in papers:
        raise InputError(f"{text}: no such paper; there are {', '.join(papers)}")
    paper = papers[name]
    if figure and figure not in paper.figures:
        raise InputError(f"{text}: no such figure; of {name} there are {', '.join(paper.figures)}")
    return paper, figure


def data_sets(entries: Sequence[str]) -> dict[str, Path]:
    """Parse the ``NAME=PATH`` of data sets; return the paths by name. Raises InputError."""
    names = sorted({name for paper in PAPERS for row in paper.rows for name in row.full.data})
    paths: dict[str, Path] = {}
    for entry in entries:
        name, _, path = entry.partition("=")
        if name not in names or not path:
            raise InputError(f"--data {entry}: must be NAME=PATH; names are {', '.join(names)}")
        if not Path(path).exists():
            raise InputError(f"--data {entry}: {path} does not exist")
        paths[name] = Path(path).absolute()
    return paths


def _checked_folders(folders: Sequence[Path]) -> Sequence[Path]:
    """Return ``folders``. Raises InputError for a folder that this command has not written."""
    for folder in folders:
        if not is_kind(folder, REPRODUCTION):
            raise InputError(f"--from {folder}: holds no {REPRODUCTION.mark}: not a folder of fanin reproduce")
    return folders


def measure_rows(
    selection: Selection, store: MeasurementStore, *, quick: bool, data: Mapping[str, Path]
) -> list[FilledRow]:
    """Measure rows; each command runs once, and complete earlier measurements are reused."""
    measurements = {
        measurement.name: measurement for _, row in selection for measurement in [row.measurement(quick=quick)]
    }
    outputs = {
        name: earlier
        for name, measurement in measurements.items()
        if (
            earlier := store.find_earlier(
                measurement, is_complete=partial(_is_complete, selection, measurement, quick)
            )
        )
    }
    for number, (name, measurement) in enumerate(measurements.items(), start=1):
        if name in outputs:
            continue
        print(f"[{number}/{len(measurements)}] {store.command_text(measurement)}", file=sys.stderr, flush=True)
        outputs[name] = store.measure(measurement)
    return [
        FilledRow(
            paper,
            row,
            quick,
            outputs[row.measurement(quick=quick).name],
            missing=_missing_data_note(row, quick, data),
        )
        for paper, row in selection
    ]


def _measurements(selection: Selection, *, quick: bool) -> Iterator[Measurement]:
    """Yield the measurements of the rows, and of the facts to which models are fitted."""
    for paper, row in selection:
        yield row.measurement(quick=quick)
        yield from (fit.measurement for fit in paper.fits if fit.measurement)


def _is_complete(selection: Selection, measurement: Measurement, quick: bool, output: CommandOutput) -> bool:
    """Return whether an earlier measurement has the figures of all its rows.

    An earlier run may have lacked an optional package.
    """
    rows = ((paper, row) for paper, row in selection if row.measurement(quick=quick).name == measurement.name)
    return all(FilledRow(paper, row, quick, output).value is not None for paper, row in rows)


def _fitted_facts(
    selection: Selection, earlier: Callable[[Measurement], CommandOutput | None]
) -> list[FittedFact]:
    """Return the facts to which models are fitted, with ``earlier`` measurements; nothing is measured."""
    papers = {paper.name: paper for paper, _ in selection}
    return [
        FittedFact(paper, fit, earlier(fit.measurement) if fit.measurement else None)
        for paper in papers.values()
        for fit in paper.fits
    ]


def _missing_data_note(row: Row, quick: bool, data: Mapping[str, Path]) -> str:
    """Return a note on the row's stand-in for missing data sets; empty if none is missing."""
    required = [row.data_set] if row.data_set else row.measurement(quick=quick).data
    missing = [name for name in required if name not in data]
    return f"{row.stand_in} (fanin reproduce --data {missing[0]}=PATH)" if missing else ""
