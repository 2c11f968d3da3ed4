"""``fanin campaign``: many runs of one command, and comparison of two campaigns; a part per file."""

from __future__ import annotations

import argparse
from typing import Any

from fanin.campaign import compare, run

PARTS = (run, compare)


def add_parser(commands: argparse._SubParsersAction[Any], cli_parser: argparse.ArgumentParser) -> None:
    """Declare the command and its parts; ``cli_parser``, fanin's own, checks the command lines of the runs."""
    parser = commands.add_parser(
        "campaign",
        default_part="run",
        help="carry out many runs over options and seeds, on many cores or machines",
        description="Carry out a command over a grid of its options and over seeds, by Dask, and compare "
        "the results. ``fanin campaign FILE`` is ``fanin campaign run FILE``.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts, cli_parser)
