"""Results of a campaign: ``results.csv``, ``results.parquet`` and ``report.html``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow
from pyarrow import csv, parquet

from fanin.base.printable import cell
from fanin.base.records import parse_json
from fanin.base.scratch import output_file, write_file
from fanin.campaign.figures import figures_of
from fanin.campaign.file import Campaign
from fanin.campaign.folder import Finished, Folder
from fanin.campaign.page.page import campaign_page
from fanin.campaign.page.sheet import Sheet
from fanin.campaign.supervisor import DONE, FAILED
from fanin.campaign.table import PARQUET_FILE, ROLES
from fanin.runs.output import REPORT_FILE

MISSING = "missing"
CSV_FILE = "results.csv"
#: Columns of every campaign.
RUN, STATUS, ERROR = "run", "status", "error"
COMMON = (RUN, STATUS, ERROR, "seconds", "host")
_FIGURE_PREFIX = "figure."  # of a figure that has the name of another column
_OPTION_PREFIX = "option."  # of an option that has the name of a common column


def write_results(campaign: Campaign, folder: Folder) -> dict[str, int]:
    """Write table and page of the finished runs; return the numbers of done, failed and missing runs.

    Column names are unique. An option with the name of a common column gets the prefix ``option.``; a figure
    with the name of a common column or an option gets ``figure.``.
    """
    finished = {finished_run.run.name: finished_run for finished_run in folder.finished()}
    keys = dict.fromkeys(key for run in campaign.runs for key in run.options)
    names = {key: _OPTION_PREFIX + key if key in COMMON else key for key in keys}
    options = list(names.values())
    reserved = {*COMMON, *options}
    figures: dict[str, None] = {}
    rows: list[dict[str, Any]] = []
    for run in campaign.runs:
        run_figures = _figures(campaign, finished.get(run.name))
        run_figures = {
            _FIGURE_PREFIX + name if name in reserved else name: value for name, value in run_figures.items()
        }
        figures |= dict.fromkeys(run_figures)
        option_values = {names[key]: value for key, value in run.options.items()}
        rows.append(_common_columns(run.name, finished.get(run.name)) | option_values | run_figures)
    redundant = _repeated(rows, options) if not campaign.figures else set()
    table = _table(rows, options, [name for name in figures if name not in redundant])
    with output_file(folder.path / CSV_FILE) as file:
        csv.write_csv(_spreadsheet_cells(table), file)
    with output_file(folder.path / PARQUET_FILE) as file:
        parquet.write_table(table, file)
    counts = Counter(row[STATUS] for row in rows)
    totals = {status: counts[status] for status in (DONE, FAILED, MISSING)}
    listed_figures = [_FIGURE_PREFIX + name if name in reserved else name for name in campaign.figures]
    page = campaign_page(
        f"{campaign.command.name}: {campaign.file.stem}",
        sheet_of(table),
        counts=totals,
        failures=[(row[RUN], row[ERROR]) for row in rows if row[STATUS] == FAILED],
        figure_names=[name for name in listed_figures if name in figures],
        log=[  # a name may be that of an option, a figure, or both
            column for name in campaign.log for column in (name, _FIGURE_PREFIX + name, names.get(name, name))
        ],
    )
    write_file(folder.path / REPORT_FILE, page)
    return totals


def _spreadsheet_cells(table: pyarrow.Table) -> pyarrow.Table:
    """Return the table for a spreadsheet: no text or column name begins a formula."""
    for index, field in enumerate(table.schema):
        if pyarrow.types.is_string(field.type):
            texts = [None if text is None else cell(text) for text in table.column(index).to_pylist()]
            table = table.set_column(index, field, pyarrow.array(texts, field.type))
    return table.rename_columns([cell(name) for name in table.column_names])


def _repeated(rows: Sequence[dict[str, Any]], options: Sequence[str]) -> set[str]:
    """Return the figures that equal the option of the same name in every run that has them."""
    return {
        _FIGURE_PREFIX + name
        for name in options
        if all(row[_FIGURE_PREFIX + name] == row.get(name) for row in rows if _FIGURE_PREFIX + name in row)
    }


def _common_columns(name: str, finished: Finished | None) -> dict[str, Any]:
    """Return the common columns of a row."""
    if finished is None:
        return dict.fromkeys(COMMON) | {RUN: name, STATUS: MISSING}
    value = finished.record.value
    return {RUN: name} | {column: value.get(column) for column in COMMON[1:]}


def _figures(campaign: Campaign, finished: Finished | None) -> dict[str, Any]:
    return figures_of(finished.result, campaign.figures) if finished else {}


def _table(rows: Sequence[dict[str, Any]], options: Sequence[str], figures: Sequence[str]) -> pyarrow.Table:
    """Return a table whose columns have one type each: bool, integer, float or text."""
    names = (*COMMON, *options, *figures)
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    roles = json.dumps({"options": list(options), "figures": list(figures)})
    return pyarrow.table(columns).replace_schema_metadata({ROLES: roles.encode()})


def _column(values: Sequence[Any]) -> pyarrow.Array:
    """Return a column of the narrowest type of bool, int64, float64 and text that holds all values."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds <= {bool}:
        return pyarrow.array(values, pyarrow.bool_() if kinds else pyarrow.string())
    if kinds <= {int} and all(value is None or abs(value) < 1 << 63 for value in values):
        return pyarrow.array(values, pyarrow.int64())
    if kinds <= {int, float}:
        return pyarrow.array([None if value is None else float(value) for value in values], pyarrow.float64())
    return pyarrow.array([None if value is None else _text(value) for value in values], pyarrow.string())


def _text(value: Any) -> str:
    """Return a value as on a command line."""
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def sheet_of(table: pyarrow.Table) -> Sheet:
    """Return the rows with at least one figure, and the names of options and figures."""
    roles = parse_json(table.schema.metadata[ROLES])
    rows: Iterable[dict[str, Any]] = table.to_pylist()
    rows_with_figures = [row for row in rows if any(row[name] is not None for name in roles["figures"])]
    return Sheet(rows_with_figures, roles["options"], roles["figures"])
