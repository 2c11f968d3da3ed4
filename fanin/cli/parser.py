"""Parser of the command line; its commands, options and groups, for pages and campaigns.

argparse has no public access to the groups and commands of a parser. Only this module reads its private
members.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fanin.base.errors import InputError
from fanin.cli.options import TableAction


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help with defaults, except of options that are off or absent by default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or isinstance(action.default, bool) or isinstance(action, TableAction):
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Parser whose errors are a single line, without usage text.

    ``default_part``: part of a command line that names none.
    """

    def __init__(self, *, default_part: str | None = None, **options: Any) -> None:
        super().__init__(formatter_class=_Help, **options)
        self._default_part = default_part

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does; insert the default part before arguments that name no part."""
        if self._default_part and args and not self._names_part(args[0]):
            args = [self._default_part, *args]
        return super().parse_known_args(args, namespace)

    def _names_part(self, word: str) -> bool:
        return any(word == part.name for part in parts_of(self)) or word in self._option_string_actions

    def error(self, message: str) -> NoReturn:
        """Raise InputError in place of exiting."""
        raise InputError(f"{message} ({self.prog} --help lists the options)")


@dataclass(frozen=True)
class Part:
    """A command below another one, such as ``train`` below ``ps``. ``help``: one line; None: not listed."""

    name: str
    parser: argparse.ArgumentParser
    help: str | None


def parts_of(parser: argparse.ArgumentParser) -> list[Part]:
    """Return the commands below a command, in the order of their declaration; none if it has none."""
    parts = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            texts = {choice.dest: choice.help for choice in action._choices_actions}
            listed = {name: text for name, text in texts.items() if text != argparse.SUPPRESS}
            parts += [Part(name, child, listed.get(name)) for name, child in action.choices.items()]
    return parts


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options and arguments of a command, in the order of their declaration."""
    return list(parser._actions)


def groups_of(parser: argparse.ArgumentParser) -> list[tuple[str, list[argparse.Action]]]:
    """Return the headings of a command's help, each with its options; "" for options without a heading."""
    unnamed = ("options", "positional arguments")
    return [
        ("" if group.title in unnamed else group.title or "", list(group._group_actions))
        for group in parser._action_groups
    ]


def is_listed(action: argparse.Action) -> bool:
    """Return whether help lists an option, apart from ``--help`` itself."""
    return not isinstance(action, argparse._HelpAction) and action.help != argparse.SUPPRESS


def is_repeatable(action: argparse.Action) -> bool:
    """Return whether an option may be given several times."""
    return isinstance(action, argparse._AppendAction)


def value_names(action: argparse.Action) -> Sequence[str]:
    """Return the placeholders of an option's values in help; none for a flag."""
    if action.nargs == 0:
        return ()
    metavar = action.metavar or "{" + ",".join(map(str, action.choices or ())) + "}"
    return (metavar,) if isinstance(metavar, str) else metavar
