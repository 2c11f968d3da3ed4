"""``fanin ps train``: train with the asynchronous parameter server, or with Sync-DSGD on the same hardware."""

from __future__ import annotations

import argparse

from fanin.cli.cache import add_no_cache
from fanin.cli.options import add_options
from fanin.param_server.run.options import ParamServerOptions
from fanin.runs.call import Call
from fanin.runs.output import add_json
from fanin.runs.ranks import add_ranks


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a model with the parameter server",
        description="Train a classifier of handwritten digits with the asynchronous parameter server, or with "
        "Sync-DSGD: in RTL, or on the event model of it. Workers and servers are counted from 0.",
    )
    add_options(parser, ParamServerOptions)
    add_json(parser)
    add_ranks(parser)
    add_no_cache(parser, "with --on rtl, ")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, and write the run's folder."""
    from fanin.param_server.run.execute import (
        execute,  # --help must not wait for scikit-learn to load
    )

    execute(ParamServerOptions.of(args), Call.of(args))
    return 0
