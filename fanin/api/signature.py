"""From the table of a run's options to the Python function that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from fanin.runs.option import Option, Options, Place, options_of

Function = TypeVar("Function", bound=Callable[..., Any])


def declared(table: type[Options]) -> Callable[[Function], Function]:
    """Give a function the signature of a table, and a list of its arguments in the docstring."""

    def signed(function: Function) -> Function:
        plain = inspect.signature(function)
        function.__signature__ = plain.replace(parameters=parameters(table))  # type: ignore[attr-defined]
        function.__doc__ = f"{inspect.getdoc(function)}\n\n{arguments_text(table)}\n"
        return function

    return signed


def parameters(table: type[Options]) -> list[inspect.Parameter]:
    """Return the parameters of a function that takes a table's options."""
    found = []
    for option in options_of(table):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if option.positional else inspect.Parameter.KEYWORD_ONLY
        found.append(
            inspect.Parameter(option.name, kind, default=option.default, annotation=annotation(option))
        )
    return found


def annotation(option: Option) -> str:
    """Return the type of an option's argument, as a stub has it."""
    if option.several:
        name = "Repeatable"
    elif option.kind is Path or option.place is Place.INPUT:
        name = "PathLike"
    else:
        name = "str" if issubclass(option.kind, StrEnum) else option.kind.__name__
    return f"{name} | None" if option.default is None else name


def arguments_text(table: type[Options]) -> str:
    """Return a paragraph of a docstring: a line for each argument."""
    lines = []
    for option in options_of(table):
        values = f" {', '.join(map(str, option.values))}." if option.values else ""
        lines.append(f"``{option.name}`` : {option.help}.{values}")
    return "\n".join(["Arguments:", *lines])


def stub(name: str, table: type[Options], returns: str) -> str:
    """Return a function as a stub has it. ``returns``: its result."""
    before: list[str] = []
    after: list[str] = []
    for option in options_of(table):
        default = f'"{option.default}"' if isinstance(option.default, str) else repr(option.default)
        text = f"    {option.name}: {annotation(option)} = {default},"
        (before if option.positional else after).append(text)
    return "\n".join([f"def {name}(", *before, "    *,", *after, f") -> {returns}: ..."])
