"""From the options of ``fanin train`` to its runs."""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable

from fanin.cli.ranks import refuse_ranks
from fanin.cli.stops import parse_stops
from fanin.cli.train.boards import read_boards
from fanin.errors import InputError
from fanin.fixed import LOSSES
from fanin.glm import PRESETS, GlmConfig
from fanin.hbm import CONSTANT, MEMORIES, Hbm
from fanin.sim.cosim.waves import Waveform
from fanin.sim.glm.boards import Boards
from fanin.sim.glm.data import Dataset
from fanin.sim.glm.recipes import rate_of
from fanin.sim.glm.result import TrainOptions, check_timeout
from fanin.sim.glm.train import Trainer, trainers
from fanin.sim.network import (
    BOARDS_TIMEOUT_NS,
    FAULTS,
    HOST,
    PORTS_TIMEOUT_NS,
    LinkConfig,
    NetworkConfig,
    check_delay,
)
from fanin.sim.nic.pace import MAX_SLOWDOWN
from fanin.sim.switch.base import SwitchKind
from fanin.wire.aggregation import Encap


def trainers_of(
    args: argparse.Namespace,
    wave: Waveform | None,
    *,
    check: Callable[[TrainOptions], None] | None = None,
    loaded: Callable[[Dataset], None] | None = None,
) -> list[Trainer]:
    """Make what trains: simulated nodes, or the boards of ``--on``. Raises InputError.

    ``check`` gets the options before the data is loaded, ``loaded`` the data before a simulator is built.
    """
    options, boards = _options_and_boards(args)
    if check:
        check(options)
    return trainers(options, boards=boards, wave=wave, loaded=loaded)


def _options_and_boards(args: argparse.Namespace) -> tuple[TrainOptions, Boards | None]:
    """The options of a run, and its boards, if it has any."""
    if args.worker is not None and args.ports is None:
        raise InputError("--worker: says whose nodes are at --ports, and there are none")
    if args.slowdown != NetworkConfig.slowdown and args.ports is None:
        raise InputError("--slowdown: is of nodes at --ports, and there are none")
    for option in ("on", "ports"):
        if getattr(args, option) is not None:
            refuse_ranks(args, f"--{option}")
    if args.on is None:
        if args.ports is not None:
            _take_ports(args)
        return options_of(args), None
    if args.ports is not None:
        raise InputError("--ports: boards have a network of their own, so it does not go with --on")
    if args.memory != CONSTANT:
        raise InputError("--memory: boards have memories of their own, so it does not go with --on")
    _refuse_network(args)
    cluster = read_boards(args.on)
    args.workers, args.preset, args.engines = len(cluster.addresses), cluster.preset, None
    clocks = [address.core_mhz for address in cluster.addresses]
    args.encap, args.clock_mhz = Encap.UDP, min(clocks)
    if args.timeout_ns is None:
        args.timeout_ns = BOARDS_TIMEOUT_NS
    options = options_of(args, l2_nodes=cluster.l2)
    check_timeout(options.network.timeout_ns, max(clocks))
    return options, Boards(options.node, cluster.addresses)


def _refuse_network(args: argparse.Namespace) -> None:
    """Raises InputError for an option that the simulated network alone has, unless it has its default."""
    defaults = {name: getattr(LinkConfig, name) for name in (*FAULTS, *HOST, "gbps")}
    defaults |= {"link_ns": LinkConfig.delay_ns, "switch_ns": NetworkConfig.switch_ns}
    for name, default in defaults.items():
        if getattr(args, name) != default:
            option = "--" + name.replace("_", "-")
            raise InputError(f"{option}: boards have a network of their own, so it does not go with --on")


def _take_ports(args: argparse.Namespace) -> None:
    """What ``--ports`` decides. Raises InputError unless they can be opened."""
    from fanin.sim.nic.outside import check_interfaces

    args.ports = tuple(args.ports.split(","))
    args.worker = _workers_here(args)
    check_interfaces(args.ports)
    if not 1 <= args.slowdown <= MAX_SLOWDOWN:
        raise InputError(f"--slowdown {args.slowdown:g}: must be 1 to {MAX_SLOWDOWN:g}")
    if not args.worker:
        args.workers = len(args.ports)
    if args.timeout_ns is None:
        args.timeout_ns = PORTS_TIMEOUT_NS


