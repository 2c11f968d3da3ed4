"""``fanin board simulate``: netlists of boards in Verilator, at UDP ports of this machine."""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.boards.run.folder import SDRAM, BoardBuild, open_build
from fanin.link import FAULTS

FIRST_ADDRESS = "127.0.0.2"
MAX_PPM = 1000  # ten times Ethernet's limit


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "simulate",
        help="run routed netlists at UDP ports, for ping, status and training",
        description="Run the routed netlists of builds in Verilator, as boards on one switch, until the "
        "command is interrupted. Each board has an address of this machine, from --listen on.",
    )
    parser.add_argument("builds", nargs="+", type=Path, metavar="BUILD", help="folders of fanin board build")
    parser.add_argument(
        "--listen", default=FIRST_ADDRESS, metavar="ADDRESS", help="address of the first board on this machine"
    )
    parser.add_argument("--tap", metavar="NAME", help="TAP device on the boards' network")
    parser.add_argument(
        "--source", action="store_true", help="simulate the builds' RTL instead of their netlists"
    )
    parser.add_argument(
        "--ppm",
        type=float,
        default=50.0,
        metavar="F",
        help="frequency offsets of the boards' clocks, in millionths",
    )
    for fault in FAULTS:
        parser.add_argument(f"--{fault}", type=float, default=0.0, metavar="P", help="probability per frame")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of faults and phases")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Simulate until interrupted."""
    from fanin.runs.progress import StatusLine
    from fanin.sim.boards.board import Boards
    from fanin.sim.boards.hosts import addresses
    from fanin.sim.boards.world import World

    builds = [open_build(folder) for folder in args.builds]
    for build in builds:
        _check_can_run(build, source=args.source)
    _check_distinct(builds)
    if not -MAX_PPM <= args.ppm <= MAX_PPM:
        raise InputError(f"ppm must be in -{MAX_PPM}…{MAX_PPM}, not {args.ppm:g}")
    listen_addresses = addresses(args.listen, len(builds))
    link = _link(args)
    configs = _configs(args, builds)
    hosts = _hosts(args, builds, listen_addresses)
    with Boards(configs, quiet=False) as boards:
        with StatusLine() as status:
            status.show("starting: the PHYs are in reset")
            boards.power_up()
        world = World(boards, hosts, link=link, seed=args.seed)
        try:
            for build, address in zip(builds, listen_addresses, strict=True):
                print(f"{address}  {build.record.text('board')}  {build.folder}", flush=True)
            print("simulating; interrupt to end", file=sys.stderr, flush=True)
            world.serve(lambda: False)
        finally:
            world.close()
    return 0


def _check_can_run(build: BoardBuild, *, source: bool) -> None:
    """Raise InputError for a build that cannot be simulated."""
    from fanin.hdl.boards.board import Flow, find_board
    from fanin.hdl.boards.build import ROUTED, SOURCE

    board = find_board(build.record.text("board"))
    if board.flow is not Flow.OPEN:
        raise InputError(
            f"{build.folder}: {board.name} cannot be simulated: its clocks and pins are the vendor's"
        )
    if not source and not (build.project / ROUTED).exists():
        raise InputError(f"{build.folder}: was not placed and has no netlist; --source simulates its RTL")
    if source and not (build.project / SOURCE).exists():
        raise InputError(f"{build.folder}: was renumbered and has no RTL; without --source its netlist runs")


def _check_distinct(builds: list[BoardBuild]) -> None:
    """Raise InputError for two boards with the same address, hence builds with the same --number."""
    folders: dict[int, Path] = {}
    for build in builds:
        address = build.record.record("identity").integer("ip")
        if address in folders:
            raise InputError(
                f"{build.folder}: has the address of {folders[address]}; "
                "fanin board build --number makes others"
            )
        folders[address] = build.folder


def _link(args: argparse.Namespace) -> Any:
    from fanin.sim.boards.world import GIGABIT

    try:
        return replace(GIGABIT, **{fault: getattr(args, fault) for fault in FAULTS})
    except ValueError as error:
        raise InputError(str(error)) from None


def _configs(args: argparse.Namespace, builds: list[BoardBuild]) -> list[Any]:
    """Return the boards' configurations. Clocks are alternately --ppm faster and slower, with random phases."""
    from fanin.hdl.boards.board import find_board
    from fanin.sim.boards.setup import board_config, project_model

    rng = random.Random(args.seed)
    configs = []
    for number, build in enumerate(builds):
        board = find_board(build.record.text("board"))
        model = project_model(build.project, routed=not args.source)
        if build.memory == SDRAM:
            model = _with_sdram(model, board, build)
        ppm = args.ppm * (-1) ** number
        configs.append(board_config(board, model, ppm=ppm, phase_ps=rng.randrange(8000)))
    return configs


def _with_sdram(model: Any, board: Any, build: BoardBuild) -> Any:
    """Return a board's model with its SDRAM. Raises InputError for a clock that the board cannot have."""
    from fanin.sim.boards.setup import with_sdram

    core_mhz = float(build.record.number("core_mhz"))
    if board.sdram is None or not core_mhz:
        raise build.record.error(f"{board.name} has no SDRAM at {core_mhz:g} MHz")
    return build.record.build(lambda: with_sdram(model, board, core_mhz))


def _hosts(args: argparse.Namespace, builds: list[BoardBuild], listening: list[str]) -> list[Any]:
    from fanin.job import SWITCH
    from fanin.sim.boards.hosts import BoardAddress, TapHost, UdpHost
    from fanin.wire.control import CONTROL_PORT
    from fanin.wire.ethernet import UDP_PORT, Endpoint

    boards = []
    for build, address in zip(builds, listening, strict=True):
        identity = build.record.record("identity")
        endpoint = Endpoint(identity.integer("mac", high=1 << 48), identity.integer("ip", high=1 << 32))
        boards.append(BoardAddress(endpoint, address))
    hosts: list[Any] = [UdpHost(SWITCH, boards, (CONTROL_PORT, UDP_PORT))]
    if args.tap is not None:
        hosts.append(TapHost(args.tap))
    return hosts
