"""``fanin plan``: place a CNN's layers on a cluster of FPGAs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fanin.cli.files import Files
from fanin.cli.output import add_json
from fanin.errors import InputError

FACTORS = (1, 2, 4, 8)  # of model parallelism


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "plan",
        help="place a CNN's layers on a cluster of FPGAs",
        description="Place the layers of a CNN on the devices of a cluster for the highest training "
        "throughput, say how good it is, and draw it. With --check, verify plans that were written before.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="example_cnn, mobilenet_v2, mobilenet_v2_32, listing1, digits_cnn, an .onnx file, or a .py file, "
        "which is a program and runs with your rights",
    )
    parser.add_argument(
        "cluster", metavar="CLUSTER", nargs="?", help="arria10xN, u280xN, ecp5-85xN or a .toml file"
    )
    parser.add_argument("-o", dest="output", type=Path, metavar="DIR", help="where to write")
    add_json(parser)
    parser.add_argument("--check", type=Path, metavar="DIR", help="verify the plan or plans in DIR, and stop")
    parser.add_argument(
        "--mp", default="1", metavar="K,…", help="model parallelism: limiting groups in K parts"
    )
    parser.add_argument("--devices", metavar="A..B", help="a plan for every number of the cluster's devices")
    parser.add_argument("--batch", type=int, default=256, metavar="N", help="frames from update to update")
    parser.add_argument("--time-limit", type=float, metavar="S", help="of one search (100; in a sweep 12)")
    parser.add_argument(
        "--gap",
        type=float,
        default=0.5,
        metavar="%",
        help="end the search when no plan is better by more than this (0.5; 0: search for a proof)",
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="searches side by side")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the search")
    search = ("output", "mp", "devices", "batch", "time_limit", "gap", "workers", "seed")
    defaults = {name: parser.get_default(name) for name in search}
    parser.set_defaults(run=partial(run, defaults), files=Files(inputs=("model", "cluster")))


def run(defaults: Mapping[str, Any], args: argparse.Namespace) -> int:
    """Plan, or check; ``defaults``: of the options that are the search's alone."""
    from fanin.cli.plan.execute import execute, verify  # OR-Tools takes a second to load; --help need not wait

    if args.check is not None:
        if args.model is not None:
            raise InputError("--check takes no MODEL: a plan's folder says what it is of")
        for name, default in defaults.items():
            if getattr(args, name) != default:
                option = "-o" if name == "output" else f"--{name.replace('_', '-')}"
                raise InputError(f"--check takes no {option}: it is of the search")
        return verify(args.check, args.json)
    for name, value in (("MODEL", args.model), ("CLUSTER", args.cluster), ("-o DIR", args.output)):
        if value is None:
            raise InputError(f"{name} is missing (fanin plan --help lists the options)")
    seconds = 1.0 if args.time_limit is None else args.time_limit
    for option, value, least, most in (
        ("--batch", args.batch, 1, 1_000_000),
        ("--workers", args.workers, 1, 64),
        ("--seed", args.seed, 0, 1_000_000),
        ("--time-limit", seconds, 0.1, 1_000_000),
        ("--gap", args.gap, 0, 100),
    ):
        if not least <= value <= most:
            raise InputError(f"{option} must be in {least}…{most:,}, not {value:g}")
    return execute(args, factors(args.mp), counts(args.devices))


def factors(text: str) -> list[int]:
    """The values of ``--mp``. Raises InputError."""
    chosen = text.split(",")
    if not all(part.isdecimal() and int(part) in FACTORS for part in chosen):
        raise InputError(
            f"--mp must be some of {', '.join(map(str, FACTORS))}, with commas between, not {text!r}"
        )
    return sorted({int(part) for part in chosen})


def counts(text: str | None) -> list[int] | None:
    """The values of ``--devices``: a number, a range, or several with commas; None where it is not given."""
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,3})(?:\.\.(\d{1,3}))?", part)
        if not match or not 1 <= int(match[1]) <= int(match[2] or match[1]):
            raise InputError(f"--devices must be a range as 3..9, or numbers, not {text!r}")
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return sorted(found)
