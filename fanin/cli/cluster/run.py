"""``fanin cluster run``: a network trained on images by the nodes that were built for it."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.cli.cluster.conditions import add_conditions
from fanin.cli.files import Files
from fanin.cli.output import add_json
from fanin.cli.ranks import add_ranks
from fanin.cli.wave import add_wave

PLACES = ("rtl", "golden")  # by fanin.cli.cluster.machine, which --help need not wait for


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "run",
        help="train a network",
        description="Train a network on images: in RTL, every batch compared bit by bit with the golden model. "
        "With nothing said, digits_cnn is planned on one Arria 10, built and trained on the bundled digits.",
    )
    parser.add_argument(
        "build", type=Path, metavar="BUILD", nargs="?", help="the folder of fanin cluster build"
    )
    parser.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        default="digits",
        help="digits, a folder with MNIST's idx files, or an .npz by Keras' convention",
    )
    _training_options(parser.add_argument_group("training"))
    group = parser.add_argument_group("machine")
    group.add_argument(
        "--on", choices=PLACES, default=PLACES[0], help="what trains: the RTL, or its golden model"
    )
    add_conditions(parser.add_argument_group("network, of several devices with --on rtl"))
    output = parser.add_argument_group("output")
    output.add_argument(
        "--checkpoint",
        type=int,
        metavar="N",
        help="keep the state every N batches of an epoch, and behind it (default: behind each epoch)",
    )
    add_json(output)
    output.add_argument(
        "-o", dest="output", type=Path, default=Path("runs/cluster"), metavar="RUN", help="the run's folder"
    )
    add_wave(parser)
    add_ranks(parser)
    add_no_cache(parser, "with --on rtl, ")
    parser.set_defaults(run=run, files=Files(inputs=("build", "data", "init")))


def _training_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--epochs", type=int, default=15, metavar="N", help="times that all images are trained on"
    )
    group.add_argument("--batch", type=int, default=32, metavar="N", help="frames from update to update")
    group.add_argument("--lr", type=float, default=0.1, metavar="R", help="learning rate of the first epoch")
    group.add_argument(
        "--momentum", type=float, default=0.9, metavar="M", help="share of a velocity that stays"
    )
    group.add_argument(
        "--schedule", default="cosine", metavar="S", help="of the rate: constant, cosine, step:30:0.1"
    )
    group.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of first parameters and the frames' order"
    )
    group.add_argument(
        "--init", type=Path, metavar="FILE", help="first parameters: a checkpoint, as of fanin cluster init"
    )


def run(args: argparse.Namespace) -> int:
    """Train, write the run's folder."""
    from fanin.cli.cluster.execute import execute  # scikit-learn takes seconds to load; --help need not wait

    return execute(args)
