"""``fanin ring train``: data-parallel training whose gradients are added up by the NICs of a ring."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.cli.codec.options import add_codec
from fanin.ring import LANES
from fanin.sim.network import FAULTS
from fanin.sim.ring.profile import WorkerProfile

#: What an option is that is not given; with ``--resume``, of what belongs to the model, what the folder says.
DEFAULTS = {
    "data": "digits",
    "nodes": 4,
    "epochs": 10,
    "batch": 32,
    "rate": 0.1,
    "momentum": 0.9,
    "decay": 0.0,
    "seed": 0,
    "lanes": 8,
    "codec": "none",
}
# Known here before anything heavy is loaded; a test compares them with what the schedule has.
OVERLAPS = ("backward", "none")
REDUCERS = ("nic", "host")
PLACES = ("rtl", "model")
GBPS = 40.0  # the prototype's, for 8 lanes


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command and its options."""
    parser = commands.add_parser(
        "train",
        help="train a network with it",
        description="Train a multi-layer perceptron on several nodes whose NICs add the gradients up, a layer "
        "at a time, while the backward pass goes on: in RTL, or on a model of its time. Every sum is the "
        "golden model's, bit for bit. Nodes, layers and steps are counted from 0.",
    )
    parser.add_argument(
        "data",
        metavar="DATA",
        nargs="?",
        help="digits, a folder with MNIST's idx files, or an .npz by Keras' convention (default: digits)",
    )
    _model_options(parser.add_argument_group("model"))
    _ring_options(parser.add_argument_group("ring"))
    _host_options(parser.add_argument_group("hosts"))
    _network_options(parser.add_argument_group("network"))
    _output_options(parser.add_argument_group("output"))
    add_no_cache(parser, "with --on rtl, ")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, write the run's folder."""
    from fanin.cli.ring.execute import execute  # scikit-learn takes seconds to load; --help need not wait

    return execute(args)


def _add(group: argparse._ArgumentGroup, name: str, metavar: str, meaning: str) -> None:
    """An option with one of ``DEFAULTS``, and of its type."""
    default = DEFAULTS[name]
    group.add_argument(f"--{name}", type=type(default), metavar=metavar, help=f"{meaning} (default: {default})")


def _model_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--layers",
        metavar="W,W,…",
        help="widths from input to output, or a file with them (default: features, 128, classes)",
    )
    _add(group, "epochs", "N", "passes over the training samples")
    _add(group, "batch", "B", "samples of a node's mini-batch")
    _add(group, "rate", "A", "learning rate")
    _add(group, "momentum", "M", "share of the last update that goes on")
    _add(group, "decay", "D", "share of a weight that is added to its gradient")
    _add(group, "seed", "N", "of split, shuffle, first weights and faults")


def _ring_options(group: argparse._ArgumentGroup) -> None:
    _add(group, "nodes", "N", "nodes")
    default = DEFAULTS["lanes"]
    text = f"values that a NIC adds in a cycle (default: {default})"
    group.add_argument("--lanes", type=int, choices=LANES, help=text)
    add_codec(group, none=True)
    group.add_argument(
        "--all-reduce", choices=REDUCERS, default=REDUCERS[0], help="who adds up: NICs, or the hosts' own cores"
    )
    group.add_argument(
        "--on", choices=PLACES, help="what the NICs run on (default: rtl; hosts that add up are a model)"
    )


def _host_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--overlap",
        choices=OVERLAPS,
        default=OVERLAPS[0],
        help="what an all-reduce runs beside: the backward pass of the layers below, or nothing",
    )
    group.add_argument(
        "--outstanding", type=int, default=1, metavar="K", help="all-reduces that a host leaves unfinished"
    )
    for option, metavar, meaning in (
        ("flops", "F", "what a host computes, in FLOP/s"),
        ("memory-bandwidth", "B", "what a host's memory moves, in bytes/s: the time of an update"),
        ("pcie", "P", "between a host's memory and its NIC, each way, in bit/s"),
    ):
        default = getattr(WorkerProfile, option.replace("-", "_"))
        group.add_argument(f"--{option}", type=float, default=default, metavar=metavar, help=meaning)


def _network_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--gbps", type=float, default=GBPS, metavar="G", help="rate of a link, in Gb/s")
    for fault in FAULTS:
        group.add_argument(
            f"--{fault}", type=float, default=0.0, metavar="P", help="probability per frame and link"
        )
    group.add_argument(
        "--stop",
        action="append",
        metavar="NODE:T,…",
        help="2:1e-4: node 2 stops answering after 1e-4 simulated seconds",
    )
    group.add_argument("--pcap", type=Path, metavar="FILE", help="write all frames there")


def _output_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="go on behind the last whole epoch of the run in this folder, with its model and data",
    )
    group.add_argument(
        "-o", type=Path, default=Path("runs/ring"), metavar="DIR", dest="output", help="the run's folder"
    )
    group.add_argument("--json", action="store_true", help="one JSON object on stdout")
