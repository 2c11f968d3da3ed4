"""``fanin p4``: the switch program and the aggregation protocol; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.p4 import allreduce, check, emit, job, run, serve, stf, tree

PARTS = (emit, tree, check, allreduce, run, stf, serve, job)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "p4",
        help="emit, execute and check the switch program",
        description="The switch program of in-network aggregation, and the protocol that it speaks.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
