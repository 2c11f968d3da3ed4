"""``fanin p4 allreduce``: AllReduces through the switch program over a simulated network, without hardware."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.base.errors import InputError
from fanin.cli.options import add_options
from fanin.cli.p4.members import PUBLISHED, add_members, check_protocol, shape_of
from fanin.job import FIRST_JOB, SLOTS
from fanin.link import FAULTS, HOST, LinkConfig, check_delay
from fanin.runs.output import add_json, print_json, table
from fanin.runs.shared_options import LinkOptions
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.base import SwitchKind
from fanin.tree import Tree, tree_of
from fanin.wire.aggregation import DEFAULT_VALUES, VALUE_BITS, Encap, Protocol

if TYPE_CHECKING:
    from fanin.p4.aggregation import ProgramConfig

MAX_OPERATIONS = 1_000_000
MAX_SUMS = 1 << 24  #: operations of all workers; about 100 bytes of memory each
_MAX_VALUE = 1 << 20  # of a contribution
_MAX_SUM = 1 << 30


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "allreduce",
        help="latency and throughput of AllReduces over a simulated network",
        description="Add random values of several workers through the switch program, over simulated links, "
        "and measure the time. Workers are golden models that take no time.",
    )
    parser.add_argument(
        "--protocol",
        choices=(*Protocol, PUBLISHED),
        default=Protocol.P4SGD,
        help="switchml: the baseline; published: P4SGD's algorithms 2 and 3, whose mistakes are counted",
    )
    members = add_members(parser, workers=4)
    members.add_argument("--tree", type=Path, metavar="TREE.toml", help="a tree of switches from a file")
    for option, default, metavar, meaning in (
        ("--operations", 1000, "N", "number of AllReduces, of one packet each"),
        ("--window", 16, "N", "most operations of a worker in flight, a power of two"),
        ("--values", DEFAULT_VALUES, "V", "values of a packet"),
        ("--seed", 0, "N", "seed of values and faults"),
        ("--retries", NetworkConfig.retries, "R", "retransmissions of one packet until the job stops"),
    ):
        parser.add_argument(option, type=int, default=default, metavar=metavar, help=meaning)
    parser.add_argument("--encap", choices=[*Encap], default=Encap.L2, help="raw Ethernet, or UDP over IPv4")
    kinds = [SwitchKind.EMBEDDED, SwitchKind.REFERENCE]
    parser.add_argument("--switch", choices=kinds, default=kinds[0], help="switch that aggregates")
    meaning = "fixed time until a packet is resent (default: it follows the measured round trips)"
    parser.add_argument("--timeout-ns", type=float, metavar="T", help=meaning)
    add_options(parser, LinkOptions)
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the all-reduce. Raises CheckFailed if a packet is given up, or sums of workers differ."""
    figures = _measure(args)
    if args.json:
        print_json(figures)
        return 0
    latency = figures["latency_ns"]
    rows = [
        ("latency", f"{latency['mean']:,.0f} ns mean, {latency['p50']:,.0f} median, {latency['p99']:,.0f} p99"),
        ("throughput", f"{figures['per_us']:,.3f} AllReduces a µs, {figures['gbps']:,.2f} Gb/s of values"),
        ("packets", f"{figures['packets']:,}, {figures['retransmissions']:,} of them sent again"),
    ]
    if args.protocol == PUBLISHED:
        mistakes = f"{figures['wrong']:,} wrong, {figures['repeated']:,} repeated, {figures['lost']:,} lost"
        rows.append(("sums", mistakes + (", and the job gave up" if figures["gave_up"] else "")))
    print(table([list(row) for row in rows]))
    if figures["switches"]:
        print()
        print(table(_levels(figures["switches"], figures["levels"])))
    return 0


def _levels(switches: Mapping[str, Mapping[str, int]], levels_of: Mapping[str, int]) -> list[list[str]]:
    """Return a table with the counters of the switches of each level, added up."""
    levels: dict[int, list[Mapping[str, int]]] = {}
    for name, counters in switches.items():
        levels.setdefault(levels_of[name], []).append(counters)
    rows = [["level", "switches", "results", "to parent", "to parent again", "duplicates", "stale"]]
    keys = ("results", "to_parent", "to_parent_again", "duplicate", "stale")
    for level, counted in sorted(levels.items()):
        sums = [sum(counters[key] for counters in counted) for key in keys]
        rows.append([str(level) if level else "root", str(len(counted)), *(f"{value:,}" for value in sums)])
    return rows


