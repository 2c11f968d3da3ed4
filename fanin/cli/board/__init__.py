"""``fanin board``: emitted nodes on boards; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.board import build, flash, hosts, listing, renumber, report, simulate

PARTS = (listing, build, renumber, report, simulate, flash, hosts)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "board",
        help="build, flash and control nodes on FPGA boards",
        description="A node with its MAC and its control on a board: placed, routed, reported, run.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
