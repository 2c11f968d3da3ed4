"""``fanin cluster run``: a network trained on images by the nodes that were built for it."""

from __future__ import annotations

import argparse

from fanin.cli.cache import add_no_cache
from fanin.cli.options import add_options
from fanin.cnn.run.options import ClusterOptions
from fanin.runs.call import Call
from fanin.runs.output import add_json
from fanin.runs.ranks import add_ranks


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "run",
        help="train a network",
        description="Train a network on images: in RTL, every batch compared bit by bit with the golden model. "
        "Without arguments, digits_cnn is planned on one Arria 10, built and trained on the bundled digits.",
    )
    add_options(parser, ClusterOptions)
    add_json(parser)
    add_ranks(parser)
    add_no_cache(parser, "with --on rtl, ")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, and write the run's folder."""
    from fanin.cnn.run.execute import execute  # --help must not wait for scikit-learn to load

    execute(ClusterOptions.of(args), Call.of(args))
    return 0
