"""``fanin link check``: model checking of the reliable link."""

from __future__ import annotations

import argparse

from fanin.base.errors import InputError
from fanin.cli.checker import add_options, check_options, progress, report


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    check = parts.add_parser(
        "check",
        help="search all states of two ends and a network",
        description="Visit every state that sender, receiver and network can reach within bounds, for an "
        "endless stream and any number of faults. Report which invariants hold, or the shortest way to break "
        "each. Exit status 1 when one is broken, or not proved because the search was cut.",
    )
    for option, default, metavar, meaning in (
        ("--window", 2, "W", "frames that the sender keeps"),
        ("--buffer", 2, "B", "frames that the receiver has room for"),
        ("--ack-frames", 1, "A", "frames taken or consumed until an ACK is due"),
        ("--in-flight", 2, "C", "frames in flight in each direction"),
    ):
        check.add_argument(option, type=int, default=default, metavar=metavar, help=meaning)
    check.add_argument(
        "--overtaking", type=int, metavar="K", help="times that a frame may be overtaken; unlimited by default"
    )
    check.add_argument(
        "--sequences", type=int, default=1 << 32, metavar="M", help="sequence numbers before they wrap"
    )
    check.add_argument(
        "--retries", type=int, metavar="R", help="timeouts until the sender gives up; the peer may die then"
    )
    check.add_argument("--watch", action="store_true", help="allow timeouts while no frame is kept")
    check.add_argument("--published", action="store_true", help="no retransmission: a gap ends the job")
    add_options(check)
    check.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search all states. Raises CheckFailed if an invariant is broken or not proved."""
    from fanin.sim.checker.chart import link_chart
    from fanin.sim.checker.link import LinkSystem
    from fanin.sim.checker.link_ends import Bounds
    from fanin.sim.checker.search import search

    names = ("window", "buffer", "ack_frames", "in_flight", "overtaking", "sequences", "retries")
    sizes = {name: getattr(args, name) for name in (*names, "watch", "published")}
    check_options(args)
    try:
        bounds = Bounds(**sizes)
    except ValueError as error:
        raise InputError(str(error)) from error
    outcome = search(
        LinkSystem(bounds),
        seconds=args.seconds,
        all_invariants=not args.first,
        processes=args.processes,
        progress=progress(),
    )
    return report(
        outcome,
        args,
        name="the published link" if args.published else "the link",
        settings=sizes,
        draw=lambda events: link_chart(events, sequences=args.sequences),
        event=lambda event: {
            "event": event.name,
            "packet": event.packet and event.packet._asdict() | {"kind": event.packet.kind.name},
            "freed": event.freed,
        },
        lower="--window, --buffer or --in-flight",
    )
