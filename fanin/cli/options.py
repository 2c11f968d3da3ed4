"""Command-line options of a run, derived from its table (``fanin.runs.option``)."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from enum import StrEnum
from typing import Any

from fanin.base.printable import terminal
from fanin.runs.file_options import file_options_of
from fanin.runs.option import Option, Options, RunOptions, option_flag, options_of


def add_options(parser: argparse.ArgumentParser, table: type[Options]) -> None:
    """Declare the options of a table.

    The parsed arguments have ``given``, the names of the options on the command line, and of a run's table
    ``files``.
    """
    groups: dict[str, Any] = {"": parser}
    exclusive: dict[str, Any] = {}
    for option in options_of(table):
        title = option.group.title
        group = groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))
        if option.exclusive:
            group = exclusive.get(option.exclusive) or exclusive.setdefault(
                option.exclusive, group.add_mutually_exclusive_group()
            )
        _add(group, option)
    parser.set_defaults(given=frozenset())
    if issubclass(table, RunOptions):
        parser.set_defaults(files=file_options_of(table))


def add_selected_options(
    container: argparse._ActionsContainer, table: type[Options], names: Collection[str]
) -> None:
    """Declare the options of a table that have these names, without headings."""
    for option in options_of(table):
        if option.name in names:
            _add(container, option)
    container.set_defaults(given=frozenset())


def _add(group: Any, option: Option) -> None:
    words = [option.name] if option.positional else [option.short or option_flag(option.name)]
    default = str(option.default) if isinstance(option.default, StrEnum) else option.default
    arguments: dict[str, Any] = {"help": option.help.replace("%", "%%")}
    if not option.required:
        arguments["default"] = default
    if not option.positional:
        arguments |= {"dest": option.name, "required": option.required}
    if option.kind is bool:
        arguments["action"] = _Flag if option.default is False else _Switch
    else:
        kind = str if issubclass(option.kind, StrEnum) else option.kind
        arguments |= {"type": kind, "metavar": option.metavar, "choices": option.values or None}
        arguments["action"] = _Append if option.repeatable else _Store
    if option.positional and not option.required:
        arguments |= {"nargs": "?", "default": None}  # Options.of puts the table's in its place
    group.add_argument(*words, **arguments)
    for alias in option.aliases:
        group.add_argument(option_flag(alias), **arguments | {"help": argparse.SUPPRESS})


class TableAction(argparse.Action):
    """Action of a table's option: it adds the option's name to ``given``. Its help names the default."""

    def __init__(self, **of_argparse: Any) -> None:
        super().__init__(**of_argparse)
        self.help = of_argparse["help"]  # some Pythons append the default

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, word: Any = None
    ) -> None:
        """Store the value, and record in ``given`` that the option is given."""
        super().__call__(parser, namespace, values, word)
        if word or values is not self.default:  # argparse gives a positional its default, too
            namespace.given = namespace.given | {self.dest}
        if word and not word.startswith("--no-") and word.startswith("--") and word != option_flag(self.dest):
            print(f"fanin: note: {word} is {option_flag(self.dest)} now", file=terminal())


class _Store(TableAction, argparse._StoreAction):
    """Action of an option with one value."""


class _Append(TableAction, argparse._AppendAction):
    """Action of an option that may be repeated."""


class _Flag(TableAction, argparse._StoreTrueAction):
    """Action of an option that is off by default."""


class _Switch(TableAction, argparse.BooleanOptionalAction):
    """Action of an option with an opposite, such as --bias and --no-bias."""
