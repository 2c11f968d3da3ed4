"""``--beside``: further runs of the same training, each with some options changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fanin.base.errors import InputError
from fanin.base.printable import print_note
from fanin.param_server.facts import Algorithm
from fanin.param_server.run.options import ParamServerOptions
from fanin.runs.option import Option, options_of

_CHANGEABLE = tuple(option for option in options_of(ParamServerOptions) if option.changeable)


def runs_beside(options: ParamServerOptions) -> Iterator[ParamServerOptions]:
    """Yield the options of each further run. Raises InputError that names entry and cause."""
    for entry in options.beside or ():
        try:
            yield _changed_options(options, entry)
        except InputError as error:
            raise InputError(f"--beside {entry}: {error}") from error


def _changed_options(options: ParamServerOptions, entry: str) -> ParamServerOptions:
    values: dict[str, Any] = {}
    for pair in entry.split(","):
        name, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"{name!r} is not of the form algorithm=sync")
        option = _option(name, entry)
        value = option.parse(text)
        values[option.name] = values.get(option.name, ()) + value if option.repeatable else value
    given_names = options.given | values.keys()
    # The push options of wild do not apply to sync.
    if values.get("algorithm") is Algorithm.SYNC is not options.algorithm:
        values = {"push_after": None, "receivers": ParamServerOptions.receivers} | values
    variant = replace(options, **values, given=given_names)
    variant.check_values()
    return variant


def _option(name: str, entry: str) -> Option:
    for option in _CHANGEABLE:
        if name == option.name.replace("_", "-"):
            return option
        if name in option.aliases:
            print_note(f"fanin: note: --beside {entry}: {name} is {option.name} now")
            return option
    names = ", ".join(option.name.replace("_", "-") for option in _CHANGEABLE)
    raise InputError(f"{name} is none of {names}")
