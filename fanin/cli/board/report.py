"""``fanin board report``: what place and route reached."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fanin.cli.board.builds import open_build
from fanin.cli.output import add_json, print_json, table


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "report",
        help="clocks, use and worst paths of a build",
        description="What place and route reached: each clock, what is used and by which Component, and the "
        "worst path of each clock.",
    )
    parser.add_argument("build", type=Path, metavar="BUILD", help="the folder of fanin board build")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    from fanin.hdl.boards.report import read_report

    build = open_build(args.build)
    placed = read_report(build.project, float(build.record.number("core_mhz")))
    if args.json:
        print_json({"board": build.record.value, **placed.as_json()})
    else:
        print(text(placed))
    return 0


def text(placed: Any) -> str:
    """The report for people."""
    clocks = [["clock", "asked", "reached", "slack"]]
    for clock in placed.clocks:
        asked, reached = (f"{mhz:.1f} MHz" for mhz in (clock.asked, clock.reached))
        clocks.append(
            [clock.domain, asked, reached, f"{clock.slack_ns:.2f} ns{'' if clock.met else ' MISSED'}"]
        )
    used = [["", "used", "of", ""]]
    for name, (count, there) in placed.used.items():
        used.append([name, f"{count:,}", f"{there:,}", f"{100 * count / there:.0f} %"])
    titles = list(placed.used)
    parts = [["Component", *titles]]
    for name, counts in placed.components.items():
        parts.append([name, *(f"{counts.get(title, 0):,}" for title in titles)])
    worst = "\n".join(f"  {path}" for path in placed.paths)
    return "\n\n".join(
        [
            table(clocks, right=range(1, 4)),
            table(used, right=range(1, 4)),
            table(parts, right=range(1, 1 + len(titles))),
            f"worst paths\n{worst}",
        ]
    )
