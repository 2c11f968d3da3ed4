"""The options of ``fanin train``."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.cli.cache import add_no_cache
from fanin.cli.host_options import HOST_OPTIONS
from fanin.cli.output import add_json
from fanin.cli.ranks import add_ranks
from fanin.cli.wave import add_wave
from fanin.clock import CLOCK_MHZ
from fanin.fixed import DEFAULT_FRAC, DEFAULT_PRECISION, LOSSES
from fanin.glm import PRESETS, GlmConfig, Partitioning
from fanin.hbm import CONSTANT, MEMORIES
from fanin.sim.network import BOARDS_TIMEOUT_NS, FAULTS, PORTS_TIMEOUT_NS, LinkConfig, NetworkConfig
from fanin.sim.switch.base import SwitchKind
from fanin.wire.aggregation import Encap, Protocol


def option_parser() -> argparse.ArgumentParser:
    """Return a parser of the words after the command."""
    parser = argparse.ArgumentParser(add_help=False)
    add_options(parser)
    return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "data", metavar="DATA", nargs="?", help="a LIBSVM, CSV or .npz file, breast_cancer or digits"
    )
    parser.add_argument(
        "--target", metavar="NAME", help="column of a CSV file that has the labels; its last one by default"
    )
    _model_options(parser.add_argument_group("model"))
    _hardware_options(parser.add_argument_group("hardware"))
    _board_options(parser.add_argument_group("boards"))
    _network_options(parser.add_argument_group("network"))
    _survival_options(parser.add_argument_group("checkpoints"))
    _output_options(parser.add_argument_group("output"))
    add_wave(parser)
    add_ranks(parser)
    add_no_cache(parser)


def _model_options(group: argparse._ArgumentGroup) -> None:
    flag = argparse.BooleanOptionalAction
    group.add_argument("--loss", choices=list(LOSSES), default="logistic", help="what is minimised")
    group.add_argument("--epochs", type=int, default=40, metavar="N", help="passes over the training samples")
    group.add_argument("--batch", type=int, default=32, metavar="B", help="samples of a mini-batch")
    group.add_argument(
        "--lr",
        type=float,
        metavar="G",
        help="learning rate γ; by default what suits a bundled set and the loss",
    )
    group.add_argument(
        "--l2",
        type=float,
        default=0.0,
        metavar="LAMBDA",
        help="L2 regularisation λ; the nearest of which γ·λ is a power of two",
    )
    group.add_argument("--bias", action=flag, default=True, help="add a constant column")
    group.add_argument("--shuffle", action=flag, default=True, help="shuffle once, at load")
    group.add_argument("--test", type=float, default=0.25, metavar="SHARE", help="held out, stratified")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="of split, shuffle and faults")


def _hardware_options(group: argparse._ArgumentGroup) -> None:
    modes = [mode.value for mode in Partitioning]
    group.add_argument("--mode", choices=modes, default=modes[0], help="what is spread over the workers")
    group.add_argument(
        "--vanilla",
        action="store_true",
        help="without the pipeline: all of a mini-batch forward, then its AllReduces, then backward",
    )
    group.add_argument(
        "--gradient-values",
        type=int,
        default=GlmConfig.gradient_values,
        metavar="V",
        help="gradients of a packet, data-parallel: a power of two up to 32",
    )
    group.add_argument("--workers", type=int, default=4, metavar="W", help="nodes")
    size = group.add_mutually_exclusive_group()
    size.add_argument("--engines", type=int, metavar="E", help="engines of a node; the preset's by default")
    size.add_argument("--preset", choices=list(PRESETS), default="demo", help="sizes of a node")
    group.add_argument(
        "--precision", type=int, default=DEFAULT_PRECISION, metavar="S", help="bits of a feature"
    )
    group.add_argument("--frac", type=int, default=DEFAULT_FRAC, metavar="F", help="fraction bits of a weight")
    group.add_argument("--clock-mhz", type=float, default=CLOCK_MHZ, metavar="F", help="clock of the nodes")
    group.add_argument(
        "--memory",
        choices=list(MEMORIES),
        default=CONSTANT,
        help="what samples and labels lie in: a constant latency, or banks with rows and refreshes",
    )
    group.add_argument(
        "--ports-per-channel",
        type=int,
        metavar="N",
        help="with --memory hbm2: neighbouring ports that share a pseudo-channel; 1 by default",
    )


def _board_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--on",
        type=Path,
        metavar="BOARDS.toml",
        help="train on these boards; they decide workers, preset, encap and clock, and this host is the switch",
    )


def _network_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--ports",
        metavar="IF,IF,…",
        help="Linux interfaces, one for each node, to a switch that has the job (fanin p4 serve, or another); "
        "they decide workers",
    )
    group.add_argument(
        "--worker",
        metavar="R,…",
        help="with --ports: whose nodes these are, from 0 on, of --workers; the others train elsewhere",
    )
    group.add_argument(
        "--slowdown",
        type=float,
        default=NetworkConfig.slowdown,
        metavar="N",
        help="with --ports: a second of the nodes' time takes N seconds at least",
    )
    encaps = [encap.value for encap in Encap]
    switches = [switch.value for switch in SwitchKind]
    group.add_argument("--switch", choices=switches, default=switches[0], help="which switch aggregates")
    protocols = [protocol.value for protocol in Protocol]
    group.add_argument(
        "--protocol", choices=protocols, default=protocols[0], help="what frees a slot; switchml: the baseline"
    )
    group.add_argument("--encap", choices=encaps, default=encaps[0], help="raw Ethernet, or UDP over IPv4")
    group.add_argument("--slots", type=int, metavar="N", help="aggregation slots; the preset's by default")
    group.add_argument(
        "--timeout-ns",
        type=float,
        metavar="T",
        help=f"until a packet is resent: {NetworkConfig.timeout_ns:g}, with --ports {PORTS_TIMEOUT_NS:g}, "
        f"on boards {BOARDS_TIMEOUT_NS:g}",
    )
    for option, default, metavar, meaning in (
        ("--retries", NetworkConfig.retries, "R", "of one packet; then the job stops"),
        *((f"--{fault}", getattr(LinkConfig, fault), "P", "probability per frame") for fault in FAULTS),
        ("--link-ns", LinkConfig.delay_ns, "N", "delay of a link"),
        ("--switch-ns", NetworkConfig.switch_ns, "N", "delay of the switch"),
        ("--gbps", LinkConfig.gbps, "G", "rate of a link"),
        *HOST_OPTIONS,
    ):
        group.add_argument(option, type=type(default), default=default, metavar=metavar, help=meaning)
    group.add_argument(
        "--stop",
        action="append",
        metavar="WORKER:T,…",
        help="1:1e-4: worker 1 stops answering after 1e-4 simulated seconds; a restart replaces it",
    )


def _survival_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--checkpoint",
        type=int,
        metavar="N",
        help="keep the state every N epochs, and after the last one, in the run's folder",
    )
    group.add_argument(
        "--resume",
        type=Path,
        metavar="DIR",
        help="continue the run in this folder from its last whole state, with its options; -o: DIR by default",
    )
    group.add_argument(
        "--restart",
        type=int,
        metavar="N",
        help="after a failure of a node, restart from the last state as a new job; at most N times",
    )


def _output_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-o", type=Path, metavar="DIR", dest="output", help="the run's folder; runs/DATA by default"
    )
    group.add_argument(
        "--pcap", type=Path, metavar="FILE", help="frames at the switch; DIR/frames.pcap by default"
    )
    group.add_argument("--model-out", type=Path, metavar="FILE.npz", help="the model; DIR/model.npz by default")
    add_json(group)
