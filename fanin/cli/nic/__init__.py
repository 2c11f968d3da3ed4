"""``fanin nic``: nodes at Linux interfaces; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.nic import run, show, write

PARTS = (run, write, show)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "nic",
        help="run nodes at Linux interfaces",
        description="Emitted nodes, or their golden models, at this machine's network interfaces.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
