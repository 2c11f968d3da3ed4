"""docs/reference/commands.md: an index of the commands. docs/reference/commands: a page per command group.

The parser, not the tables of options, is the source: half of the commands have no table.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator

from fanin.cli.main import build_parser
from fanin.cli.options import TableAction
from fanin.cli.parser import groups_of, is_listed, parts_of, value_names

INDEX = """# Commands

Generated from each command's `--help` by `docs/generate.py`. `python -m fanin` is the same command as `fanin`.
Exit status: 0 done, 1 a check failed, 2 bad input, with one line on stderr.

"""
PAGE = """# fanin {name}

Generated from `fanin {name} --help` by `docs/generate.py`. [All commands](../commands.md).{more}
"""
MORE = {"verilog": " [All components](../nodes.md#all-components)."}  # links of a page, by command group

Table = Callable[[list[list[str]]], str]


def pages(markdown: Table) -> dict[str, Callable[[], str]]:
    """Return the writer of each page, by its path in docs/reference. ``markdown`` makes a table."""
    groups = dict(_children(build_parser()))
    made = {f"commands/{name}.md": _writer(name, parser, markdown) for name, (parser, _) in groups.items()}
    return {"commands.md": lambda: _index(groups, markdown), **made}


Groups = dict[str, tuple[argparse.ArgumentParser, str]]


def _index(groups: Groups, markdown: Table) -> str:
    rows = [["command", "purpose"]]
    for name, (parser, text) in groups.items():
        for leaf, purpose in _leaves(parser, text):
            anchor = "" if leaf is parser else f"#{leaf.prog.replace(' ', '-')}"
            rows.append([f"[`{leaf.prog}`](commands/{name}.md{anchor})", _escaped(purpose)])
    return INDEX + markdown(rows) + "\n"


def _writer(name: str, parser: argparse.ArgumentParser, markdown: Table) -> Callable[[], str]:
    def page() -> str:
        parts = [PAGE.format(name=name, more=MORE.get(name, ""))]
        for leaf, _ in _leaves(parser, ""):
            heading = "" if leaf is parser else f"\n## {leaf.prog}\n"
            parts.append(heading + _command(leaf, markdown))
        return "".join(parts)

    return page


def _command(parser: argparse.ArgumentParser, markdown: Table) -> str:
    """Return a command's description, and its options by group."""
    parts = [f"\n{_escaped(parser.description or '')}\n"]
    for title, options in groups_of(parser):
        if listed := [option for option in options if is_listed(option)]:
            heading = f"**{title}**" if title else ""
            rows = [[heading, ""], *([_option(option), _meaning(option)] for option in listed)]
            parts.append(f"\n{markdown(rows)}\n")
    return "".join(parts)


def _children(parser: argparse.ArgumentParser) -> Iterator[tuple[str, tuple[argparse.ArgumentParser, str]]]:
    """Yield name, parser and one-line help of the commands of a parser, in order."""
    for part in parts_of(parser):
        if part.help is not None:
            yield part.name, (part.parser, part.help)


def _leaves(parser: argparse.ArgumentParser, text: str) -> Iterator[tuple[argparse.ArgumentParser, str]]:
    """Yield the commands without commands of their own, and their one-line help, in order."""
    deeper = list(_children(parser))
    if not deeper:
        yield parser, text
    for _, child in deeper:
        yield from _leaves(*child)


def _option(option: argparse.Action) -> str:
    """Return an option or argument as it is written on the command line."""
    names = ", ".join(option.option_strings)
    return f"`{' '.join(filter(None, (names, *value_names(option))))}`".replace("|", "\\|")


def _meaning(option: argparse.Action) -> str:
    if isinstance(option, TableAction):
        return _escaped(option.help or "")
    has_default = option.default not in (None, argparse.SUPPRESS) and not isinstance(
        option.default, bool | list
    )
    default = f" (default: {option.default})" if has_default and "%(default)" not in (option.help or "") else ""
    return _escaped((option.help or "") + default)


def _escaped(text: str) -> str:
    """Return help as Markdown, with the characters of markup escaped."""
    return re.sub(r"([|<>*_])", r"\\\1", text.replace("%%", "%"))
