"""``fanin plan``: place a CNN's layers on a cluster of FPGAs."""

from __future__ import annotations

import argparse

from fanin.base.errors import InputError
from fanin.cli.options import add_options
from fanin.cnn.plan.options import SEARCH, PlanOptions
from fanin.runs.call import Call
from fanin.runs.output import add_json


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "plan",
        help="place a CNN's layers on a cluster of FPGAs",
        description="Place the layers of a CNN on the devices of a cluster for the highest training "
        "throughput, print its gap to the optimum, and draw it. With --check, verify existing plans.",
    )
    add_options(parser, PlanOptions)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make a plan, or check one (``--check``)."""
    from fanin.cnn.plan.execute import execute, verify  # --help must not wait for OR-Tools to load

    options = PlanOptions.of(args)
    if options.check is None:
        execute(options, Call.of(args))
        return 0
    if options.model is not None:
        raise InputError("--check takes no MODEL: the plan's folder names it")
    options.refuse({SEARCH: "does not apply to --check"})
    return verify(options.check, args.json)
