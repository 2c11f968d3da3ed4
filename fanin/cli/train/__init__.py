"""``fanin train``: train a model through the RTL of several nodes, and compare it with the golden model."""

from __future__ import annotations

import argparse

from fanin.cli.files import Files
from fanin.cli.train.options import add_options


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a model through generated RTL",
        description="Train a generalised linear model through the Verilog of several nodes, which aggregate "
        "over simulated links through a switch; then compare the model with NumPy's, bit by bit.",
    )
    add_options(parser)
    files = Files(inputs=("data", "on", "resume"), copies=("pcap", "model_out"))
    parser.set_defaults(run=run, files=files)


def run(args: argparse.Namespace) -> int:
    """Train, compare, write the run's folder."""
    from fanin.cli.train.execute import (
        execute,
    )  # Amaranth and scikit-learn take seconds to load; --help need not wait

    return execute(args)
