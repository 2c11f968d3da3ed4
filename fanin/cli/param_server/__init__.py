"""``fanin ps``: the asynchronous parameter server; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.param_server import train

PARTS = (train,)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "ps",
        help="train with an asynchronous parameter server",
        description="A parameter server that workers write gradients into, and that writes the model back.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
