"""``fanin p4 job``: jobs of a running switch, added, removed, reset and counted."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fanin.base.errors import InputError, ToolFailed
from fanin.runs.output import add_json, print_json, table

if TYPE_CHECKING:
    from fanin.sim.switch.bmv2.running import RunningSwitch

DEFAULT_SWITCH, DEFAULT_THRIFT = "127.0.0.1:9559", "127.0.0.1:9090"  # defaults of BMv2
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([\w.-]+)):(\d{1,5})", re.ASCII)
_MAX_PORT = 65_535


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
    for action in remove, reset:
        action.add_argument("job", type=int, metavar="ID", help="number of a job")
    stats.add_argument("job", type=int, nargs="?", metavar="ID", help="number of a job; all by default")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    act: Callable[[argparse.Namespace], None],
    meaning: str,
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=meaning, description=f"{meaning[0].upper()}{meaning[1:]}.")
    parser.add_argument(
        "--switch",
        default=DEFAULT_SWITCH,
        metavar="HOST:PORT",
        help="the switch's P4Runtime server; or unix:/PATH",
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
    if not _is_socket(args.switch):
        _address(args, "switch")
    _address(args, "thrift")  # both before the action begins
    try:
        args.act(args)
    except (ToolFailed, ValueError) as error:
        raise InputError(str(error)) from error
    return 0


def _is_socket(address: str) -> bool:
    """Return whether an address of ``--switch`` names an existing Unix socket, as gRPC writes it."""
    return address.startswith("unix:/") and Path(address.removeprefix("unix:")).is_socket()


def _address(args: argparse.Namespace, option: str) -> tuple[str, int]:
    """Return host and port of ``--switch`` or ``--thrift``. Raises InputError.

    gRPC would take other texts, too, as addresses of other kinds.
    """
    text = getattr(args, option)
    parts = _ADDRESS.fullmatch(text)
    if parts is None or not 1 <= int(parts[3]) <= _MAX_PORT:
        socket = ", or unix:/PATH of a socket" if option == "switch" else ""
        raise InputError(f"--{option} must be HOST:PORT{socket}, not {text!r}")
    return parts[1] or parts[2], int(parts[3])


@contextlib.contextmanager
def _connect(args: argparse.Namespace) -> Iterator[RunningSwitch]:
    from fanin.sim.switch.bmv2.running import RunningSwitch  # gRPC loads slowly

    switch = RunningSwitch(args.switch, thrift=_address(args, "thrift"), device=args.device)
    try:
        yield switch
    finally:
        switch.close()


def _add(args: argparse.Namespace) -> None:
    from fanin.p4.deployment import load_deployment

    path = args.directory / "job.json"
    deployment = load_deployment(path)
    if not deployment.jobs:
        raise InputError(f"{path}: has no jobs")
    jobs = [job for job in deployment.jobs if args.job in (None, job.id)]
    if not jobs:
        job_numbers = ", ".join(str(job.id) for job in deployment.jobs)
        raise InputError(f"{path}: has no job {args.job}; it has {job_numbers}")
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
    counts_by_title = {"switch": counters} | {f"job {number}": counts for number, counts in jobs.items()}
    for title, counts in counts_by_title.items():
        rows = [[name, f"{value:,}"] for name, value in counts.items()]
        print(title, table(rows, right=[1]), sep="\n")
