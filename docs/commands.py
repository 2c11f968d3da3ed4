"""docs/reference/commands.md: every command with its options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator

from fanin.cli.main import build_parser
from fanin.cli.options import TableAction

COMMANDS = """# Commands

Generated from each command's `--help` by `docs/generate.py`. `python -m fanin` is the same command as `fanin`.
Exit status: 0 done, 1 a check failed, 2 bad input, which takes one line.
"""


def commands_page(markdown: Callable[[list[list[str]]], str]) -> str:
    """Every command with its options, as ``--help`` has them. ``markdown``: makes a table."""
    parts = [COMMANDS]
    for parser in _leaves(build_parser()):
        parts.append(f"\n## {parser.prog}\n\n{_said(parser.description or '')}\n")
        for group in parser._action_groups:
            actions = [
                action
                for action in group._group_actions
                if not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS
            ]
            if actions:
                title = "" if group.title in ("options", "positional arguments") else f"**{group.title}**"
                rows = [[title, ""], *([_option(action), _meaning(action)] for action in actions)]
                parts.append(f"\n{markdown(rows)}\n")
    return "".join(parts)


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The commands below a parser that do something themselves, in order."""
    deeper = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not deeper:
        yield parser
    for action in deeper:
        for child in action.choices.values():
            yield from _leaves(child)


def _option(action: argparse.Action) -> str:
    """How an option or argument is written."""
    metavar = action.metavar or "{" + ",".join(map(str, action.choices or ())) + "}"
    value = "" if action.nargs == 0 else metavar if isinstance(metavar, str) else " ".join(metavar)
    names = ", ".join(action.option_strings)
    return f"`{' '.join(filter(None, (names, value)))}`".replace("|", "\\|")


def _meaning(action: argparse.Action) -> str:
    if isinstance(action, TableAction):
        return _said(action.help or "")
    shown = action.default not in (None, argparse.SUPPRESS) and not isinstance(action.default, bool | list)
    default = f" (default: {action.default})" if shown and "%(default)" not in (action.help or "") else ""
    return _said((action.help or "") + default)


def _said(text: str) -> str:
    """Help as Markdown: what would be markup there is none here."""
    return re.sub(r"([|<>*_])", r"\\\1", text.replace("%%", "%"))
