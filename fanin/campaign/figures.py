"""Figures of a run: output of ``--json``, flattened to names and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

#: Objects in which commands repeat their options.
_OPTIONS = ("options", "configuration")


def figures_of(result: Any, names: Sequence[str]) -> dict[str, Any]:
    """Return figures of a result by name.

    A name joins keys by dots. A list's member is named by its ``name``, or else by its index.

    - ``result``: object that ``--json`` printed.
    - ``names``: figures to return if the result has them; empty: all numbers, except options and members of
      lists without names.
    """
    if names:
        values = {path: value for path, value, _ in _leaves(result)}
        return {name: values[name] for name in names if name in values}
    return {
        path: value
        for path, value, in_list in _leaves(result)
        if not in_list and isinstance(value, (bool, int, float)) and path.split(".")[0] not in _OPTIONS
    }


def _leaves(value: Any, path: str = "", in_list: bool = False) -> Iterator[tuple[str, Any, bool]]:
    """Yield every scalar with its path, and whether the path contains an index of a list."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(member, f"{path}.{name}" if path else name, in_list)
    elif isinstance(value, list):
        names = _member_names(value)
        for name, member in zip(names or map(str, range(len(value))), value, strict=True):
            yield from _leaves(member, f"{path}.{name}", in_list or names is None)
    elif value is not None:
        yield path, value, in_list


def _member_names(members: list[Any]) -> list[str] | None:
    """Return the members' names if every member has a unique one, else None."""
    names = [member.get("name") for member in members if isinstance(member, dict)]
    texts = [name for name in names if isinstance(name, str)]
    return texts if members and len(set(texts)) == len(members) else None
