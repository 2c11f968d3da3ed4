"""``fanin board report``: result of place and route."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.boards.run.folder import open_build
from fanin.boards.run.report import report_text
from fanin.runs.output import add_json, print_json


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "report",
        help="show clocks, resources and worst paths of a build",
        description="Print the results of place and route: each clock, the use of resources by Component, and "
        "the worst path of each clock.",
    )
    parser.add_argument("build", type=Path, metavar="BUILD", help="the folder of fanin board build")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    from fanin.hdl.boards.report import read_report

    build = open_build(args.build)
    placement = read_report(build.project, float(build.record.number("core_mhz")))
    if args.json:
        print_json({"board": build.record.value, **placement.as_json()})
    else:
        print(report_text(placement))
    return 0
