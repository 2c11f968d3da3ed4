"""``fanin campaign compare``: differences between two campaigns, with confidence intervals."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fanin.runs.output import add_json, print_json, table


def add_parser(parts: argparse._SubParsersAction[Any], cli_parser: argparse.ArgumentParser) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "compare",
        help="compare two campaigns, with confidence intervals",
        description="Pair the runs of two campaigns by the options that vary, and by seed. Print for each "
        "figure the mean difference of B from A, with its 95 % confidence interval.",
    )
    parser.add_argument("before", type=Path, metavar="A", help="a campaign's folder")
    parser.add_argument("after", type=Path, metavar="B", help="another campaign's folder")
    parser.add_argument(
        "--figure",
        action="append",
        metavar="NAME",
        help="figure to compare; repeatable (default: all figures of both)",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Compare two campaigns and print the differences. Raises InputError unless they have common runs."""
    from fanin.campaign.differences import compare_campaigns  # --help must not wait for PyArrow to load

    options, differences = compare_campaigns(args.before, args.after, args.figure or ())
    if args.json:
        value = {"before": str(args.before), "after": str(args.after), "options": options}
        print_json(value | {"differences": [difference.as_json() for difference in differences]})
        return 0
    header = [*options, "figure", "A", "B", "B − A", "95 % interval", "pairs", "B is"]
    rows = [header, *(difference.cells() for difference in differences)]
    numbers = range(len(options) + 1, len(header) - 1)
    print(table(rows, right=list(numbers)))
    return 0