def _workers_here(args: argparse.Namespace) -> tuple[int, ...]:
    """Those whose nodes are here, by ``--worker``; none for all. Raises InputError."""
    if args.worker is None:
        return ()
    try:
        here = tuple(int(text) for text in args.worker.split(","))
    except ValueError as error:
        raise InputError(f"--worker {args.worker}: must be numbers, from 0 on") from error
    if len(here) != len(args.ports):
        raise InputError(f"--worker {args.worker}: must be one for each of --ports, {len(args.ports)}")
    if len(set(here)) < len(here) or not all(0 <= worker < args.workers for worker in here):
        raise InputError(
            f"--worker {args.worker}: must be different ones of 0 to {args.workers - 1} (--workers)"
        )
    return here


def options_of(args: argparse.Namespace, *, l2_nodes: bool | None = None) -> TrainOptions:
    """The options of a run. Raises InputError.

    ``l2_nodes``: whether the nodes' weights can decay; they are made so where ``--l2`` asks for it, by default.
    """
    same = (
        "data",
        "target",
        "workers",
        "precision",
        "batch",
        "vanilla",
        "epochs",
        "l2",
        "bias",
        "shuffle",
        "test",
        "seed",
        "clock_mhz",
    )
    loss = LOSSES[args.loss]
    try:
        return TrainOptions(
            node=_node(args, l2=args.l2 != 0 if l2_nodes is None else l2_nodes),
            network=_network(args),
            loss=loss,
            lr=rate_of(args.data, loss) if args.lr is None else args.lr,
            hbm=_hbm(args),
            **{name: getattr(args, name) for name in same},
        )
    except ValueError as error:  # the configurations name parameter, value and limit
        raise InputError(str(error)) from error


def _node(args: argparse.Namespace, *, l2: bool) -> GlmConfig:
    preset = PRESETS[args.preset]
    node = dataclasses.replace(
        preset,
        engines=preset.engines if args.engines is None else args.engines,
        slots=preset.slots if args.slots is None else args.slots,
        frac=args.frac,
        encap=args.encap,
        protocol=args.protocol,
        mode=args.mode,
        gradient_values=args.gradient_values,
        l2=l2,
        vanilla=args.vanilla and args.on is None,  # boards were made before
        ping=bool(args.ports) and args.encap == Encap.UDP,  # hosts beside the nodes may want to
    )
    # Fewer slots than the preset's are a register of the job, not another node.
    return dataclasses.replace(node, slots=max(node.slots, preset.slots))


def _hbm(args: argparse.Namespace) -> Hbm | None:
    """What samples and labels lie in. Raises InputError."""
    hbm = MEMORIES[args.memory]
    if args.ports_per_channel is None:
        return hbm
    if hbm is None:
        raise InputError(f"--ports-per-channel: a memory that is {args.memory} has no channels")
    return dataclasses.replace(hbm, ports_per_channel=args.ports_per_channel)


def _network(args: argparse.Namespace) -> NetworkConfig:
    if not 0 < args.gbps < math.inf:
        raise InputError(f"gbps must be positive and finite, not {args.gbps:g}")
    check_delay("link_ns", args.link_ns)
    link = LinkConfig(
        delay_ns=args.link_ns, gbps=args.gbps, **{name: getattr(args, name) for name in (*FAULTS, *HOST)}
    )
    return NetworkConfig(
        link=link,
        switch_ns=args.switch_ns,
        timeout_ns=NetworkConfig.timeout_ns if args.timeout_ns is None else args.timeout_ns,
        retries=args.retries,
        slots=args.slots,
        seed=args.seed,
        switch=SwitchKind(args.switch),
        ports=args.ports or (),
        here=args.worker or (),
        slowdown=args.slowdown,
        stops=_stops(args),
    )


def _stops(args: argparse.Namespace) -> tuple[tuple[int, float], ...]:
    """Workers that stop, and when. Raises InputError."""
    if not args.stop:
        return ()
    for option in ("on", "ports"):
        if getattr(args, option):
            raise InputError(
                f"--stop: links of the simulated network are cut, so it does not go with --{option}"
            )
    return tuple(parse_stops(",".join(args.stop), args.workers).items())
