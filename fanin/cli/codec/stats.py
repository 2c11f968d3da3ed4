"""``fanin codec stats``: effect of the codecs on a file of values, compared with INCEPTIONN's table III."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from fanin.base.errors import InputError
from fanin.cli.options import add_selected_options
from fanin.codec.facts import (
    FLOAT_BITS,
    MX_BLOCKS,
    Bf16,
    Bfp,
    CodecConfig,
    Fp16,
    Inceptionn,
    Mode,
    Mx,
    Rounding,
    parse_member,
)
from fanin.codec.formats import Element
from fanin.codec.run.options import MODES, PARAMETERS, CodecOptions, parse_bound
from fanin.runs.output import add_json, print_json

BOUNDS = (10, 8, 6)


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    stats = parts.add_parser(
        "stats",
        help="measure compression and errors on a file",
        description="Measure each codec on a file of values (raw binary32, or .npy): size and errors, with the "
        "paper's table III.",
    )
    stats.add_argument("file", type=Path, metavar="FILE")
    defaults = " ".join(f"2^-{bound}" for bound in BOUNDS)
    text = f"INCEPTIONN's error bound; repeatable (default: {defaults})"
    stats.add_argument("--bound", metavar="2^-B", action="append", help=text)
    stats.add_argument("--mode", choices=(*MODES, "both"), default="both", help="INCEPTIONN's mode")
    add_selected_options(stats, CodecOptions, set(PARAMETERS) - {"bound", "mode"})
    add_json(stats)
    stats.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the file once, and print a row per codec."""
    configs = _configurations(args)
    from fanin.codec.run.measure import Meter, format_rows, paper_rows
    from fanin.codec.run.values import open_values

    meters = [Meter(config) for config in configs]
    with open_values(args.file) as (parts, count):
        for part in parts:
            for meter in meters:
                meter.add(part)
    rows = [meter.row() for meter in meters]
    paper = list(paper_rows([row.bound for row in rows if row.bound]))
    if args.json:
        value = {"file": str(args.file), "values": count}
        print_json(value | {"rows": [asdict(row) for row in rows], "paper": [asdict(row) for row in paper]})
        return 0
    print(f"{args.file}: {count:,} values, {count * FLOAT_BITS // 8:,} bytes")
    print(format_rows([*rows, *paper]))
    return 0


def _configurations(args: argparse.Namespace) -> list[CodecConfig]:
    bounds = dict.fromkeys(map(parse_bound, args.bound)) if args.bound else BOUNDS
    modes = [Mode[args.mode.upper()]] if args.mode != "both" else [Mode.STRICT, Mode.PUBLISHED]
    group = args.group or Inceptionn().group
    options = {name: getattr(args, name) for name in vars(Bfp()) if getattr(args, name) is not None}
    try:
        inceptionn = [Inceptionn(bound, mode, group) for mode in modes for bound in bounds]
        return [*inceptionn, Bfp(**options), *_narrow_configurations(args)]
    except ValueError as error:
        raise InputError(str(error)) from error


def _narrow_configurations(args: argparse.Namespace) -> list[CodecConfig]:
    """Return MX with the chosen element or all of them, BF16 and FP16. A block that MX lacks is BFP's alone."""
    elements = [Element(args.element)] if args.element else list(Element)
    block = args.block if args.block in MX_BLOCKS else Mx.block
    rounding = parse_member("rounding", args.rounding) if args.rounding else Rounding.NEAREST
    assert isinstance(rounding, Rounding)
    return [*(Mx(element, block, rounding) for element in elements), Bf16(rounding), Fp16(rounding)]
