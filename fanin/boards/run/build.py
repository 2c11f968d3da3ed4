"""Execution of ``fanin board build``: check, elaborate, place, report, write."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fanin import __version__
from fanin.base.errors import CheckFailed, InputError, ToolFailed
from fanin.base.scratch import write_file
from fanin.boards.area import check_fits
from fanin.boards.facts import DEVICES, MEMORIES
from fanin.boards.memory import memory_of, node_of
from fanin.boards.run.folder import (
    BITSTREAM_FILE,
    BOARD_BUILD,
    BOARD_FILE,
    GLM,
    NUMBER,
    PROJECT,
    REPORT_FILE,
    SDRAM,
    SEED,
    SHELL,
)
from fanin.boards.run.report import report_text
from fanin.boards.sdram import Sdram
from fanin.glm.facts import PRESETS, GlmConfig
from fanin.hdl.boards.board import Board, Flow, find_board
from fanin.hdl.boards.build import (
    BITSTREAM,
    MAX_PLACE_SEED,
    NETLIST,
    Step,
    Tools,
    extract,
    make_plan,
    run_step,
    steps,
)
from fanin.hdl.boards.clocks import MAX_OUTPUT_MHZ
from fanin.hdl.boards.identity import Identity, build_number
from fanin.hdl.boards.report import PlacementReport, read_report
from fanin.hdl.boards.sdram.core import check_installed
from fanin.hdl.boards.top import BoardTop, core_dividers
from fanin.hdl.boards.vendor.project import CARDS, make_project
from fanin.runs.file_options import Request
from fanin.runs.output import check_directory, print_json
from fanin.runs.progress import StatusLine
from fanin.runs.provenance.document import run_directory
from fanin.sim.boards.crossings import CrossingReport, UnsafeCrossings, check_crossings
from fanin.wire.aggregation import MAX_WORKERS
from fanin.wire.ethernet import Encap

STEP_TIMEOUT_S = 7200
LOG_SUFFIX = ".failed.log"  # appended to the output's name, for the log of a failed step


def execute(args: argparse.Namespace) -> int:
    """Build the design. Raises CheckFailed for missed timing or unsafe clock crossings."""
    design = _design(args)
    if args.place and design.board.flow is Flow.OPEN:
        return _place(args, design, Tools.find())
    with run_directory(args.output, BOARD_BUILD, Request.parsed(args)) as folder, StatusLine() as status:
        status.show(f"{design.board.name}: elaborating")
        extract(_plan(design), _project(folder))
        _write(folder / BOARD_FILE, design.description)
    if args.json:
        print_json(design.description)
    else:
        print(f"{args.output / PROJECT}: {'build_top.sh runs the tools' if args.place else 'not placed'}")
    return 0


@dataclass(frozen=True)
class _Design:
    """Design to build.

    - ``board``: the board.
    - ``config``: parameters of its GLM node; None: no GLM node.
    - ``sdram``: SDRAM of the node's memories; None: block RAM.
    - ``identity``: identity of the board in the network.
    - ``core_mhz``: maximum core clock in MHz: ``--core-mhz``, or the board's default.
    - ``clock_mhz``: core clock in MHz that the PLL makes, at most ``core_mhz``. For a card: ``core_mhz``.
    - ``seed``: seed of place and route.
    - ``description``: content of ``board.json``.
    """

    board: Board
    config: GlmConfig | None
    sdram: Sdram | None
    identity: Identity
    core_mhz: float
    clock_mhz: float
    seed: int
    description: dict[str, Any]


def _design(args: argparse.Namespace) -> _Design:
    """Return the design of the options. Raises InputError or DoesNotFit before any long step."""
    board = find_board(args.board)
    card = CARDS.get(board.name)  # a vendor's card has its own node, without BoardTop
    _check_options_apply(args, board)
    node = args.node or (card.kind if card else GLM)
    preset = board.preset if args.preset is None else args.preset
    seed = SEED if args.seed is None else args.seed
    number = NUMBER if args.number is None else args.number
    config = None if card or node == SHELL else _config(preset, l2=args.l2, sparse=args.sparse)
    core_mhz = board.core_mhz if args.core_mhz is None else args.core_mhz
    clock = board.core_mhz if card else _clock(board, core_mhz)
    sdram = _sdram(board, config, core_mhz) if args.memory == SDRAM else None
    if config is not None:
        memory = memory_of(config, sdram)
        config = node_of(config, memory)
        if board.device in DEVICES:
            check_fits(config, board.device, memory)
    if sdram:
        check_installed()
    if not 0 <= number < MAX_WORKERS:
        raise InputError(f"number must be in 0…{MAX_WORKERS - 1}, not {number}")
    if not 0 <= seed <= MAX_PLACE_SEED:
        raise InputError(f"seed must be in 0…{MAX_PLACE_SEED}, not {seed}")
    check_directory(args.output, BOARD_BUILD)
    identity = Identity.of(board, number=number, build=build_number(board, config, seed, core_mhz, args.memory))
    description = {
        "fanin": __version__,
        "board": board.name,
        "node": node,
        "preset": preset if card or config else None,
        "l2": args.l2,
        "sparse": args.sparse,
        "memory": args.memory,
        "core_mhz": clock,
        "seed": seed if board.flow is Flow.OPEN else None,
        "identity": identity.as_json(),
    }
    return _Design(board, config, sdram, identity, core_mhz, clock, seed, description)


def _check_options_apply(args: argparse.Namespace, board: Board) -> None:
    """Raise InputError for an option that does not apply to the board or the node."""
    card = CARDS.get(board.name)
    sizes = args.preset is not None
    options = args.l2 or args.sparse or sizes
    if card and (options or args.node not in (None, card.kind) or args.core_mhz is not None):
        fixed = f"{board.preset} at {board.core_mhz:g} MHz"
        raise InputError(f"{board.name}: the only node is {fixed}")
    if card and args.number is not None:
        raise InputError(f"{board.name}: --number does not apply: the host sets the node's addresses")
    if args.node == SHELL and options:
        absent, option = ("sizes", "--preset") if sizes else ("samples", "--sparse")
        if args.l2:
            absent, option = "weights", "--l2"
        raise InputError(f"a shell has no {absent}: {option} is for a node")
    if board.flow is not Flow.OPEN and (args.allow_slow or args.seed is not None):
        option = "--allow-slow" if args.allow_slow else "--seed"
        raise InputError(f"{board.name}: its vendor's tool places and routes: {option} is for other boards")
    if args.allow_slow and not args.place:
        raise InputError("--no-place writes no bitstream: --allow-slow is for one that misses timing")


def _clock(board: Board, core_mhz: float) -> float:
    """Return the PLL's clock in MHz for a requested clock. Raises InputError if the PLL cannot make it."""
    if not 0 < core_mhz <= MAX_OUTPUT_MHZ:
        raise InputError(f"core-mhz must be in (0, {MAX_OUTPUT_MHZ}], not {core_mhz:g}")
    try:
        dividers = core_dividers(board, board.make_platform(), core_mhz)
    except ValueError as error:
        raise InputError(f"{board.name}: {error}") from None
    return float(dividers.core_mhz)


