"""``fanin verilog``: a component of the catalogue as Verilog."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.limits import CLOCK_MHZ
from fanin.base.scratch import write_file
from fanin.cli.cache import add_no_cache
from fanin.cli.ranges import check_ranges
from fanin.glm.facts import PRESETS
from fanin.hdl.area import Area
from fanin.runs.file_options import FileOptions, Request
from fanin.runs.output import (
    Kind,
    add_json,
    check_directory,
    check_writable,
    is_kind,
    open_kind,
    print_json,
    table,
)
from fanin.runs.provenance.document import run_directory

STDOUT = "-"
_SUFFIXES = {"c": "h", "verilog": "vh", "svd": "svd", "json": "json"}  # of a register map's file, by format
_RANGES = {"clock_mhz": (1.0, 1000.0)}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "verilog",
        help="emit a component as Verilog",
        description="Emit a component as Verilog, with AXI4-Stream, AXI4 and AXI4-Lite at its top level.",
    )
    selection = parser.add_mutually_exclusive_group(required=True)
    selection.add_argument("name", nargs="?", metavar="NAME", help="a component of the list")
    selection.add_argument(
        "--list", action="store_true", help="list the components with their parameters for the preset"
    )
    parser.add_argument("--preset", choices=list(PRESETS), default="demo", help="sizes")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="parameter that overrides the preset; repeatable",
    )
    parser.add_argument(
        "--name",
        dest="module",
        metavar="MODULE",
        help="module name, NAME by default; prefix of all modules within, so that one design can contain two "
        "variants of a component",
    )
    parser.add_argument(
        "--registers",
        choices=list(_SUFFIXES),
        help="write the register map of a node instead: a C header, Verilog constants to include, CMSIS-SVD, "
        "or JSON; parts have none",
    )
    parser.add_argument(
        "--instance",
        action="store_true",
        help="write an instance instead, with a wire for each port, to include in a module of your own",
    )
    parser.add_argument(
        "-o",
        metavar="FILE",
        dest="output",
        help="file to write, - for stdout; by default the module's name with .v, .h, .vh, .svd or .json, or "
        "MODULE_instance.vh",
    )
    parser.add_argument(
        "--package",
        metavar="DIR",
        help="folder for your own top level: Verilog, registers, constraints, IP-XACT, FuseSoC core",
    )
    parser.add_argument(
        "--clock-mhz",
        type=float,
        metavar="F",
        help=f"clock that a package's constraints ask for (default {CLOCK_MHZ:g})",
    )
    add_no_cache(parser)
    add_json(parser)
    parser.set_defaults(run=run, files=FileOptions(output="package"))


def run(args: argparse.Namespace) -> int:
    """List the catalogue, or emit one of its components."""
    try:
        return _run(args)
    except ValueError as error:
        if not args.settings:
            raise
        # A part within refuses a setting: the component is half made, of which Amaranth would warn.
        warnings.filterwarnings("ignore", message=".* created but never used")
        raise InputError(f"{args.name} {' '.join(args.settings)}: {error}") from None


def _run(args: argparse.Namespace) -> int:
    _check_options(args)
    from fanin.hdl import catalog  # --help must not wait for Amaranth to load

    if args.list:
        config = PRESETS[args.preset]
        for name, entry in catalog.CATALOG.items():
            print(f"{name:<26}{entry.summary}")
            try:
                parameters = entry.parameters(config)
                print("".join(f"    {key}={value}" for key, value in parameters.items()))
            except InputError as error:
                print(f"    {error}")
        return 0
    catalog.entry_of(args.name)
    module = catalog.module_of(args.name, args.module)
    design = {"preset": args.preset, "settings": _settings(args.settings), "module": module}
    if args.package:
        return _package(args, design)
    output = args.output or _default_output(args, module)
    if args.json and output == STDOUT:
        raise InputError("--json and -o - would both write to stdout; -o names a file")
    if output != STDOUT:
        check_writable(Path(output))  # before the minutes that a large node takes
    from fanin.hdl.package import package

    if args.registers:
        text = catalog.registers(args.name, args.registers, **design)
    else:
        text = (package.instance if args.instance else package.emit)(args.name, **design)
    if output == STDOUT:
        sys.stdout.write(text)
    else:
        write_file(Path(output), text)
    area = None if args.registers or args.instance else Area.read(text)
    lines = text.count("\n")
    if args.json:
        print_json({"output": output, "lines": lines} | (asdict(area) if area else {}))
        return 0
    if output != STDOUT:
        print(f"{output}: {lines:,} lines", file=sys.stderr)
    if area:
        _print_area(area)
    return 0


def _default_output(args: argparse.Namespace, module: str) -> str:
    if args.instance:
        return f"{module}_instance.vh"
    return f"{module}.{_SUFFIXES[args.registers] if args.registers else 'v'}"


def _check_options(args: argparse.Namespace) -> None:
    """Raise InputError for options that have no meaning together."""
    conflicts = {"--list": args.list, "-o": args.output, "--registers": args.registers}
    conflicts |= {"--instance": args.instance}
    for name, value in conflicts.items():
        if args.package and value:
            raise InputError(f"--package and {name} cannot be given together")
    if args.instance and args.registers:
        raise InputError("--instance and --registers cannot be given together")
    if args.clock_mhz is not None and not args.package:
        raise InputError("--clock-mhz is for --package")
    check_ranges(vars(args), _RANGES)


def _package(args: argparse.Namespace, design: Mapping[str, Any]) -> int:
    """Write a package: whole or not at all, into a folder that is free or holds an earlier one of the node."""
    from fanin.hdl.package import package

    folder = Path(args.package)
    names = package.file_names(design["module"])
    kind = Kind(
        *("package", package.MARK, package.KEY, names),
        option="--package",
        results=(package.MARK, *names),
        ignored=("fanin",),
    )
    check_directory(folder, kind)  # before the minutes that a large node takes
    _check_same_component(folder, kind, {package.KEY: args.name, "module": design["module"]})
    clock = CLOCK_MHZ if args.clock_mhz is None else args.clock_mhz
    with run_directory(folder, kind, Request.parsed(args)) as scratch:
        files = package.package(args.name, **design, clock_mhz=clock)
        for name, text in files.items():
            (scratch / name).write_text(text)
    if args.json:
        print_json({"output": args.package, "files": [*files]})
    else:
        print(f"{args.package}: {', '.join(files)}", file=sys.stderr)
    return 0


def _check_same_component(folder: Path, kind: Kind, expected: Mapping[str, str]) -> None:
    """Raise InputError for a package of another component or module, whose files would remain."""
    if is_kind(folder, kind):
        present = open_kind(folder, kind, "fanin verilog").value
        for key, name in expected.items():
            if present[key] != name:
                raise InputError(f"{folder}: holds a package of {present[key]}; choose another {kind.option}")


def _print_area(area: Area) -> None:
    """Print the flip-flops and memories of the design, and each large memory."""
    print(
        f"before synthesis: {area.flip_flops:,} bits of flip-flops, {area.memory_bits:,} bits of memory",
        file=sys.stderr,
    )
    rows = [
        (
            f"{memory.count} \u00d7",
            f"{memory.depth:,} words of {memory.width:,} bits",
            f"{memory.module}: {memory.name}",
        )
        for memory in area.memories
    ]
    if rows:
        print(table(rows, right=(0, 1)), file=sys.stderr)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise InputError(f"--set {pair}: KEY=VALUE is expected")
        settings[key] = value
    return settings
