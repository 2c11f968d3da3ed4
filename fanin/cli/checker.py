"""Shared parts of the model checker's commands: options and reports."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fanin.base.errors import CheckFailed, InputError
from fanin.base.printable import terminal
from fanin.runs.output import add_json, print_json, table

if TYPE_CHECKING:
    from fanin.sim.checker.search import Outcome


MAX_PROCESSES = 64  # every process has a connection to every other one


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a search: time, processes, stop condition and output."""
    parser.add_argument("--seconds", type=float, default=600.0, metavar="T", help="time limit of the search")
    parser.add_argument(
        "--processes", type=int, default=1, metavar="P", help="processes of the search; a core each"
    )
    parser.add_argument("--first", action="store_true", help="stop at the first invariant that is broken")
    add_json(parser)


def check_options(args: argparse.Namespace) -> None:
    """Raise InputError for a time that is not positive, or a number of processes out of range."""
    if not args.seconds > 0:
        raise InputError(f"seconds must be positive, not {args.seconds:g}")
    if not 1 <= args.processes <= MAX_PROCESSES:
        raise InputError(f"processes must be in 1…{MAX_PROCESSES}, not {args.processes}")


def report(
    outcome: Outcome,
    args: argparse.Namespace,
    *,
    name: str,
    settings: dict[str, Any],
    draw: Callable[[Sequence[Any]], str],
    event: Callable[[Any], dict[str, Any]],
    lower: str,
) -> int:
    """Print the outcome of a search; return 0. Raises CheckFailed if an invariant is broken or not proved.

    - ``name``: name of the searched system, for the error.
    - ``settings``: first fields of the JSON output.
    - ``draw``: makes a text chart of a counterexample's events.
    - ``event``: converts an event to JSON.
    - ``lower``: names of the options that make a search smaller, for advice.
    """
    from fanin.sim.checker.search import BROKEN, NOT_PROVED

    counterexamples = outcome.counterexamples
    # None: neither proved nor broken.
    holds_by_invariant = {invariant: outcome.holds(invariant) for invariant in outcome.invariants}
    if args.json:
        print_json(
            {
                **settings,
                "status": outcome.status,
                "states": outcome.states,
                "seconds": outcome.seconds,
                "processes": args.processes,
                "depth": outcome.depth,
                "exhausted": outcome.exhausted,
                "invariants": holds_by_invariant,
                "counterexamples": {
                    invariant_name: [event(e) for e in c.events]
                    for invariant_name, c in counterexamples.items()
                },
            }
        )
    else:
        for invariant, example in counterexamples.items():
            kind = "the shortest way" if example.shortest else "a way, perhaps not the shortest"
            print(f"BROKEN: {invariant} ({kind})\n\n{draw(example.events)}\n")
            print(f"     {example.violation}\n")
        rate = outcome.states / max(outcome.seconds, 1e-9)
        extent = "all there are" if outcome.exhausted else "not all there are"
        print(f"{outcome.states:,} states in {outcome.seconds:.1f} s, {rate:,.0f} a second; {extent}")
        states = {True: "holds", False: "BROKEN", None: "unknown"}
        print(table([[states[holds], invariant_name] for invariant_name, holds in holds_by_invariant.items()]))
        if None in holds_by_invariant.values():
            print(f"unknown: {_why_unknown(outcome, first=args.first, lower=lower)}")
    if outcome.status == BROKEN:
        raise CheckFailed(f"{name} breaks {len(counterexamples)} of {len(outcome.invariants)} invariants")
    if outcome.status == NOT_PROVED:
        raise CheckFailed(f"{name} is not proved: the search was cut, and nothing is broken so far")
    return 0


def progress() -> Callable[[int, int], None]:
    """Return a function that shows the progress of a search that starts now, on a terminal."""
    start = time.monotonic()

    def show(states: int, waiting: int) -> None:
        if sys.stderr.isatty():
            rate = states / max(time.monotonic() - start, 1e-9)
            text = f"{states:,} states, {rate:,.0f} a second, {waiting:,} to expand"
            print(f"\r{text} \x1b[K", end="\r", file=terminal(), flush=True)

    return show


def _why_unknown(outcome: Outcome, *, first: bool, lower: str) -> str:
    """Return why an invariant is neither proved nor broken, with advice."""
    if outcome.exhausted and not outcome.counterexamples:
        return "all states were visited; the time limit ended the check that each can finish: raise --seconds"
    if outcome.exhausted:
        return (
            "the search does not continue from a state that breaks another invariant: neither proved nor broken"
        )
    if outcome.counterexamples and first:
        return "the search ended at the first invariant that is broken; without --first it continues"
    return (
        f"the search was cut at {outcome.states:,} states, {outcome.depth} events from the start: "
        f"neither proved nor broken; raise --seconds, or take fewer {lower}"
    )
