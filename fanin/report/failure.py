"""The page of a run that has not come to its end: why, what was asked for, and what was seen until then."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fanin.report.html import Rows, fill

_SHOWN = 200  # rows of a table


def failure_page(title: str, run: Mapping[str, Any]) -> str:
    """The page of a ``run.json`` whose ``error`` says what has stopped the run.

    Every other field is shown: numbers and texts in one table, each object or list in a table of its own.
    """
    tables: dict[str, Rows] = {}
    facts = [(_words(name), _shown(value)) for name, value in run.items() if not _nested(value)]
    tables["Run"] = [fact for fact in facts if fact[0] != "error"]
    tables |= {_words(name): [*_leaves(value)][:_SHOWN] for name, value in run.items() if _nested(value)}
    return fill(
        "failure.html.j2",
        title=title,
        error=run["error"],
        tables={name: rows for name, rows in tables.items() if rows},
    )


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
