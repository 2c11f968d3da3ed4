"""``fanin codec``: the gradient codecs on files, and their hardware against NumPy; a part per file."""

from __future__ import annotations

import argparse

from fanin.cli.codec import convert, gradients, stats, verify

PARTS = (convert, stats, gradients, verify)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, its parts."""
    parser = commands.add_parser(
        "codec",
        help="run gradient codecs on files, and check their RTL",
        description="Compress gradients as the hardware does, and check the hardware against NumPy. "
        "Values are files of raw binary32, lowest byte first, or NumPy's .npy of float32 (float64 is rounded "
        "to the nearest float32).",
    )
    parts = parser.add_subparsers(title="parts", metavar="PART", required=True)
    for part in PARTS:
        part.add_parser(parts)
