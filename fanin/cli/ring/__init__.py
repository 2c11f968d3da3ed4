"""``fanin ring``: all-reduces over the ring of NICs; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.ring import check, run, train

PARTS = (train, run, check)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "ring",
        help="train and all-reduce over a ring of NICs",
        description="Nodes whose NICs add their gradients up, around a ring, while the hosts compute.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
