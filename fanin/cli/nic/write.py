"""``fanin nic write``: one write by a running node."""

from __future__ import annotations

import argparse
from pathlib import Path

from fanin.base.errors import CheckFailed
from fanin.cli.nic.waiting import add_wait, check_wait
from fanin.cli.ranges import integer
from fanin.rdma.facts import Ending
from fanin.runs.output import add_json, print_json

WAIT_SECONDS = 60.0


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    part = parts.add_parser(
        "write",
        help="make a node do a one-sided write",
        description="Have a node that `fanin nic run --kind rdma --control SOCKET` runs write a stretch of its "
        "memory into its peer's. Exit status 1 where the peer refuses it, or does not answer.",
    )
    part.add_argument("control", type=Path, metavar="SOCKET", help="the node's control socket")
    part.add_argument("--bytes", type=int, required=True, metavar="N", help="number of bytes")
    for name, default, meaning in (
        ("local", 0, "address of the first byte in the node's memory"),
        ("remote", 0, "address in the peer's memory"),
        ("rkey", 1, "key of the peer's region"),
        ("pair", 0, "place of the queue pair"),
        ("immediate", None, "immediate data for the peer's program"),
    ):
        part.add_argument(f"--{name}", type=integer, default=default, metavar="N", help=meaning)
    add_wait(part, WAIT_SECONDS, "seconds until the command gives up")
    add_json(part)
    part.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write, and wait for the end. Raises InputError if the node rejects the write, CheckFailed if it fails."""
    from fanin.host.nic import RdmaNic

    check_wait(args)
    names = ("local", "remote", "rkey", "pair", "immediate")
    fields = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    with RdmaNic(args.control, seconds=args.wait) as nic:
        ending = nic.write(args.bytes, **fields)
    if args.json:
        print_json({"ending": ending.name.lower(), "bytes": args.bytes})
    if ending is not Ending.DONE:
        from fanin.host.causes import explain  # of all nodes, whose registers take time to declare

        raise CheckFailed(f"{args.control}: the write ended with {explain(ending)}")
    if not args.json:
        print(f"{args.bytes:,} bytes written")
    return 0
