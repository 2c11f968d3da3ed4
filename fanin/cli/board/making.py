"""What ``fanin board build`` does with its options: check, elaborate, place, report, write."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import time
from pathlib import Path
from typing import Any

from fanin import __version__
from fanin.boards import MEMORIES
from fanin.cli.board.builds import BITSTREAM_FILE, BOARD_BUILD, BOARD_FILE, PROJECT, REPORT_FILE
from fanin.cli.board.report import text
from fanin.cli.output import check_directory, output_directory
from fanin.cli.progress import StatusLine
from fanin.errors import CheckFailed, InputError
from fanin.glm import PRESETS, GlmConfig
from fanin.hdl.boards.board import Board, find_board
from fanin.hdl.boards.build import BITSTREAM, Tools, extract, make_plan, run_step, steps
from fanin.hdl.boards.identity import Identity, build_number
from fanin.hdl.boards.report import Placed, read_report
from fanin.hdl.boards.top import BoardTop
from fanin.wire.ethernet import Encap

STEP_TIMEOUT_S = 7200


def execute(args: argparse.Namespace) -> int:
    """Carry out the command. Raises CheckFailed where timing is missed."""
    board = find_board(args.board)
    config = None if args.node == "shell" else _config(args.preset or board.preset)
    core_mhz = board.core_mhz if args.core_mhz is None else args.core_mhz
    check_directory(args.output, BOARD_BUILD)
    tools = Tools.find()
    identity = Identity.of(board, number=args.number, build=build_number(board, config, args.seed, core_mhz))
    with output_directory(args.output, BOARD_BUILD) as folder, StatusLine() as status:
        project = folder / PROJECT
        project.mkdir()
        status.show(f"{board.name}: elaborating")
        top = BoardTop(board=board, config=config, identity=identity, core_mhz=core_mhz)
        plan = make_plan(board, top, seed=args.seed)
        extract(plan, project)
        took = {}
        for step in steps(plan, tools):
            began = time.monotonic()
            run_step(
                step,
                project,
                timeout=STEP_TIMEOUT_S,
                tick=lambda second, title=step.title: status.show(f"{board.name}: {title}, {second:,} s"),
            )
            took[step.title] = round(time.monotonic() - began, 1)
        placed = read_report(project)
        missed = [clock for clock in placed.clocks if not clock.met]
        if not missed or args.allow_slow:
            shutil.copy(project / BITSTREAM, folder / BITSTREAM_FILE)
        (project / BITSTREAM).unlink()
        description = _description(args, board, config, identity, core_mhz)
        reached = {"tools": tools.versions(), "seconds": took, **placed.as_json()}
        _write(folder / BOARD_FILE, description)
        _write(folder / REPORT_FILE, description | reached)
    print(text(placed))
    if missed and not args.allow_slow:
        raise CheckFailed(_missed(placed, missed, args.output))
    return 0


def _config(preset: str) -> GlmConfig:
    """The preset's node, with packets that routers and hosts understand."""
    if preset not in MEMORIES:
        raise InputError(f"no preset {preset!r} for boards; there are {', '.join(MEMORIES)}")
    return dataclasses.replace(PRESETS[preset], encap=Encap.UDP)


def _description(
    args: argparse.Namespace, board: Board, config: GlmConfig | None, identity: Identity, core_mhz: float
) -> Any:
    return {
        "fanin": __version__,
        "board": board.name,
        "node": args.node,
        "preset": config.name if config else None,
        "core_mhz": core_mhz,
        "seed": args.seed,
        "identity": identity.as_json(),
    }


def _missed(placed: Placed, missed: list[Any], output: Path) -> str:
    """Which clocks, and the worst path of the first."""
    clocks = ", ".join(f"{c.domain} reaches {c.reached:.1f} of {c.asked:.1f} MHz" for c in missed)
    path = next((str(path) for path in placed.paths if path.domain == missed[0].domain), "")
    return f"{output}: timing is missed: {clocks}; {path}; no bitstream (--allow-slow writes it)"


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
