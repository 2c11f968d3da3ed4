"""``fanin p4 check``: model checking of the aggregation protocol."""

from __future__ import annotations

import argparse
from typing import Any

from fanin.base.errors import InputError
from fanin.cli.checker import add_options, check_options, progress, report
from fanin.wire.aggregation import Protocol

PROTOCOL_NAMES = (*Protocol, "published")  # names in fanin.sim.checker, which --help must not load


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
    for option, default, metavar, meaning in (
        ("--workers", 2, "W", "members of the job"),
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
    from fanin.sim.checker import PROTOCOLS
    from fanin.sim.checker.chart import chart
    from fanin.sim.checker.search import check
    from fanin.sim.checker.system import Faults, System

    total_faults = args.losses + args.duplicates + args.reorder if args.faults is None else args.faults
    check_options(args)
    try:
        protocol = PROTOCOLS[args.protocol](workers=args.workers, slots=args.slots, rounds=args.rounds)
        faults = Faults(args.losses, args.duplicates, args.reorder, total_faults)
        system = System(protocol, faults)
    except ValueError as error:
        raise InputError(str(error)) from error
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
        draw=lambda events: chart(events, workers=args.workers),
        event=_event,
        lower="--workers, --slots, --rounds or faults",
    )


def _event(event: Any) -> dict[str, Any]:
    kind, number = event.message
    return {"event": event.name, "worker": event.worker, "slot": event.slot, "kind": kind.name, "round": number}
