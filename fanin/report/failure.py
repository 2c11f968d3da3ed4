"""Page of a run that has not come to its end: what failed, where, what to do, and counts until then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fanin.report.html import Rows, fill

_ROWS, _COLUMNS = 200, 8  # of a table, at most


def failure_page(
    title: str, run: Mapping[str, Any], where: Sequence[str] = (), advice: str | None = None
) -> str:
    """Return the page of a ``run.json`` whose ``error`` says what has stopped the run.

    ``where``: lines on how far the run got. ``advice``: what to do. Every other field of the run is shown:
    numbers and texts in one table, each object in a table, and of a list of objects each as a column.
    """
    counts = {name: value for name, value in run.items() if _is_table(value)}
    rest = {name: value for name, value in run.items() if name not in counts and name != "error"}
    return fill(
        "failure.html.j2",
        title=title,
        error=run["error"],
        where="\n".join(where),
        advice=advice,
        facts={name: rows[:_ROWS] for name, rows in _tables("run", rest) if rows},
        counts=[_columns(_words(name), value) for name, value in counts.items()],
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)


def _tables(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Rows]]:
    """Name and rows of an object's own numbers and texts, and of each object in it."""
    inner = {each: found for each, found in value.items() if isinstance(found, dict)}
    own = {each: found for each, found in value.items() if each not in inner}
    yield name, [*_leaves(own)]
    for each, found in inner.items():
        yield from _tables(f"{name} {each}" if str(each).isdecimal() else _words(each), found)


def _columns(name: str, objects: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A head, and a row for each field of the objects, one column for each object."""
    shown = [dict(_leaves(each)) for each in objects[:_COLUMNS]]
    fields = list(dict.fromkeys(field for each in shown for field in each))[:_ROWS]
    head = [name if len(objects) == len(shown) else f"{name}: the first {len(shown)} of {len(objects):,}"]
    rows = [[field, *(each.get(field, "") for each in shown)] for field in fields]
    return [[*head, *map(str, range(len(shown)))], *rows]


def _nested(value: Any) -> bool:
    return isinstance(value, (dict, list, tuple))


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every number and text in an object or a list, with its place."""
    if not _nested(value):
        yield place, _shown(value)
        return
    for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield from _leaves(inner, f"{place} {_words(str(name))}".strip())


def _words(name: str) -> str:
    return name.replace("_", " ")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"
    return "none" if value is None else str(value)