def _sdram(board: Board, config: GlmConfig | None, core_mhz: float) -> Sdram:
    """Return the board's SDRAM for a node. Raises InputError if it is absent, or too slow for the clock."""
    if board.sdram is None:
        raise InputError(f"{board.name}: has no SDR SDRAM; DDR would need a CPU that calibrates it")
    if config is None:
        raise InputError("a shell has no samples: --memory is for a node")
    board.sdram.timing(core_mhz * 1e6)
    return board.sdram


def _plan(design: _Design) -> Any:
    """Return Amaranth's build plan of a design."""
    board = design.board
    top = None
    if board.name not in CARDS:
        top = BoardTop(
            board=board,
            config=design.config,
            identity=design.identity,
            core_mhz=design.core_mhz,
            sdram=design.sdram,
        )
    if board.flow is Flow.OPEN:
        return make_plan(board, top, seed=design.seed)
    return make_project(board, top=top)


def _show(status: StatusLine, step: str, seconds: float) -> None:
    status.show(f"{step}, {seconds:,.0f} s")


def _project(folder: Path) -> Path:
    project = folder / PROJECT
    project.mkdir()
    return project


def _place(args: argparse.Namespace, design: _Design, tools: Tools) -> int:
    """Place and route a design, after a check of the netlist's clock crossings; return the exit status."""
    with run_directory(args.output, BOARD_BUILD, Request.parsed(args)) as folder, StatusLine() as status:
        project = _project(folder)
        status.show(f"{design.board.name}: elaborating")
        plan = _plan(design)
        extract(plan, project)
        seconds_by_step = {}
        for step in steps(plan, tools):
            start = time.monotonic()
            _run_step(step, project, args.output, partial(_show, status, f"{design.board.name}: {step.title}"))
            if step.makes == NETLIST:
                crossings = _check_crossings(project / NETLIST, args.output)
            seconds_by_step[step.title] = round(time.monotonic() - start, 1)
        placement = read_report(project, design.clock_mhz)
        missed = [clock for clock in placement.clocks if not clock.is_met]
        if not missed or args.allow_slow:
            shutil.copy(project / BITSTREAM, folder / BITSTREAM_FILE)
        (project / BITSTREAM).unlink()
        report = {"tools": tools.versions(), "seconds": seconds_by_step, **placement.as_json()}
        report["crossings"] = len(crossings.crossings)
        _write(folder / BOARD_FILE, design.description)
        _write(folder / REPORT_FILE, design.description | report)
    if args.json:
        print_json(design.description | report)
    else:
        print(report_text(placement))
        print(f"\n{len(crossings.crossings)} crossings between clocks, all through synchronisers")
    if missed and not args.allow_slow:
        raise CheckFailed(_missed_timing(placement, missed, args.output))
    return 0


