"""``fanin p4 check``: the model checker."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from fanin.cli.output import print_json, table
from fanin.errors import CheckFailed, InputError
from fanin.wire.aggregation import Protocol

if TYPE_CHECKING:
    from fanin.sim.checker.search import Outcome

PROTOCOL_NAMES = (*Protocol, "published")  # those of fanin.sim.checker, which --help need not load


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    check = parts.add_parser(
        "check",
        help="search all that workers, switch and network can do",
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
        ("--duplicates", 1, "D", "packets that may come twice"),
        ("--reorder", 1, "K", "packets that may come late"),
    ):
        check.add_argument(option, type=int, default=default, metavar=metavar, help=meaning)
    check.add_argument("--faults", type=int, metavar="F", help="of any kind, together; their sum by default")
    check.add_argument("--seconds", type=float, default=600.0, metavar="T", help="then the search is cut")
    check.add_argument("--first", action="store_true", help="stop at the first invariant that is broken")
    check.add_argument(
        "--full", action="store_true", help="put no event off: many more states, but the shortest ways to break"
    )
    check.add_argument("--json", action="store_true", help="one JSON object on stdout")
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search. Raises CheckFailed when an invariant is broken or not proved."""
    from fanin.sim.checker import PROTOCOLS
    from fanin.sim.checker.chart import chart
    from fanin.sim.checker.protocol import INVARIANTS
    from fanin.sim.checker.search import BROKEN, NOT_PROVED, check
    from fanin.sim.checker.system import Faults, System

    together = args.losses + args.duplicates + args.reorder if args.faults is None else args.faults
    if not args.seconds > 0:
        raise InputError(f"seconds must be positive, not {args.seconds:g}")
    try:
        protocol = PROTOCOLS[args.protocol](workers=args.workers, slots=args.slots, rounds=args.rounds)
        faults = Faults(args.losses, args.duplicates, args.reorder, together)
        system = System(protocol, faults)
    except ValueError as error:
        raise InputError(str(error)) from error
    found = check(
        system,
        seconds=args.seconds,
        all_invariants=not args.first,
        reduced=not args.full,
        progress=_progress,
    )
    broken, verdicts = found.counterexamples, {name: found.holds(name) for name in INVARIANTS}
    if args.json:
        print_json(
            {
                "protocol": args.protocol,
                "status": found.status,
                "states": found.states,
                "seconds": found.seconds,
                "depth": found.depth,
                "exhausted": found.exhausted,
                "invariants": verdicts,
                "counterexamples": {name: [_event(e) for e in c.events] for name, c in broken.items()},
            }
        )
    else:
        for name, example in broken.items():
            way = "the shortest way" if example.shortest else "a way, perhaps not the shortest"
            print(f"BROKEN: {name} ({way})\n\n{chart(example.events, workers=args.workers)}\n")
            print(f"     {example.what}\n")
        rate = found.states / max(found.seconds, 1e-9)
        how = "all there are" if found.exhausted else "not all there are"
        print(f"{found.states:,} states in {found.seconds:.1f} s, {rate:,.0f} a second; {how}")
        states = {True: "holds", False: "BROKEN", None: "unknown"}
        print(table([[states[holds], name] for name, holds in verdicts.items()]))
        if None in verdicts.values():
            print(f"unknown: {_why_unknown(found, first=args.first)}")
    if found.status == BROKEN:
        raise CheckFailed(f"{args.protocol} breaks {len(broken)} of {len(INVARIANTS)} invariants")
    if found.status == NOT_PROVED:
        raise CheckFailed(f"{args.protocol} is not proved: the search was cut, and nothing is broken so far")
    return 0


def _why_unknown(found: Outcome, *, first: bool) -> str:
    """Why an invariant is neither proved nor broken, and what helps."""
    if found.exhausted:
        return "what breaks another invariant goes no further here, so this one is neither proved nor broken"
    if found.counterexamples and first:
        return "the search ended at the first invariant that is broken; without --first it goes on"
    return (
        f"the search was cut at {found.states:,} states, {found.depth} events from the start: neither proved "
        "nor broken; raise --seconds, or take fewer --workers, --slots, --rounds or faults"
    )


def _event(event: Any) -> dict[str, Any]:
    kind, number = event.message
    return {"event": event.name, "worker": event.worker, "slot": event.slot, "kind": kind.name, "round": number}


def _progress(states: int, waiting: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{states:,} states, {waiting:,} to expand \x1b[K", end="\r", file=sys.stderr, flush=True)