def _measure(args: argparse.Namespace) -> dict[str, Any]:
    """Run the AllReduces; return the figures for ``--json``."""
    import numpy as np  # --help must not wait for it to load

    from fanin.sim.switch.allreduce import allreduce
    from fanin.sim.switch.make import make_switch, make_tree
    from fanin.sim.switch.published import published_allreduce

    workers, program, network = _configuration(args)
    generator = np.random.default_rng(abs(args.seed))
    max_value = min(_MAX_VALUE, _MAX_SUM // workers)
    rows = generator.integers(-max_value, max_value, (workers, args.operations * args.values)).astype(np.int32)
    if args.protocol == PUBLISHED:
        result = published_allreduce(rows, program=program, network=network)
    else:
        make = partial(make_tree, network.tree) if network.tree else partial(make_switch, workers)
        switch = make(kind=network.switch, config=program)
        result = allreduce(rows, switch=switch, program=program, network=network)
    if not result.time_ns:
        raise InputError("--gbps inf needs a delay: without one the rate is infinite")
    latencies = np.array(result.latencies_ns or [np.nan])
    correct = args.operations - (result.wrong + result.lost) / workers
    return {
        "protocol": str(args.protocol),
        "workers": workers,
        "racks": args.racks,
        "tree": args.tree and str(args.tree),
        "operations": args.operations,
        "latency_ns": {
            "mean": float(latencies.mean()),
            "p50": float(np.percentile(latencies, 50)),
            "p99": float(np.percentile(latencies, 99)),
        },
        "time_ns": result.time_ns,
        "per_us": 1000 * correct / result.time_ns,
        "gbps": correct * args.values * VALUE_BITS / result.time_ns,
        "packets": result.sent,
        "retransmissions": result.retransmissions,
        "wrong": result.wrong,
        "repeated": result.repeated,
        "lost": result.lost,
        "gave_up": result.gave_up,
        "switch": result.counters.as_dict(),
        "switches": result.switches,
        "trunks": result.trunks,
        "levels": network.tree.distances(lambda _: 1) if network.tree else {},
    }


def _tree(args: argparse.Namespace, slots: int) -> Tree | None:
    """Return the tree of the options, with so many slots; None for one switch.

    Raises InputError, and ValueError for a shape out of range.
    """
    from fanin.p4.tree import check_udp, load_tree

    if args.tree is None:
        shape = shape_of(args)
        return None if isinstance(shape, int) else tree_of(shape, job=FIRST_JOB, base=0, slots=slots)
    check_protocol(args, "--tree")
    tree: Tree = load_tree(args.tree).with_job(FIRST_JOB, 0, slots)
    if args.encap == Encap.UDP:
        check_udp(tree, args.tree)
    return tree


def _configuration(args: argparse.Namespace) -> tuple[int, ProgramConfig, NetworkConfig]:
    """Return the number of workers, the switch program and the network of the options. Raises InputError."""
    from fanin.p4.aggregation import ProgramConfig

    if not 1 <= args.operations <= MAX_OPERATIONS:
        raise InputError(f"--operations {args.operations}: must be in 1…{MAX_OPERATIONS:,}")
    protocol = Protocol.P4SGD if args.protocol == PUBLISHED else Protocol(args.protocol)
    max_window = SLOTS // protocol.slots_per_operation
    if not 1 <= args.window <= max_window or args.window & (args.window - 1):
        raise InputError(f"--window {args.window}: must be a power of two in 1…{max_window}")
    slots = args.window * protocol.slots_per_operation
    try:
        tree = _tree(args, slots)
        workers = len(tree.workers) if tree else int(args.workers)
        if args.operations * workers > MAX_SUMS:
            raise InputError(
                f"--operations {args.operations:,}: {workers:,} workers take at most {MAX_SUMS // workers:,}"
            )
        check_delay("link_ns", args.link_ns)
        program = ProgramConfig(
            protocol=protocol,
            workers=tree.bits if tree else workers,
            slots=slots,
            values=args.values,
            encap=Encap(args.encap),
        )
        link_settings = {name: getattr(args, name) for name in (*FAULTS, *HOST)}
        network = NetworkConfig(
            link=LinkConfig(delay_ns=args.link_ns, gbps=args.gbps, **link_settings),
            switch_ns=args.switch_ns,
            timeout_ns=args.timeout_ns,
            retries=args.retries,
            seed=args.seed,
            switch=SwitchKind(args.switch),
            tree=tree,
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    return workers, program, network
