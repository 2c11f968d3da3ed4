"""``fanin ring train``: data-parallel training whose gradients are added up by the NICs of a ring."""

from __future__ import annotations

import argparse

from fanin.cli.cache import add_no_cache
from fanin.cli.options import add_options
from fanin.ring.run.options import RingOptions
from fanin.runs.call import Call
from fanin.runs.output import add_json
from fanin.runs.ranks import add_ranks


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a network over the ring",
        description="Train a multi-layer perceptron on several nodes whose NICs add up the gradients of "
        "each layer during the backward pass. Nodes are RTL, or a model of its time. Every sum is the golden "
        "model's, bit for bit. Nodes, layers and steps are counted from 0.",
    )
    add_options(parser, RingOptions)
    add_json(parser)
    add_ranks(parser)
    add_no_cache(parser, "with --on rtl, ")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, and write the run's folder."""
    from fanin.ring.run.execute import execute  # --help must not wait for scikit-learn to load

    execute(RingOptions.of(args), Call.of(args))
    return 0
