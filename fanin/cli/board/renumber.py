"""``fanin board renumber``: a finished build with another board's addresses, in seconds."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.plain import copy_plain
from fanin.base.records import open_record
from fanin.boards.run.folder import (
    BITSTREAM_FILE,
    BOARD_BUILD,
    BOARD_FILE,
    PROJECT,
    REPORT_FILE,
    open_build,
)
from fanin.runs.file_options import FileOptions, Request
from fanin.runs.output import add_json, check_directory, print_json
from fanin.runs.progress import StatusLine
from fanin.runs.provenance.document import run_directory
from fanin.wire.aggregation import MAX_WORKERS

_PACKING_S = 600


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "renumber",
        help="make a build for another board, without place and route",
        description="Write a finished build with the addresses of another board of the cluster. Logic, places "
        "and timing stay; the flip-flops of the addresses start with other values.",
    )
    parser.add_argument("build", type=Path, metavar="BUILD", help="the folder of fanin board build")
    parser.add_argument(
        "number", type=int, metavar="N", help="number of the board, which decides its addresses"
    )
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="BUILD", required=True, help="the new build's folder"
    )
    add_json(parser)
    parser.set_defaults(run=run, files=FileOptions(inputs=("build",)))


def run(args: argparse.Namespace) -> int:
    """Change the number in the build, pack the bitstream, and write the new folder. Raises InputError."""
    from fanin.hdl.boards.board import find_board
    from fanin.hdl.boards.build import BITSTREAM, NETLIST, ROUTED, TIMING, Tools, packing, run_step
    from fanin.hdl.boards.identity import Identity
    from fanin.hdl.boards.renumber import renumber

    build = open_build(args.build)
    if not 0 <= args.number < MAX_WORKERS:
        raise InputError(f"N must be in 0…{MAX_WORKERS - 1}, not {args.number}")
    board = find_board(build.record.text("board"))
    identity = build.record.record("identity")
    old_identity = Identity(
        **{field.name: identity.integer(field.name) for field in dataclasses.fields(Identity)}
    )
    new_identity = Identity.of(board, number=args.number, build=old_identity.build)
    if not (build.project / ROUTED).is_file():
        raise InputError(f"{args.build}: was not placed; fanin board build --number makes another")
    if args.output.resolve() == args.build.resolve():
        raise InputError(f"{args.output}: is the build itself; -o takes another folder")
    check_directory(args.output, BOARD_BUILD)
    has_bitstream = (args.build / BITSTREAM_FILE).is_file()
    with run_directory(args.output, BOARD_BUILD, Request.parsed(args)) as folder, StatusLine() as status:
        project = folder / PROJECT
        project.mkdir()
        status.show(f"{board.name}: other addresses")
        renumber(build.project, old_identity, new_identity, project)
        for name in (NETLIST, TIMING):
            copy_plain(build.project, project, name)
        if has_bitstream:
            run_step(packing(Tools.find().ecppack), project, timeout=_PACKING_S)
            (project / BITSTREAM).rename(folder / BITSTREAM_FILE)
        for name in (BOARD_FILE, REPORT_FILE):
            content = open_record(args.build / name).value | {"identity": new_identity.as_json()}
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    if args.json:
        facts = {"output": str(args.output), "number": args.number, "identity": new_identity.as_json()}
        print_json(facts | {"bitstream": has_bitstream})
    else:
        note = "" if has_bitstream else "; no bitstream, as timing was missed"
        print(f"{args.output}: number {args.number}{note}")
    return 0
