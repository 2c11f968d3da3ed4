"""``fanin train``: train a model through the RTL of several nodes, and compare it with the golden model."""

from __future__ import annotations

import argparse

from fanin.cli.cache import add_no_cache
from fanin.cli.options import add_options
from fanin.glm.run.options import GlmOptions
from fanin.runs.call import Call
from fanin.runs.output import add_json
from fanin.runs.ranks import add_ranks


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a model through generated RTL",
        description="Train a generalised linear model through the Verilog of several nodes, which aggregate "
        "over simulated links through a switch; then compare the model with NumPy's, bit by bit.",
    )
    add_options(parser, GlmOptions)
    add_json(parser)
    add_ranks(parser)
    add_no_cache(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, compare with the golden model, and write the run's folder."""
    from fanin.glm.run.execute import execute  # --help must not wait for Amaranth and scikit-learn

    execute(GlmOptions.of(args), Call.of(args))
    return 0
