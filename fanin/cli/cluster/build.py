"""``fanin cluster build``: from a plan to the hardware of its devices."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.cli.cluster.conditions import add_wires
from fanin.cli.files import Files
from fanin.cli.output import add_json

ARITHMETICS = ("c", "rtl")  # by fanin.sim.cosim.arrays, which --help need not wait for


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "build",
        help="the hardware of a plan",
        description="Build what a plan places on devices: nodes whose layers train. Their simulator is kept "
        "for fanin cluster run.",
    )
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the folder of fanin plan")
    parser.add_argument(
        "-o", dest="output", type=Path, metavar="BUILD", required=True, help="the build's folder"
    )
    parser.add_argument("--verilog", action="store_true", help="write each node's Verilog and C header, too")
    parser.add_argument(
        "--arith",
        choices=ARITHMETICS,
        default=ARITHMETICS[0],
        help="what binary32 operators run as in the co-simulation: a body in C of the same latency, or RTL",
    )
    add_wires(parser.add_argument_group("connections, of several devices"))
    add_json(parser)
    add_no_cache(parser)
    parser.set_defaults(run=run, files=Files(inputs=("plan",)))


def run(args: argparse.Namespace) -> int:
    """Build, and write the folder."""
    from fanin.cli.cluster.builds import execute

    return execute(args)
