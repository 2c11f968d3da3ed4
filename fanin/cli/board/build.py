"""``fanin board build``: a node placed and routed for a board."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.boards.run.folder import MEMORY, NODES, NUMBER, SEED
from fanin.runs.files import Files
from fanin.runs.output import add_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "build",
        help="a bitstream for a board",
        description="Place and route a node with its MAC and its control for a board. Timing that is missed "
        "is an error; the report tells which path. For a vendor's board, write what its tool opens.",
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
        "--memory",
        choices=MEMORY,
        default=MEMORY[0],
        help="where samples and labels lie: in block RAM, or in the board's SDRAM (pip install 'fanin[sdram]')",
    )
    parser.add_argument(
        "--core-mhz", type=float, metavar="F", help="clock of the core, at most; the board's by default"
    )
    parser.add_argument(
        "--number", type=int, metavar="N", help=f"of the board: it decides its addresses (default: {NUMBER})"
    )
    parser.add_argument("--seed", type=int, metavar="N", help=f"where place and route starts (default: {SEED})")
    parser.add_argument(
        "--no-place",
        dest="place",
        action="store_false",
        help="write the project alone: enough for fanin board simulate --source",
    )
    parser.add_argument("--allow-slow", action="store_true", help="write the bitstream though timing is missed")
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="BUILD", required=True, help="the build's folder"
    )
    add_json(parser)
    parser.set_defaults(run=run, files=Files())


def run(args: argparse.Namespace) -> int:
    """Build, and write the folder."""
    from fanin.boards.run.build import execute

    return execute(args)
