"""``fanin nic``: nodes at Linux interfaces; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.nic import run, show, write

PARTS = (run, write, show)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "nic",
        help="NICs at Linux interfaces",
        description="Emitted NICs, or their NumPy twins, between this machine's network stacks and a wire.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
