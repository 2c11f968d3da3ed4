"""Python signatures of run functions, derived from their tables of options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from fanin.runs.option import FileUse, Option, Options, options_of

Function = TypeVar("Function", bound=Callable[..., Any])


def with_options(
    table: type[Options],
    *,
    required: Sequence[str] = (),
    excluded: Sequence[str] = (),
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Function], Function]:
    """Give a function the signature of a table, and a list of its arguments in the docstring.

    - ``required``: options that are required in Python, but not on the command line.
    - ``excluded``: options that the function does not have.
    - ``annotations``: types of options that the function also takes in other forms, by name.

    Parameters that the function declares itself come first.
    """
    options = [option for option in options_of(table) if option.name not in excluded]

    def decorate(function: Function) -> Function:
        signature = inspect.signature(function)
        declared = {
            name: parameter
            for name, parameter in signature.parameters.items()
            if parameter.kind is not inspect.Parameter.VAR_KEYWORD
        }
        made = {each.name: _parameter(each, required=each.name in required) for each in options}
        made |= {name: made[name].replace(annotation=text) for name, text in annotations.items()}
        own = {name: made.get(name, parameter) for name, parameter in declared.items()}
        parameters = list((own | made).values())
        function.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        function.__doc__ = f"{inspect.getdoc(function)}\n\n{_arguments_text(options)}\n"
        return function

    return decorate


def _parameter(option: Option, *, required: bool) -> inspect.Parameter:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if option.positional else inspect.Parameter.KEYWORD_ONLY
    if option.file_use is FileUse.OUTPUT:  # default: a temporary folder
        return inspect.Parameter(option.name, kind, default=None, annotation="PathLike | None")
    is_required = required or option.required
    default = inspect.Parameter.empty if is_required else option.default
    return inspect.Parameter(option.name, kind, default=default, annotation=_annotation(option, is_required))


def _annotation(option: Option, is_required: bool) -> str:
    """Return the type of an option's argument for a stub."""
    if option.repeatable:
        name = "Repeatable"
    elif option.kind is Path or option.file_use is FileUse.INPUT:
        name = "PathLike"
    else:
        name = "str" if issubclass(option.kind, StrEnum) else option.kind.__name__
    return f"{name} | None" if option.default is None and not is_required else name


def _arguments_text(options: Sequence[Option]) -> str:
    """Return a paragraph for a docstring, with a line per argument."""
    lines = []
    for option in options:
        values = f" {', '.join(map(str, option.values))}." if option.values else ""
        lines.append(f"``{option.name}`` : {option.help}.{values}")
    return "\n".join(["Arguments:", *lines])


def stub(function: Callable[..., Any]) -> str:
    """Return the stub text of a function that is decorated by :func:`with_options`."""
    signature = inspect.signature(function)
    lines = [f"def {function.__name__}("]
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "    *," not in lines:
            lines.append("    *,")
        lines.append(f"    {parameter.name}: {parameter.annotation}{_default(parameter.default)},")
    return "\n".join([*lines, f") -> {signature.return_annotation}: ..."])


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty:
        return ""
    if isinstance(value, str | Path):
        return f' = "{value}"'
    return f" = {value!r}"
