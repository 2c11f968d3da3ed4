"""``fanin ring check``: the handshake of a ring's nodes before the first job, in RTL."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from fanin.base.errors import CheckFailed, InputError
from fanin.ring.facts import MAX_NODES, MIN_NODES, PRESETS
from fanin.runs.output import add_json, print_json

if TYPE_CHECKING:
    from fanin.ring.driver import RingFindings

FINE = "fine"


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    part = parts.add_parser(
        "check",
        help="check a ring's handshake: wrong lists, wrong cables, dead nodes",
        description="Starts a job without vectors on RTL nodes. Each node probes the next one and compares "
        "its settings and its place with those of the previous one. Prints a line for each node. Exit status 1 "
        "if a node finds a problem. --list and --dead show what a wrong ring looks like.",
    )
    part.add_argument("--nodes", type=int, default=3, metavar="N", help="nodes of the ring")
    list_help = "ring order in the list of NODE's host (default: 0,1,2…); repeatable"
    part.add_argument("--list", action="append", default=[], metavar="NODE=N,N…", dest="lists", help=list_help)
    part.add_argument("--dead", type=int, metavar="NODE", help="node that is not started")
    part.add_argument("--preset", choices=PRESETS, default="tiny", help="sizes of the nodes")
    add_json(part)
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check the ring. Raises InputError for wrong options, CheckFailed if the simulation ends early."""
    from fanin.sim.cosim.simulator import SimulationFailed
    from fanin.sim.ring.cosim import RingCosim

    if args.nodes not in range(MIN_NODES, MAX_NODES + 1):
        raise InputError(f"--nodes {args.nodes}: a ring has {MIN_NODES} to {MAX_NODES} nodes")
    if args.dead is not None and args.dead not in range(args.nodes):
        raise InputError(f"--dead {args.dead}: must be 0 to {args.nodes - 1}")
    lists = _lists(args)
    lists.pop(args.dead, None)
    cosim = RingCosim(PRESETS[args.preset], nodes=args.nodes)
    try:
        findings_by_node = cosim.check(lists)
    except SimulationFailed as error:
        raise CheckFailed(str(error)) from error
    lines = {node: _line(findings_by_node[node]) for node in sorted(findings_by_node)}
    if args.json:
        print_json({"nodes": {str(node): line for node, line in lines.items()}})
    else:
        for node, line in lines.items():
            print(f"node {node}: {line}")
    return int(any(line != FINE for line in lines.values()))


def _lists(args: argparse.Namespace) -> dict[int, list[int]]:
    """Return each node's list of the ring. Raises InputError."""
    lists: dict[int, list[int]] = {node: [*range(args.nodes)] for node in range(args.nodes)}
    for text in args.lists:
        node, _, order = text.partition("=")
        try:
            number, ring = int(node), [int(member) for member in order.split(",")]
        except ValueError:
            raise InputError(f"--list {text}: must be NODE=NODE,NODE,…, such as 1=1,2,0") from None
        if number not in lists:
            raise InputError(f"--list {text}: the node must be 0 to {args.nodes - 1}")
        if number not in ring or len(set(ring)) != len(ring) or len(ring) < MIN_NODES:
            raise InputError(f"--list {text}: must have node {number} and others, each once")
        if not all(0 <= member < MAX_NODES for member in ring):
            raise InputError(f"--list {text}: nodes must be 0 to {MAX_NODES - 1}")
        lists[number] = ring
    return lists


def _line(findings: RingFindings) -> str:
    """Return the findings of a node in one line."""
    if findings.problem:
        return findings.problem
    if findings.complete:
        return FINE
    heard_sides: Mapping[str, bool] = {"previous": findings.heard_previous, "next": findings.heard_next}
    silent_sides = " and ".join(name for name, is_heard in heard_sides.items() if not is_heard)
    return f"the {silent_sides} node is silent: dead, not started, or cabled elsewhere"
