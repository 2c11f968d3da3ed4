"""``fanin reproduce``: reproduction of the papers' figures and tables, number by number."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.runs.output import add_json


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "reproduce",
        help="measure the figures and tables of the five papers",
        description="Measure the papers' figures: run the commands that fill the rows, each once, and write "
        "a page and a table of claimed and measured values. A stopped run continues in DIR.",
    )
    parser.add_argument(
        "what", nargs="*", metavar="PAPER[/FIGURE]", help="p4sgd, inceptionn/12, … (default: all; --list)"
    )
    parser.add_argument("--list", action="store_true", help="print the rows without measuring")
    parser.add_argument("--quick", action="store_true", help="smaller measurements: minutes, not hours")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME=PATH", help="data set of a paper; repeatable"
    )
    parser.add_argument(
        "--from",
        dest="others",
        action="extend",
        nargs="+",
        type=Path,
        default=[],
        metavar="DIR",
        help="folders of other runs, to reuse their measurements",
    )
    parser.add_argument(
        "-o", dest="output", type=Path, default=Path("reproduction"), metavar="DIR", help="output folder"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure the rows. Raises InputError; CheckFailed where a row stays empty."""
    from fanin.evaluation.reproduce.execute import execute  # Jinja and the pages need not be loaded for --help

    return execute(args)
