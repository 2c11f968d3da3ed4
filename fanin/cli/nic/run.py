"""``fanin nic run``: a node of one kind at Linux interfaces."""

from __future__ import annotations

import argparse

from fanin.base.errors import InputError
from fanin.cli.codec.options import add_codec
from fanin.cli.nic import inceptionn, rdma, ring
from fanin.cli.serving import add_seconds, check_seconds
from fanin.rdma.facts import PRESETS as RDMA_PRESETS
from fanin.ring.facts import PRESETS as RING_PRESETS
from fanin.runs.output import add_json
from fanin.sim.network import SLOWDOWN
from fanin.sim.nic.pace import MAX_SLOWDOWN

#: Kinds of nodes. ``OPTIONS`` of a kind's module names its options besides the common ones.
KINDS = {
    "inceptionn": (inceptionn, "an INCEPTIONN NIC between a host and a wire"),
    "rdma": (rdma, "a node of one-sided writes, whose memory is a file"),
    "ring": (ring, "a node of a ring, for one all-reduce"),
}
#: Kinds that other commands run: text that names the command.
KINDS_OF_OTHER_COMMANDS = {
    "glm": "fanin train DATA --ports IF,IF,… runs GLM nodes at interfaces, with --worker R a part of them"
}


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part, and each kind's options in a group of their own."""
    part = parts.add_parser(
        "run",
        help="run a node at Linux interfaces",
        description="Run a node at Linux interfaces until it is interrupted. "
        + ". ".join(f"Kind {name}: {purpose}" for name, (_, purpose) in KINDS.items())
        + ". Opening interfaces needs CAP_NET_RAW; their settings do not change.",
    )
    part.add_argument(
        "--kind",
        choices=(*KINDS, *KINDS_OF_OTHER_COMMANDS),
        metavar="KIND",
        default="inceptionn",
        help=f"kind of node: {', '.join(KINDS)}",
    )
    part.add_argument("--model", action="store_true", help="the golden model in place of the RTL; not of ring")
    part.add_argument(
        "--slowdown",
        type=float,
        default=SLOWDOWN,
        metavar="N",
        help="least real time of a second of the RTL's time, in seconds",
    )
    add_seconds(part)
    add_json(part)
    for name, (kind, purpose) in KINDS.items():
        kind.add_options(part.add_argument_group(f"--kind {name}", purpose))
    nodes = part.add_argument_group("--kind rdma and ring")
    nodes.add_argument("--port", metavar="INTERFACE", help="interface of the node")
    presets = tuple(dict.fromkeys((*RDMA_PRESETS, *RING_PRESETS)))
    nodes.add_argument("--preset", choices=presets, default="u280", help="sizes of the node")
    add_codec(part.add_argument_group("codec, of --kind ring; bound and mode, of inceptionn"), allow_none=True)
    options = {name for kind, _ in KINDS.values() for name in kind.OPTIONS}
    part.set_defaults(run=run, defaults={name: part.get_default(name) for name in options})


def run(args: argparse.Namespace) -> int:
    """Run the node. Raises InputError for a wrong option or interface, before any frame is taken."""
    if args.kind in KINDS_OF_OTHER_COMMANDS:
        raise InputError(f"--kind {args.kind}: {KINDS_OF_OTHER_COMMANDS[args.kind]}")
    node, _ = KINDS[args.kind]
    for name, default in sorted(args.defaults.items()):
        if name not in node.OPTIONS and getattr(args, name) != default:
            owners = " or ".join(
                kind for kind, (kind_module, _) in KINDS.items() if name in kind_module.OPTIONS
            )
            option = "-o" if name == "output" else f"--{name.replace('_', '-')}"
            raise InputError(f"{option}: applies to --kind {owners}, not to {args.kind}")
    check_seconds(args)
    if not 1 <= args.slowdown <= MAX_SLOWDOWN:
        raise InputError(f"--slowdown {args.slowdown:g}: must be 1 to {MAX_SLOWDOWN:g}")
    node.run(args)
    return 0
