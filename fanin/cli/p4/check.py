"""``fanin p4 check``: the model checker."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from fanin.cli.output import print_json, table
from fanin.errors import CheckFailed, InputError
from fanin.wire.aggregation import Protocol

PROTOCOL_NAMES = (*Protocol, "published")  # those of fanin.sim.checker, which --help need not load


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    check = parts.add_parser(
        "check",
        help="search all that workers, switch and network can do",
        description="Visit every state that workers, switch and network can reach within bounds, and say which "
        "invariants hold, or show the shortest way to break each. Exit status 1 when one is broken.",
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
    check.add_argument("--seconds", type=float, default=600.0, metavar="T", help="then the search is given up")
    check.add_argument("--first", action="store_true", help="stop at the first invariant that is broken")
    check.add_argument("--json", action="store_true", help="one JSON object on stdout")
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search. Raises CheckFailed when an invariant is broken."""
    from fanin.sim.checker import PROTOCOLS
    from fanin.sim.checker.chart import chart
    from fanin.sim.checker.protocol import INVARIANTS
    from fanin.sim.checker.search import Search
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
    search = Search(system)
    found = search.run(seconds=args.seconds, all_invariants=not args.first, progress=_progress)
    broken = found.counterexamples
    if args.json:
        print_json(
            {
                "protocol": args.protocol,
                "states": found.states,
                "seconds": found.seconds,
                "exhausted": found.exhausted,
                "invariants": {name: found.holds(name) for name in INVARIANTS},
                "counterexamples": {name: [_event(e) for e in c.events] for name, c in broken.items()},
            }
        )
    else:
        for name, example in broken.items():
            print(f"BROKEN: {name}\n\n{chart(example.events, workers=args.workers)}\n\n     {example.what}\n")
        rate = found.states / max(found.seconds, 1e-9)
        how = "all there are" if found.exhausted else "not all: the search was given up"
        print(f"{found.states:,} states in {found.seconds:.1f} s, {rate:,.0f} a second; {how}")
        states = {True: "holds", False: "BROKEN", None: "unknown"}
        print(table([[states[found.holds(name)], name] for name in INVARIANTS]))
    if broken:
        raise CheckFailed(f"{args.protocol} breaks {len(broken)} of {len(INVARIANTS)} invariants")
    return 0


def _event(event: Any) -> dict[str, Any]:
    kind, number = event.message
    return {"event": event.name, "worker": event.worker, "slot": event.slot, "kind": kind.name, "round": number}


def _progress(states: int, waiting: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{states:,} states, {waiting:,} to expand \x1b[K", end="\r", file=sys.stderr, flush=True)
