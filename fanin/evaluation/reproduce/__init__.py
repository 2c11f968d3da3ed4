"""``fanin reproduce``: reproduction of the papers' figures and tables, number by number."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.runs.output import add_json


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "reproduce",
        help="the five papers' figures and tables, number by number",
        description="Measure what the papers print: run the commands that fill the rows, each once, and write "
        "a page and a table of what is claimed and what was found. A run that was stopped goes on in DIR.",
    )
    parser.add_argument(
        "what", nargs="*", metavar="PAPER[/FIGURE]", help="p4sgd, inceptionn/12, … (default: all; --list)"
    )
    parser.add_argument("--list", action="store_true", help="print the rows, and measure nothing")
    parser.add_argument("--quick", action="store_true", help="smaller measurements: minutes, not hours")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=PATH", help="a data set of a paper's; repeatable"
    )
    parser.add_argument(
        "--from",
        dest="others",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="DIR",
        help="folders of other runs, whose measurements are taken",
    )
    parser.add_argument(
        "-o", dest="output", type=Path, default=Path("reproduction"), metavar="DIR", help="folder"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure the rows. Raises InputError; CheckFailed where a row stays empty."""
    from fanin.evaluation.reproduce.execute import execute  # Jinja and the pages need not be loaded for --help

    return execute(args)
