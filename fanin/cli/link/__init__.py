"""``fanin link``: commands of the reliable link; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.link import check

PARTS = (check,)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "link",
        help="check the reliable link's protocol",
        description="The reliable link between two neighbours of a ring, or two devices of a cluster.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
