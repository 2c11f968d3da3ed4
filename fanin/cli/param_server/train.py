"""``fanin ps train``: train with the asynchronous parameter server, or with Sync-DSGD on the same hardware."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.cli.files import Files
from fanin.cli.output import add_json
from fanin.cli.param_server.options import BUNDLED, model_options, server_options, time_options
from fanin.cli.ranks import add_ranks
from fanin.cli.wave import add_wave


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a model with it",
        description="Train a classifier of handwritten digits with the asynchronous parameter server, or with "
        "Sync-DSGD: in RTL, or on the event model of it. Workers and servers are counted from 0.",
    )
    parser.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        default=BUNDLED,
        help="digits, a folder with MNIST's idx files, or an .npz by Keras' convention",
    )
    model_options(parser.add_argument_group("model"))
    server_options(parser.add_argument_group("parameter server"))
    time_options(parser.add_argument_group("time of the workers"))
    _network_options(parser.add_argument_group("network, of --on rtl"))
    _output_options(parser.add_argument_group("output"))
    add_wave(parser)
    add_ranks(parser)
    add_no_cache(parser, "with --on rtl, ")
    parser.set_defaults(run=run, files=Files(inputs=("data",), capture="pcap"))


def run(args: argparse.Namespace) -> int:
    """Train, write the run's folder."""
    from fanin.cli.param_server.execute import (
        execute,
    )  # scikit-learn takes seconds to load; --help need not wait

    return execute(args)


def _network_options(group: argparse._ArgumentGroup) -> None:
    for fault in ("drop", "duplicate", "reorder"):
        group.add_argument(
            f"--{fault}", type=float, default=0.0, metavar="P", help="probability per frame and link"
        )
    group.add_argument("--pcap", type=Path, metavar="FILE", help="write all frames there")


def _output_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--beside",
        action="append",
        metavar="NAME=VALUE,…",
        help="train again with these options changed, and show both: algorithm=sync; repeatable",
    )
    group.add_argument(
        "-o", type=Path, default=Path("runs/ps"), metavar="DIR", dest="output", help="the run's folder"
    )
    add_json(group)
