"""``fanin nic run``: a node at Linux interfaces, of the kind that is asked for."""

from __future__ import annotations

import argparse

from fanin.cli.nic import inceptionn, rdma
from fanin.cli.output import add_json
from fanin.cli.serving import add_seconds, check_seconds
from fanin.errors import InputError
from fanin.sim.network import SLOWDOWN
from fanin.sim.nic.pace import MAX_SLOWDOWN

KINDS = {
    "inceptionn": (inceptionn, "an INCEPTIONN NIC between a host and a wire"),
    "rdma": (rdma, "a node of one-sided writes, whose memory is a file"),
}
#: Kinds that other commands run, and these.
ELSEWHERE = {"glm": "fanin train DATA --ports IF,IF,… runs GLM nodes at interfaces"}


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part, and each kind's options in a group of their own."""
    part = parts.add_parser(
        "run",
        help="a node at Linux interfaces",
        description="Run a node at Linux interfaces until it is interrupted: "
        + "; ".join(f"{name}: {what}" for name, (_, what) in KINDS.items())
        + ". Opening interfaces needs CAP_NET_RAW; nothing of them is changed.",
    )
    part.add_argument("--kind", choices=(*KINDS, *ELSEWHERE), default="inceptionn", help="which node")
    part.add_argument("--model", action="store_true", help="the golden model in place of the RTL")
    part.add_argument(
        "--slowdown",
        type=float,
        default=SLOWDOWN,
        metavar="N",
        help="a second of the RTL's time takes N seconds at least",
    )
    add_seconds(part)
    add_json(part)
    owners: dict[str, str] = {}
    for name, (kind, what) in KINDS.items():
        before = set(vars(part.parse_args([])))
        kind.add_options(part.add_argument_group(f"--kind {name}", what))
        owners |= dict.fromkeys(set(vars(part.parse_args([]))) - before, name)
    part.set_defaults(run=run, owners=owners, defaults=vars(part.parse_args([])))


def run(args: argparse.Namespace) -> int:
    """Serve. Raises InputError for a wrong option or interface, before any frame is taken."""
    if args.kind in ELSEWHERE:
        raise InputError(f"--kind {args.kind}: {ELSEWHERE[args.kind]}")
    for name, kind in args.owners.items():
        if kind != args.kind and getattr(args, name) != args.defaults[name]:
            raise InputError(f"--{name.replace('_', '-')}: is of --kind {kind}, not of {args.kind}")
    check_seconds(args)
    if not 1 <= args.slowdown <= MAX_SLOWDOWN:
        raise InputError(f"--slowdown {args.slowdown:g}: must be 1 to {MAX_SLOWDOWN:g}")
    KINDS[args.kind][0].run(args)
    return 0
