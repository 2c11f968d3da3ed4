"""Page of an unfinished run: its failure, progress, advice, and counters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fanin.report.html import Rows, fill

_MAX_ROWS, _MAX_COLUMNS = 200, 8  # of a table


def failure_page(
    title: str, run: Mapping[str, Any], progress: Sequence[str] = (), advice: str | None = None
) -> str:
    """Return the page of a ``run.json`` with an ``error``.

    - ``progress``: lines about the run's progress.
    - ``advice``: text on what to do.

    All other fields of the run are shown: numbers and texts in one table, each object in a table of its own,
    and a list of objects as one table with a column per object.
    """
    counts = {name: value for name, value in run.items() if _is_table(value)}
    fields = {name: value for name, value in run.items() if name not in counts and name != "error"}
    return fill(
        "failure.html.j2",
        title=title,
        error=run["error"],
        where="\n".join(progress),
        advice=advice,
        facts={name: rows[:_MAX_ROWS] for name, rows in _tables("run", fields) if rows},
        counts=[_columns(_words(name), value) for name, value in counts.items()],
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


def _tables(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Yield name and rows of an object's own numbers and texts, and of each object in it."""
    objects = {field: content for field, content in value.items() if isinstance(content, dict)}
    leaves = {field: content for field, content in value.items() if field not in objects}
    yield name, [*_leaves(leaves)]
    for field, content in objects.items():
        yield from _tables(f"{name} {field}" if str(field).isdecimal() else _words(field), content)


def _columns(name: str, objects: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a header, and a row per field of the objects with a column per object."""
    columns = [dict(_leaves(column)) for column in objects[:_MAX_COLUMNS]]
    fields = list(dict.fromkeys(field for column in columns for field in column))[:_MAX_ROWS]
    head = [name if len(objects) == len(columns) else f"{name}: the first {len(columns)} of {len(objects):,}"]
    rows = [[field, *(column.get(field, "") for column in columns)] for field in fields]
    return [[*head, *map(str, range(len(columns)))], *rows]


def _is_nested(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple))


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield every number and text in an object or a list, with its path."""
    if not _is_nested(value):
        yield place, _value_text(value)
        return
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, f"{place} {_words(str(name))}".strip())


def _words(name: str) -> str:
    return name.replace("_", " ")


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return "none" if value is None else str(value)
