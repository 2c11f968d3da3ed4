"""``fanin ps train``: train with the asynchronous parameter server, or with Sync-DSGD on the same hardware."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.cli.files import Files
from fanin.cli.output import add_json
from fanin.cli.wave import add_wave

# Known here before anything heavy is loaded; a test compares them with what the models have.
MODELS = ("lr", "lr-rff", "fcnn")
ALGORITHMS = ("wild", "sync")
PLACES = ("rtl", "model")
WIDTHS = (128, 256, 512)
BUNDLED = "digits"


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
    _model_options(parser.add_argument_group("model"))
    _server_options(parser.add_argument_group("parameter server"))
    _time_options(parser.add_argument_group("time of the workers"))
    _network_options(parser.add_argument_group("network, of --on rtl"))
    _output_options(parser.add_argument_group("output"))
    add_wave(parser)
    add_no_cache(parser, "with --on rtl, ")
    parser.set_defaults(run=run, files=Files(inputs=("data",), capture="pcap"))


def run(args: argparse.Namespace) -> int:
    """Train, write the run's folder."""
    from fanin.cli.param_server.execute import (
        execute,
    )  # scikit-learn takes seconds to load; --help need not wait

    return execute(args)


def _model_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        choices=MODELS,
        default=MODELS[0],
        help="softmax regression, the same on random Fourier features, or 128 hidden units; "
        "each has defaults of its own for what has none here",
    )
    group.add_argument("--epochs", type=int, metavar="N", help="passes over the training samples")
    group.add_argument("--batch", type=int, default=8, metavar="B", help="samples of a worker's mini-batch")
    group.add_argument("--rate", type=float, metavar="A", help="learning rate α")
    group.add_argument("--decay", type=float, metavar="L", help="λ: adds λ/2 · |w|² to the loss")
    group.add_argument("--features", type=int, metavar="D", help="random features of lr-rff")
    group.add_argument("--gamma", type=float, metavar="G", help="of lr-rff's Gaussian kernel")
    group.add_argument(
        "--dtype", choices=("float64", "float32"), default="float64", help="what workers compute in"
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of split, shuffle, times and faults")
    group.add_argument(
        "--optimum",
        action=argparse.BooleanOptionalAction,
        help="find w* of a convex model, for figure 8's measures (default: on the digits; MNIST takes long)",
    )


def _server_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--algorithm",
        choices=ALGORITHMS,
        default=ALGORITHMS[0],
        help="update with what is there, or wait for all",
    )
    group.add_argument("--workers", type=int, default=15, metavar="N", help="workers")
    group.add_argument("--slots", type=int, default=1, metavar="K", help="gradients of a worker on the way")
    group.add_argument(
        "--warm-up",
        type=int,
        metavar="E",
        help="first epochs, in which a worker uses one slot: w changes fast",
    )
    group.add_argument("--servers", type=int, default=1, metavar="S", help="servers, with a shard of w each")
    group.add_argument("--on", choices=PLACES, default=PLACES[0], help="what it runs on")
    group.add_argument(
        "--width",
        type=int,
        choices=WIDTHS,
        default=WIDTHS[-1],
        help="bits of a word, of --on rtl: fewer are simulated sooner, and are slower",
    )


def _time_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--sample-seconds", type=float, metavar="T", help="computing of a sample; as in the paper's table 2"
    )
    group.add_argument(
        "--jitter", type=float, default=0.1, metavar="J", help="σ of a gradient's time, log-normal, mean 1"
    )
    group.add_argument(
        "--stragglers",
        action="append",
        metavar="WHO:TIMES,…",
        help="3:2.5: worker 3 always takes 2.5 times as long; 5%%:4: any gradient 4 times, in 5 of 100 cases",
    )
    group.add_argument(
        "--stop",
        action="append",
        metavar="WORKER:T,…",
        help="4:0.02: worker 4 stops answering after 0.02 simulated seconds",
    )


def _network_options(group: argparse._ArgumentGroup) -> None:
    for fault in ("drop", "duplicate", "reorder"):
        group.add_argument(
            f"--{fault}", type=float, default=0.0, metavar="P", help="probability per frame and link"
        )
    group.add_argument("--pcap", type=Path, metavar="FILE", help="write all frames there")


def _output_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-o", type=Path, default=Path("runs/ps"), metavar="DIR", dest="output", help="the run's folder"
    )
    add_json(group)
