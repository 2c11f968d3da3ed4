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


MAX_PROCESSES = 64  # each is connected to each


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of a search: time, processes, stop condition and output."""
    parser.add_argument("--seconds", type=float, default=600.0, metavar="T", help="time limit of the search")
    parser.add_argument(
        "--processes", type=int, default=1, metavar="P", help="processes of the search; a core each"
    )
    parser.add_argument("--first", action="store_true", help="stop at the first invariant that is broken")
    add_json(parser)


def check_options(args: argparse.Namespace) -> None:
    """Raises InputError when there is no time to search, or no process, or too many."""
    if not args.seconds > 0:
        raise InputError(f"seconds must be positive, not {args.seconds:g}")
    if not 1 <= args.processes <= MAX_PROCESSES:
        raise InputError(f"processes must be in 1…{MAX_PROCESSES}, not {args.processes}")


def tell(
    found: Outcome,
    args: argparse.Namespace,
    *,
    name: str,
    said: dict[str, Any],
    draw: Callable[[Sequence[Any]], str],
    event: Callable[[Any], dict[str, Any]],
    lower: str,
) -> int:
    """Print what was found: ``said`` comes first in JSON, ``draw`` makes a chart of events, ``event`` JSON.

    ``lower``: the options that make a search smaller. Raises CheckFailed, which names what was searched, when
    an invariant is broken or not proved.
    """
    from fanin.sim.checker.search import BROKEN, NOT_PROVED

    broken, verdicts = found.counterexamples, {each: found.holds(each) for each in found.invariants}
    if args.json:
        print_json(
            {
                **said,
                "status": found.status,
                "states": found.states,
                "seconds": found.seconds,
                "processes": args.processes,
                "depth": found.depth,
                "exhausted": found.exhausted,
                "invariants": verdicts,
                "counterexamples": {each: [event(e) for e in c.events] for each, c in broken.items()},
            }
        )
    else:
        for invariant, example in broken.items():
            way = "the shortest way" if example.shortest else "a way, perhaps not the shortest"
            print(f"BROKEN: {invariant} ({way})\n\n{draw(example.events)}\n")
            print(f"     {example.violation}\n")
        rate = found.states / max(found.seconds, 1e-9)
        how = "all there are" if found.exhausted else "not all there are"
        print(f"{found.states:,} states in {found.seconds:.1f} s, {rate:,.0f} a second; {how}")
        states = {True: "holds", False: "BROKEN", None: "unknown"}
        print(table([[states[holds], each] for each, holds in verdicts.items()]))
        if None in verdicts.values():
            print(f"unknown: {_why_unknown(found, first=args.first, lower=lower)}")
    if found.status == BROKEN:
        raise CheckFailed(f"{name} breaks {len(broken)} of {len(found.invariants)} invariants")
    if found.status == NOT_PROVED:
        raise CheckFailed(f"{name} is not proved: the search was cut, and nothing is broken so far")
    return 0


def progress() -> Callable[[int, int], None]:
    """Return a function that prints the progress of a search which begins now."""
    began = time.monotonic()

    def say(states: int, waiting: int) -> None:
        if sys.stderr.isatty():
            rate = states / max(time.monotonic() - began, 1e-9)
            told = f"{states:,} states, {rate:,.0f} a second, {waiting:,} to expand"
            print(f"\r{told} \x1b[K", end="\r", file=terminal(), flush=True)

    return say


def _why_unknown(found: Outcome, *, first: bool, lower: str) -> str:
    """Return why an invariant is neither proved nor broken, with advice."""
    if found.exhausted and not found.counterexamples:
        return "all states were visited, but time was over before all were asked for their end: raise --seconds"
    if found.exhausted:
        return "what breaks another invariant goes no further here, so this one is neither proved nor broken"
    if found.counterexamples and first:
        return "the search ended at the first invariant that is broken; without --first it goes on"
    return (
        f"the search was cut at {found.states:,} states, {found.depth} events from the start: neither proved "
        f"nor broken; raise --seconds, or take fewer {lower}"
    )
