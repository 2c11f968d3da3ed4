"""``fanin p4 job``: jobs of a running switch, added, removed, reset and counted."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import InputError, ToolFailed
from fanin.runs.output import add_json, print_json, table

if TYPE_CHECKING:
    from fanin.sim.switch.bmv2.running import RunningSwitch

DEFAULT_SWITCH, DEFAULT_THRIFT = "127.0.0.1:9559", "127.0.0.1:9090"  # BMv2's own


def add_parser(parts: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the part and its options."""
    parser = parts.add_parser(
        "job",
        help="jobs of a running switch: add, remove, reset, stats",
        description="Manage the jobs of a running switch (simple_switch_grpc, fanin p4 serve) through "
        "P4Runtime. Only add needs files, the folder of fanin p4 emit; the rest is read from the switch. "
        "BMv2's registers are reset through Thrift, since its P4Runtime cannot.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    add = _action(
        actions, "add", _add, "install the jobs of DIR/job.json, and the program if the switch has none"
    )
    add.add_argument("directory", type=Path, metavar="DIR", help="folder of fanin p4 emit")
    add.add_argument("job", type=int, nargs="?", metavar="ID", help="number of a job; all by default")
    remove = _action(actions, "remove", _remove, "remove a job: its packets are foreign from now on")
    reset = _action(actions, "reset", _reset, "remove a job, clear its slots, add it again")
    stats = _action(actions, "stats", _stats, "counters of the jobs and of the switch")
    for action, nargs in ((remove, None), (reset, None), (stats, "?")):
        action.add_argument("job", type=int, nargs=nargs, metavar="ID", help="a job's number")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    act: Callable[[argparse.Namespace], None],
    meaning: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=meaning, description=f"{meaning[0].upper()}{meaning[1:]}.")
    parser.add_argument(
        "--switch", default=DEFAULT_SWITCH, metavar="HOST:PORT", help="the switch's P4Runtime server"
    )
    parser.add_argument(
        "--thrift", default=DEFAULT_THRIFT, metavar="HOST:PORT", help="the switch's Thrift server"
    )
    parser.add_argument("--device", type=int, default=0, metavar="N", help="the switch's --device-id")
    add_json(parser)
    parser.set_defaults(run=run, act=act)
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the selected action. Raises InputError if the switch does not answer, or rejects the action."""
    host, _, port = args.thrift.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"--thrift must be HOST:PORT, not {args.thrift}")
    try:
        args.act(args)
    except (ToolFailed, ValueError) as error:
        raise InputError(str(error)) from error
    return 0


@contextlib.contextmanager
def _connect(args: argparse.Namespace) -> Iterator[RunningSwitch]:
    from fanin.sim.switch.bmv2.running import RunningSwitch  # gRPC loads slowly

    host, _, port = args.thrift.rpartition(":")
    switch = RunningSwitch(args.switch, thrift=(host, int(port)), device=args.device)
    try:
        yield switch
    finally:
        switch.close()


def _add(args: argparse.Namespace) -> None:
    from fanin.p4.deployment import load_deployment

    deployment = load_deployment(args.directory / "job.json")
    jobs = [job for job in deployment.jobs if args.job in (None, job.id)]
    if not jobs:
        job_numbers = ", ".join(str(job.id) for job in deployment.jobs) or "none"
        raise InputError(f"{args.directory / 'job.json'}: has no job {args.job}; it has {job_numbers}")
    with _connect(args) as switch:
        switch.prepare(args.directory, deployment)
        for job in jobs:
            switch.add(job)
    if args.json:
        print_json({"action": "add", "jobs": [job.id for job in jobs]})
        return
    for job in jobs:
        slots = f"slots {job.base}…{job.base + job.slots - 1}"
        print(f"job {job.id} added: {slots}, {len(job.members)} members")


def _remove(args: argparse.Namespace) -> None:
    with _connect(args) as switch:
        switch.remove(args.job)
    if args.json:
        print_json({"action": "remove", "jobs": [args.job]})
    else:
        print(f"job {args.job} removed")


def _reset(args: argparse.Namespace) -> None:
    with _connect(args) as switch:
        switch.reset(args.job)
    if args.json:
        print_json({"action": "reset", "jobs": [args.job]})
    else:
        print(f"job {args.job} reset: let its workers begin at round 1, once its old packets are gone")


def _stats(args: argparse.Namespace) -> None:
    with _connect(args) as switch:
        jobs = {number: switch.job_counters(number).as_dict() for number in switch.numbers(args.job)}
        counters = switch.counters().as_dict()
    if args.json:
        print_json({"switch": counters, "jobs": jobs})
        return
    for title, counts in {"switch": counters, **{f"job {n}": counts for n, counts in jobs.items()}}.items():
        print(f"{title}\n{table([[name, f'{value:,}'] for name, value in counts.items()], right=[1])}")
