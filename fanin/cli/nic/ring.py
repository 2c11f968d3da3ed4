"""``fanin nic run --kind ring``: one node of a ring at a Linux interface, for one all-reduce."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fanin.base.errors import CheckFailed, InputError
from fanin.base.scratch import output_file
from fanin.cli.nic.rtl import ratio, serve_rtl
from fanin.cli.nic.waiting import add_wait, check_wait
from fanin.cli.ring.run import ring_config
from fanin.ring.facts import MAX_NODES, MIN_NODES, PRESETS, RingConfig
from fanin.runs.output import check_writable, print_json, table
from fanin.wire.fields import field_bits
from fanin.wire.ring import RING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from fanin.sim.nic.ring import Reduced

MAX_JOB = (1 << field_bits(RING, "job")) - 1
WAIT_SECONDS = 300.0
FRAME_BYTES = 1024  # default size of a frame's values: they fit an MTU of 1500
OPTIONS = (
    *("port", "rank", "ranks", "gradient", "output", "job", "wait", "frame_words", "preset"),
    *("codec", "bound", "mode", "group", "block", "mantissa", "exponent", "offset"),
)


def add_options(group: argparse._ArgumentGroup) -> None:
    """Declare the options that only this kind has."""
    group.add_argument("--rank", type=int, metavar="R", help="the node's place in the ring, from 0 on")
    group.add_argument("--ranks", type=int, metavar="N", help="nodes of the ring")
    group.add_argument("--gradient", type=Path, metavar="FILE", help="the node's vector (.npy, or raw float32)")
    group.add_argument("-o", dest="output", type=Path, metavar="SUM.npy", help="file of the sum, float32")
    group.add_argument("--job", type=int, default=1, metavar="J", help="number of the ring, equal at all nodes")
    add_wait(group, WAIT_SECONDS, "seconds without progress until the node gives up")
    frame_help = f"words of a frame, equal at all nodes (default: {FRAME_BYTES} bytes)"
    group.add_argument("--frame-words", type=int, metavar="N", help=frame_help)


def run(args: argparse.Namespace) -> None:
    """Run the all-reduce. Raises InputError for bad options, files or interfaces, CheckFailed without a sum."""
    import numpy as np

    if args.model:
        raise InputError("--model: a ring's node has none; fanin ring run --on model adds files up")
    for name in ("port", "rank", "ranks", "gradient"):
        if getattr(args, name) is None:
            raise InputError(f"--{name}: --kind ring needs it")
    config = _config(args)
    _check(args)
    vector = _vector(args.gradient)
    if args.output:
        check_writable(args.output)
    _check_interface(args, config)
    reduced = _reduce(args, config, vector)
    if reduced.sum is None:
        raise CheckFailed(_cause(args, reduced))
    if args.output:
        with output_file(args.output) as file:
            np.save(file, reduced.sum)
    facts = {
        "values": int(vector.size),
        "sha256": hashlib.sha256(reduced.sum.tobytes()).hexdigest(),
        "counters": reduced.counters,
        "lost": reduced.lost,
        "seconds": reduced.seconds,
        "simulated_seconds": reduced.simulated_seconds,
    }
    if args.json:
        print_json(facts)
    else:
        print(_summary(facts, args))


def _config(args: argparse.Namespace) -> RingConfig:
    if args.preset not in PRESETS:
        raise InputError(f"--preset {args.preset}: of a ring's node must be one of {', '.join(PRESETS)}")
    config = ring_config(args)
    words = args.frame_words
    if words is None:
        words = min(config.frame_words, FRAME_BYTES * 8 // config.width)
    try:
        return replace(config, frame_words=words)
    except ValueError as error:
        raise InputError(f"--frame-words {words}: {error}") from error


def _check(args: argparse.Namespace) -> None:
    if not MIN_NODES <= args.ranks <= MAX_NODES:
        raise InputError(f"--ranks {args.ranks}: a ring has {MIN_NODES} to {MAX_NODES} nodes")
    if not 0 <= args.rank < args.ranks:
        raise InputError(f"--rank {args.rank}: must be 0 to {args.ranks - 1}")
    if not 0 <= args.job <= MAX_JOB:
        raise InputError(f"--job {args.job}: must be 0 to {MAX_JOB}")
    check_wait(args)


def _vector(path: Path) -> npt.NDArray[np.float32]:
    import numpy as np

    from fanin.codec.run.values import open_values

    with open_values(path) as (parts, _):
        return np.concatenate(list(parts))


def _check_interface(args: argparse.Namespace, config: RingConfig) -> None:
    from fanin.host.ethernet import mtu_of
    from fanin.sim.nic.outside import check_interfaces
    from fanin.sim.nic.ring import min_mtu

    check_interfaces([args.port])
    mtu, required = mtu_of(args.port), min_mtu(config)
    if mtu < required:
        raise InputError(
            f"--port {args.port}: its MTU is {mtu}, and frames of {config.frame_words} words take {required}: "
            f"ip link set {args.port} mtu {required}, or fewer --frame-words at all nodes"
        )


def _reduce(args: argparse.Namespace, config: RingConfig, vector: npt.NDArray[np.float32]) -> Reduced:
    from fanin.job import worker_endpoint
    from fanin.ring.driver import RingMember
    from fanin.ring.golden.random_bits import RandomBits
    from fanin.sim.nic.ring import RETRIES, TIMEOUT, RingNodeCosim

    member = RingMember(
        id=args.job,
        macs=[worker_endpoint(rank).mac for rank in range(args.ranks)],
        rank=args.rank,
        timeout=TIMEOUT,
        retries=RETRIES,
        bits=RandomBits(1 + args.job),
    )
    node = RingNodeCosim(config)

    def serve(stop: Any, progress: Any) -> Reduced:
        return node.reduce(
            member, vector, port=args.port, slowdown=args.slowdown, wait=args.wait, stop=stop, progress=progress
        )

    start_message = f"ring node {args.rank} of {args.ranks} in RTL at {args.port}: {vector.size:,} values"
    return serve_rtl(args, [args.port], start_message, serve)


def _cause(args: argparse.Namespace, reduced: Reduced) -> str:
    """Return the cause of a missing sum, in words."""
    from fanin.hdl.ring.registers import Failure
    from fanin.host.causes import explain

    previous_rank, next_rank = (args.rank - 1) % args.ranks, (args.rank + 1) % args.ranks
    cause = reduced.status.cause if reduced.status else Failure.NONE
    problem = reduced.findings.problem if reduced.findings else None
    if reduced.stuck or cause is Failure.TIMEOUT:
        neighbours = " and ".join(f"rank {rank}" for rank in dict.fromkeys((previous_rank, next_rank)))
        note = f"; {problem}" if problem else ""
        return f"no progress for {args.wait:g} s: nothing comes from {neighbours}, or not all{note}"
    if cause is Failure.MISMATCH:
        return f"rank {args.rank} and rank {previous_rank} do not agree: {problem or cause.name}"
    if cause is not Failure.NONE:
        return f"the node ended with {explain(cause)}"
    return f"{args.port}: ended before the sum was there"


def _summary(facts: dict[str, Any], args: argparse.Namespace) -> str:
    counters = facts["counters"]
    rows = [
        ["values", f"{facts['values']:,}, of {args.ranks} nodes"],
        [
            "frames",
            f"{counters['sent']:,} sent, {counters['retransmitted']:,} again; {counters['received']:,} taken",
        ],
        ["SHA-256", f"{facts['sha256']}: of the sum's values without the file's header, alike at all nodes"],
    ]
    if facts["lost"]:
        rows.append(["lost at the interface", f"{facts['lost']:,}"])
    if args.output:
        rows.append(["sum", str(args.output)])
    return table(rows) + ratio(facts["seconds"], facts["simulated_seconds"])
