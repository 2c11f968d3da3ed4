"""Options of a training with the parameter server: those of a run, and of each run beside it."""

from __future__ import annotations

import argparse

# Known here before anything heavy is loaded; a test compares them with what the models have.
MODELS = ("lr", "lr-rff", "fcnn")
ALGORITHMS = ("wild", "sync")
PUSHES = ("gradient", "scan")
RECEIVERS = ("barter", "broadcast")
PLACES = ("rtl", "model")
COSTS = ("design", "cluster")
WIDTHS = (128, 256, 512)
BUNDLED = "digits"


def model_options(group: argparse._ArgumentGroup) -> None:
    """What is trained, and how."""
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


def server_options(group: argparse._ArgumentGroup) -> None:
    """Servers, workers, and what they run on."""
    group.add_argument(
        "--algorithm",
        choices=ALGORITHMS,
        default=ALGORITHMS[0],
        help="update with what is there, or wait for all",
    )
    group.add_argument(
        "--push-after",
        choices=PUSHES,
        help="wild: push w behind every gradient, or, as the paper does, behind a scan to all whose gradients "
        f"it found (default: {PUSHES[0]}, of --costs cluster {PUSHES[1]})",
    )
    group.add_argument(
        "--receivers",
        choices=RECEIVERS,
        default=RECEIVERS[0],
        help="wild: w goes to those whose gradients are new in it, or to all workers",
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


def time_options(group: argparse._ArgumentGroup) -> None:
    """What takes how long."""
    group.add_argument(
        "--costs",
        choices=COSTS,
        default=COSTS[0],
        help="times of everything but computing: fanin's hardware, or the paper's cluster (needs --on model)",
    )
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
