"""``fanin bench``: the figures of docs/benchmarks.md, each beside its limit; a benchmark per file."""

from __future__ import annotations

import argparse

from fanin.cli.bench import area, glm
from fanin.cli.bench.result import Result
from fanin.cli.output import print_json
from fanin.errors import CheckFailed

BENCHMARKS = {"glm": glm, "area": area}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and, below it, one per benchmark."""
    parser = commands.add_parser(
        "bench",
        help="measure speed and area",
        description="Measure, and print each figure beside its limit. Exit status 1 when one is missed.",
    )
    names = parser.add_subparsers(title="benchmarks", metavar="NAME", required=True)
    for name, module in BENCHMARKS.items():
        bench = names.add_parser(name, help=module.HELP, description=module.__doc__)
        bench.add_argument("--json", action="store_true", help="a list of {name, value, unit, limit, ok}")
        module.add_arguments(bench)
        bench.set_defaults(run=run, measure=module.measure)


def run(args: argparse.Namespace) -> int:
    """Print the figures as they come. Raises CheckFailed when a limit is missed."""
    results: list[Result] = []
    for result in args.measure(args):
        results.append(result)
        if not args.json:
            print(result, flush=True)
    if args.json:
        print_json([result.as_json() for result in results])
    missed = [result.name for result in results if not result.ok]
    if missed:
        raise CheckFailed(f"{len(missed)} of {len(results)} figures miss their limit: {'; '.join(missed)}")
    return 0
