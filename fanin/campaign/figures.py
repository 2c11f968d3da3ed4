"""Figures of a run: what ``--json`` prints, as names and values in one level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

#: Objects in which commands repeat their options.
_OPTIONS = ("options", "configuration")


def figures_of(result: Any, chosen: Sequence[str]) -> dict[str, Any]:
    """The ``chosen`` figures of a result, or every number outside lists; one that it does not have is left out.

    A name has dots between its parts; a member of a list is called by its ``name``, or else by its number.
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
    """Every value that is no object and no list, its path, and whether a number in it stands for a member."""
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
    """Their names, where each has one of its own."""
    names = [member.get("name") for member in members if isinstance(member, dict)]
    texts = [name for name in names if isinstance(name, str)]
    return texts if members and len(set(texts)) == len(members) else None