def _run_step(step: Step, project: Path, output: Path, tick: Callable[[float], None]) -> None:
    """Run a step. If it fails, keep its log and raise ToolFailed."""
    try:
        run_step(step, project, timeout=STEP_TIMEOUT_S, tick=tick)
    except ToolFailed as error:
        note = _keep_log(output, (project / step.log).read_bytes())
        raise ToolFailed(f"{error}{note}") from None


def _check_crossings(netlist: Path, output: Path) -> CrossingReport:
    """Check the netlist's clock crossings. Raises CheckFailed with the first fault, and keeps a list of all."""
    try:
        return check_crossings(netlist)
    except UnsafeCrossings as error:
        report = error.report
        note = _keep_log(output, report.summary(len(report.faults)).encode())
        raise CheckFailed(f"{output}: {report.summary(1)}{note}") from None


def _keep_log(output: Path, text: bytes) -> str:
    """Write the log of a failed build beside the output; return the error's note on the log."""
    log = Path(f"{output}{LOG_SUFFIX}")
    try:
        write_file(log, text)
    except InputError as error:  # report the build's own failure first
        return f" ({error})"
    return f" ({log} says more)"


def _config(preset: str, *, l2: bool = False, sparse: bool = False) -> GlmConfig:
    """Return the preset's node with UDP encapsulation. ``l2``: with weight decay. ``sparse``: a sparse node."""
    if preset not in MEMORIES:
        raise InputError(f"no preset {preset!r} for boards; there are {', '.join(MEMORIES)}")
    return dataclasses.replace(PRESETS[preset], encap=Encap.UDP, l2=l2, sparse=sparse)


def _missed_timing(placement: PlacementReport, missed: list[Any], output: Path) -> str:
    """Return the error for missed timing: the clocks, and the worst path of the first one."""
    clocks = ", ".join(f"{c.domain} reaches {c.achieved_mhz:.1f} of {c.required_mhz:.1f} MHz" for c in missed)
    path = next((str(path) for path in placement.paths if path.domain == missed[0].domain), "")
    return f"{output}: timing is missed: {clocks}; {path}; no bitstream (--allow-slow writes it)"


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")
