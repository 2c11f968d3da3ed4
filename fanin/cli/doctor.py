"""``fanin doctor``: diagnosis of the installation, or of a run."""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from fanin.base.cache import KINDS, CacheUsage, cache_directory, usage_of
from fanin.base.errors import CheckFailed, InputError
from fanin.base.extras import EXTRAS, Extra
from fanin.base.tools import verilog_yosys
from fanin.runs.output import add_json, print_json, table


@dataclass(frozen=True)
class Tool:
    """Program or package with its version and place, None if missing."""

    name: str
    needed_for: str
    optional: bool
    version: str | None
    place: str | None = None


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "doctor",
        help="list installed tools, or find the cause of a stopped run",
        description="Without RUN_DIR: list the tools that fanin uses. With RUN_DIR: show the progress of each "
        "node or connection of a run, the counter that explains a stop, and how to continue. For a plan: check "
        "every rule.",
    )
    parser.add_argument(
        "run_dir",
        nargs="?",
        type=Path,
        metavar="RUN_DIR",
        help="folder of train, ps train, ring train, plan or cluster run",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Diagnose the installation or a run. Raises CheckFailed when a tool is missing or a run has failed."""
    return _diagnose_run(args) if args.run_dir else _diagnose_tools(args)


def _diagnose_run(args: argparse.Namespace) -> int:
    from fanin.doctor.folder import print_diagnosis  # needs packages that may be missing

    return print_diagnosis(args.run_dir, as_json=args.json)


def _diagnose_tools(args: argparse.Namespace) -> int:
    tools = [probe() for probe in PROBES]
    missing = [tool.name for tool in tools if tool.version is None and not tool.optional]
    folder, contents = cache_directory(), {kind: usage_of(kind) for kind in KINDS}
    if args.json:
        cache = {"folder": str(folder), **{kind: asdict(content) for kind, content in contents.items()}}
        print_json({"tools": [asdict(tool) for tool in tools], "cache": cache, "ok": not missing})
    else:
        print(table([_row(tool) for tool in tools], indent=""))
        print(f"\ncache, which may be deleted: {folder}")
        print(table([_cache_row(kind, content) for kind, content in contents.items()], right=(1, 2)))
    if missing:
        raise CheckFailed(f"missing: {', '.join(missing)}")
    return 0


def _cache_row(kind: str, content: CacheUsage) -> list[str]:
    return [kind, f"{content.entries:,}", f"{content.bytes / 1e6:,.1f} MB", KINDS[kind]]


def _row(tool: Tool) -> list[str]:
    state = "optional" if tool.optional and tool.version is None else "MISSING"
    return [tool.name, tool.version or state, tool.place or "", tool.needed_for]


def _version(command: list[str]) -> str | None:
    """Return the first version number in a program's output; "present" without one, None if it does not run."""
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r"\d+\.\d+[.\d]*", process.stdout + process.stderr)
    return match[0] if match else "present"


def _program(
    name: str, needed_for: str, *, optional: bool = False, install: str | None = None
) -> Callable[[], Tool]:
    def probe() -> Tool:
        place = shutil.which(name)
        if place is None:
            return Tool(name, f"{needed_for}; install {install}" if install else needed_for, optional, None)
        return Tool(name, needed_for, optional, _version([place, "--version"]), place)

    return probe


def _package(name: str, needed_for: str) -> Callable[[], Tool]:
    def probe() -> Tool:
        try:
            return Tool(name, needed_for, False, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            return Tool(name, needed_for, False, None)

    return probe


def _extra(extra: Extra) -> Callable[[], Tool]:
    def probe() -> Tool:
        missing = extra.missing
        needed_for = f"{extra.adds}; {extra.install}" if missing else extra.adds
        return Tool(f"fanin[{extra.name}]", needed_for, True, None if missing else "present")

    return probe


def _python() -> Tool:
    return Tool("python", "everything", False, platform.python_version(), sys.executable)


def _yosys() -> Tool:
    try:
        command = verilog_yosys()
    except InputError:
        return Tool("yosys", "RTLIL to Verilog", False, None)
    return Tool("yosys", "RTLIL to Verilog", False, _version([*command, "-V"]), command[-1])


def _verilator() -> Tool:
    try:
        from fanin.sim.cosim.build import find_verilator  # needs cocotb, which may be what is missing

        verilator = find_verilator()
    except (ImportError, InputError):
        return Tool("verilator", "executes the Verilog", False, None)
    return Tool("verilator", "executes the Verilog", False, verilator.version, str(verilator.program))


def _python_library() -> Tool:
    try:
        from fanin.sim.cosim.process import python_library  # needs cocotb, which may be what is missing

        return Tool("libpython", "runs Python beside the simulator", False, "present", python_library())
    except (ImportError, InputError):
        return Tool("libpython", "runs Python beside the simulator", False, None)


PROBES: tuple[Callable[[], Tool], ...] = (
    _python,
    _python_library,
    _program("g++", "compiles Verilated models"),
    _program("make", "compiles Verilated models"),
    _program("perl", "Verilator's start script"),
    _verilator,
    _yosys,
    _package("amaranth", "the RTL"),
    _package("numpy", "the golden models"),
    _package("scikit-learn", "data sets"),
    _package("cocotb", "tests beside the simulator"),
    *map(_extra, EXTRAS),
    _program("tshark", "reads frames.pcap", optional=True),
    _program(
        "p4c-bm2-ss",
        "compiles P4 for BMv2",
        optional=True,
        install="p4lang's p4lang-p4c (docs/reference/bmv2.md)",
    ),
    _program("p4c-barefoot", "compiles P4 for Tofino", optional=True, install="p4c with its Tofino backend"),
    _program(
        "simple_switch_grpc",
        "BMv2, a software switch",
        optional=True,
        install="p4lang's p4lang-bmv2 (docs/reference/bmv2.md)",
    ),
)
