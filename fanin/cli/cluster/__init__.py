"""``fanin cluster``: CNNs on the devices that ``fanin plan`` places them on; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.cluster import build, check, export, init, resume, run, verify

PARTS = (init, build, verify, run, resume, check, export)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "cluster",
        help="build and train a planned CNN",
        description="Build what a plan places, train it on images, check every bit, and export the result.",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
