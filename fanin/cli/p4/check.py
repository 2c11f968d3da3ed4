"""``fanin p4 check``: model checking of the aggregation protocol."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fanin.base.errors import InputError
from fanin.cli.checker import add_options, check_options, progress, report
from fanin.cli.p4.members import PUBLISHED, add_members, shape_of
from fanin.tree import Shape, workers_of
from fanin.wire.aggregation import Protocol

if TYPE_CHECKING:
    from fanin.sim.checker.system import System
    from fanin.sim.checker.topology import Topology

PROTOCOL_NAMES = (*Protocol, PUBLISHED)  # names in fanin.sim.checker, which --help must not load


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    check = parts.add_parser(
        "check",
        help="search all states of workers, switch and network",
        description="Visit every state that workers, switch and network can reach within bounds, and say which "
        "invariants hold, or show a way to break each. Exit status 1 when one is broken, or not proved because "
        "the search was cut.",
    )
    check.add_argument(
        "--protocol",
        choices=PROTOCOL_NAMES,
        default=Protocol.P4SGD,
        help="switchml: the baseline; published: P4SGD's algorithms 2 and 3",
    )
    add_members(check, workers=2)
    for option, default, metavar, meaning in (
        ("--slots", 1, "N", "slots of the job; with switchml 2N, of which N are in flight"),
        ("--rounds", 2, "R", "times that each slot is used"),
        ("--losses", 1, "L", "packets that may be lost"),
        ("--duplicates", 1, "D", "packets that may be duplicated"),
        ("--reorder", 1, "K", "packets that may be reordered"),
    ):
        check.add_argument(option, type=int, default=default, metavar=metavar, help=meaning)
    check.add_argument(
        "--faults", type=int, metavar="F", help="most faults of all kinds together; their sum by default"
    )
    check.add_argument(
        "--full",
        action="store_true",
        help="explore all orders of events: many more states, but the shortest counterexamples",
    )
    add_options(check)
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search all states. Raises CheckFailed if an invariant is broken or not proved."""
    from fanin.sim.checker.chart import chart
    from fanin.sim.checker.search import check
    from fanin.sim.checker.topology import Topology

    check_options(args)
    shape = shape_of(args)
    try:
        system = _system(args, shape)
    except ValueError as error:
        raise InputError(str(error)) from error
    topology = Topology(shape)
    outcome = check(
        system,
        seconds=args.seconds,
        all_invariants=not args.first,
        reduced=not args.full,
        processes=args.processes,
        progress=progress(),
    )
    return report(
        outcome,
        args,
        name=args.protocol,
        settings={"protocol": args.protocol},
        draw=lambda events: chart(events, topology),
        event=lambda event: _event(event, topology),
        lower=f"{'--racks' if args.racks else '--workers'}, --slots, --rounds or faults",
    )


def _system(args: argparse.Namespace, shape: Shape) -> System:
    """Return the system to search. Raises ValueError."""
    from fanin.sim.checker import PROTOCOLS
    from fanin.sim.checker.rounds import Rounds
    from fanin.sim.checker.system import Faults, System
    from fanin.sim.checker.tree import TreeSystem

    total_faults = args.losses + args.duplicates + args.reorder if args.faults is None else args.faults
    faults = Faults(args.losses, args.duplicates, args.reorder, total_faults)
    size: dict[str, Any] = {"workers": workers_of(shape), "slots": args.slots, "rounds": args.rounds}
    if isinstance(shape, int):
        return System(PROTOCOLS[args.protocol](**size), faults)
    return TreeSystem(Rounds(**size, protocol=Protocol(args.protocol), shape=shape), faults)


def _event(event: Any, topology: Topology) -> dict[str, Any]:
    kind, number = event.message
    actor: dict[str, int] = {"worker": event.actor}
    if not topology.is_worker(event.actor):
        actor = {"switch": topology.switch_of(event.actor)}
    return {"event": event.name, **actor, "slot": event.slot, "kind": kind.name, "round": number}
