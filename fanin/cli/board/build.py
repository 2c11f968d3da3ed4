"""``fanin board build``: a node placed and routed for a board."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.boards.run.folder import MEMORY, NODES, NUMBER, SEED
from fanin.runs.file_options import FileOptions
from fanin.runs.output import add_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "build",
        help="build a bitstream for a board",
        description="Place and route a node with its MAC and its control for a board. Missed timing "
        "is an error; the report names the path. For a vendor's board, write the project of its tool.",
    )
    parser.add_argument("board", metavar="BOARD", help="a board of fanin board list")
    parser.add_argument("--node", choices=NODES, help="glm, or the shell alone; a node by default")
    parser.add_argument("--preset", metavar="P", help="sizes of the node; the board's by default")
    parser.add_argument(
        "--l2",
        action="store_true",
        help="weights can decay, for fanin train --l2: a shifter for each lane of the node",
    )
    parser.add_argument(
        "--sparse",
        action="store_true",
        help="a sparse node, which reads only chunks that are not all zero: samples of LIBSVM files",
    )
    parser.add_argument(
        "--memory",
        choices=MEMORY,
        default=MEMORY[0],
        help="memory of samples, labels and lists: block RAM, or SDRAM (pip install 'fanin[sdram]')",
    )
    parser.add_argument(
        "--core-mhz", type=float, metavar="F", help="highest clock of the core; the board's by default"
    )
    parser.add_argument(
        "--number",
        type=int,
        metavar="N",
        help=f"number of the board, which decides its addresses (default: {NUMBER})",
    )
    parser.add_argument("--seed", type=int, metavar="N", help=f"seed of place and route (default: {SEED})")
    parser.add_argument(
        "--no-place",
        dest="place",
        action="store_false",
        help="write the project only, as fanin board simulate --source needs",
    )
    parser.add_argument(
        "--allow-slow", action="store_true", help="write the bitstream even if timing is missed"
    )
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="BUILD", required=True, help="the build's folder"
    )
    add_json(parser)
    parser.set_defaults(run=run, files=FileOptions())


def run(args: argparse.Namespace) -> int:
    """Build, and write the folder."""
    from fanin.boards.run.build import execute

    return execute(args)
