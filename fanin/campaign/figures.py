"""Figures of a run: output of ``--json``, flattened to names and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

#: Objects in which commands repeat their options.
_OPTIONS = ("options", "configuration")


def figures_of(result: Any, chosen: Sequence[str]) -> dict[str, Any]:
    """Return the ``chosen`` figures that a result has; with none chosen, every number outside numbered lists.

    A name has dots between its parts. A list's member is named by its ``name``, or else by its index.
    """
    if chosen:
        found = {path: value for path, value, _ in _leaves(result)}
        return {name: found[name] for name in chosen if name in found}
    return {
        path: value
        for path, value, listed in _leaves(result)
        if not listed and isinstance(value, (bool, int, float)) and path.split(".")[0] not in _OPTIONS
    }


def _leaves(value: Any, place: str = "", listed: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """Yield every scalar with its path, and whether the path contains an index of a list."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{place}.{name}" if place else name, listed)
    elif isinstance(value, list):
        names = _member_names(value)
        for name, inner in zip(names or map(str, range(len(value))), value, strict=True):
            yield from _leaves(inner, f"{place}.{name}", listed or names is None)
    elif value is not None:
        yield place, value, listed


def _member_names(members: list[Any]) -> list[str] | None:
    """Return the members' names if every member has a unique one, else None."""
    names = [member.get("name") for member in members if isinstance(member, dict)]
    texts = [name for name in names if isinstance(name, str)]
    return texts if members and len(set(texts)) == len(members) else None
