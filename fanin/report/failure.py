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
    facts = {"Run": [(_words(name), _shown(value)) for name, value in run.items() if not _nested(value)]}
    facts["Run"] = [row for row in facts["Run"] if row[0] != "error"]
    counts: dict[str, list[list[str]]] = {}
    for name, value in run.items():
        if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
            counts[_words(name)] = _columns(_words(name), value)
        elif _nested(value):
            facts[_words(name)] = [*_leaves(value)][:_ROWS]
    return fill(
        "failure.html.j2",
        title=title,
        error=run["error"],
        where="\n".join(where),
        advice=advice,
        facts=_tables(facts),
        counts=counts,
    )


def _tables(facts: Mapping[str, Rows]) -> dict[str, Rows]:
    return {name: rows for name, rows in facts.items() if rows}


def _columns(name: str, objects: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A head, and a row for each field of the objects, one column for each object."""
    shown = [dict(_leaves(each)) for each in objects[:_COLUMNS]]
    fields = list(dict.fromkeys(field for each in shown for field in each))[:_ROWS]
    head = [name if len(objects) == len(shown) else f"{name}: the first {len(shown)} of {len(objects):,}"]
    rows = [[field, *(each.get(field, "") for each in shown)] for field in fields]
    return [[*head, *map(str, range(len(shown)))], *rows]


def _nested(value: Any) -> bool:
    return isinstance(value, (dict, list))


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
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else str(value)
