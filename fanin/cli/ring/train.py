"""``fanin ring train``: data-parallel training whose gradients are added up by the NICs of a ring."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.cli.codec.options import add_codec
from fanin.cli.files import Files
from fanin.cli.output import add_json
from fanin.cli.ranks import add_ranks
from fanin.cli.ring.defaults import DEFAULTS, EXCHANGES, GBPS, RING, SIZES, SMART_NIC, SYSTEMS
from fanin.cli.wave import add_wave
from fanin.sim.network import FAULTS

# Known here before anything heavy is loaded; a test compares them with what the schedule has.
OVERLAPS = ("backward", "none")
REDUCERS = ("nic", "host")
PLACES = ("rtl", "model")


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
    add_wave(parser)
    add_ranks(parser)
    add_no_cache(parser, "with --on rtl, ")
    files = Files(inputs=("data", "layers", "resume"), capture="pcap")
    parser.set_defaults(run=run, files=files)


def run(args: argparse.Namespace) -> int:
    """Train, write the run's folder."""
    from fanin.cli.ring.execute import execute  # scikit-learn takes seconds to load; --help need not wait

    return execute(args)


def _add(group: argparse._ArgumentGroup, option: str, meaning: str, metavar: str, kind: type = float) -> None:
    """An option with one of ``DEFAULTS``, which it is None without."""
    default = DEFAULTS[option.replace("-", "_")]
    text = meaning if default in (None, 0.0) else f"{meaning} (default: {default:g})"
    group.add_argument(f"--{option}", type=kind, metavar=metavar, help=text)


def _choose(
    group: argparse._ArgumentGroup, option: str, meaning: str, choices: tuple[str, ...], default: str
) -> None:
    group.add_argument(f"--{option}", choices=choices, help=f"{meaning} (default: {default})")


def _model_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--layers",
        metavar="W,W,…",
        help="widths from input to output, or a file with them (default: features, 128, classes)",
    )
    _add(group, "epochs", "passes over the training samples", "N", int)
    _add(group, "batch", "samples of a node's mini-batch", "B", int)
    _add(group, "rate", "learning rate", "A")
    _add(group, "momentum", "share of the last update that goes on", "M")
    _add(group, "decay", "share of a weight that is added to its gradient", "D")
    _add(group, "seed", "of split, shuffle, first weights and faults", "N", int)


def _ring_options(group: argparse._ArgumentGroup) -> None:
    _choose(
        group,
        "system",
        "NICs that add gradients up, or INCEPTIONN's: hosts add up over sockets, NICs have the codec",
        SYSTEMS,
        SMART_NIC,
    )
    _add(group, "nodes", "nodes that train", "N", int)
    _choose(group, "exchange", "how they, or those of a group, add up", EXCHANGES, RING)
    group.add_argument("--groups", metavar="GxM", help="4x4: four groups of four nodes")
    _choose(group, "above", "how groups add up", EXCHANGES, "as --exchange")
    lanes = f"values that a smart NIC adds in a cycle (default: {DEFAULTS['lanes']})"
    group.add_argument("--lanes", type=int, choices=SIZES, help=lanes)
    add_codec(group, none=True)
    _choose(group, "all-reduce", "who adds up: smart NICs, or their hosts' own cores", REDUCERS, "nic")
    _choose(group, "on", "what smart NICs run on", PLACES, "rtl; model for --all-reduce host")


def _host_options(group: argparse._ArgumentGroup) -> None:
    what = "what an all-reduce runs beside: the backward pass of the layers below, or nothing"
    _choose(group, "overlap", what, OVERLAPS, OVERLAPS[0])
    _add(group, "outstanding", "all-reduces that a host leaves unfinished", "K", int)
    _add(group, "flops", "what a host computes, in FLOP/s", "F")
    _add(group, "memory-bandwidth", "what a host's memory moves, in bytes/s: the time of an update", "B")
    _add(group, "pcie", "between a host's memory and its smart NIC, each way, in bit/s", "P")


def _network_options(group: argparse._ArgumentGroup) -> None:
    rates = ", ".join(f"{gbps:g} of {system}" for system, gbps in GBPS.items())
    _add(group, "gbps", f"rate of a link, in Gb/s (default: {rates})", "G")
    for fault in FAULTS:
        _add(group, fault, "probability per frame and link", "P")
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
    add_json(group)
