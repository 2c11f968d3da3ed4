"""Options ``--ranks`` and ``--mpi`` of commands whose simulation can be spread over processes."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fanin.base.cache import fresh_cache
from fanin.base.errors import InputError, ToolFailed
from fanin.base.tools import python_module
from fanin.runs.call import Call

if TYPE_CHECKING:  # NumPy takes a while to load
    from fanin.sim.cosim.run import RunResult

MOST = 1024
_OWN = (0, 1, 2, 130, 143)  # exit statuses after which the command itself has printed the reason


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """Declare the options for :func:`carry_out`."""
    group = parser.add_argument_group("processes").add_mutually_exclusive_group()
    group.add_argument(
        "--ranks", type=int, metavar="N", help="spread the nodes over N processes of this machine"
    )
    group.add_argument(
        "--mpi", action="store_true", help="spread the nodes over the processes that mpirun or srun started"
    )


def carry_out(args: argparse.Namespace) -> int:
    """Run a parsed command on the ranks that it requests; return its exit status."""
    ranks = (
        args.ranks if hasattr(args, "mpi") else None
    )  # only those of add_ranks: nic run's --ranks is a number of nodes
    ranks = 1 if ranks is None else ranks
    if not 1 <= ranks <= MOST:
        raise InputError(f"--ranks must be in 1…{MOST}, not {ranks}")
    several = ranks > 1
    started = several and _is_started()
    with fresh_cache(getattr(args, "no_cache", False) and not started):
        if several and not started:
            return _start(args.argv, ranks)
        if several or getattr(args, "mpi", False):
            with _joined() as first:
                return args.run(args) if first else 0
        return args.run(args)


def _is_started() -> bool:
    from fanin.sim.cosim.spawn import is_started

    return is_started()


def refuse_ranks(args: argparse.Namespace | Call, what: str) -> None:
    """Raise InputError if several ranks are requested together with ``what``, which excludes them."""
    if args.mpi or (args.ranks or 1) > 1:
        raise InputError(f"--{'mpi' if args.mpi else 'ranks'}: does not go with {what}")


def check_nodes(args: argparse.Namespace | Call, nodes: int) -> None:
    """Raise InputError if there are more ranks than nodes; for a check before the run."""
    if args.mpi or (args.ranks or 1) > 1:
        from fanin.sim.cosim.ranks import joined, spread

        found = joined()
        spread([1] * nodes, found.size if found else 1)


class Meetings:
    """Counts and times of ranks' meetings in some runs. They depend on the machine, so no file has them."""

    def __init__(self) -> None:
        self.count, self._seconds = 0, 0.0
        self._waits: list[float] = []  # s, by rank

    def add(self, raw: RunResult) -> None:
        """Add the meetings of a run."""
        self.count += raw.meetings
        self._seconds += raw.seconds
        before = self._waits or [0.0] * len(raw.meeting_seconds)
        self._waits = [sum(both) for both in zip(before, raw.meeting_seconds, strict=True)]

    def facts(self) -> list[list[str]]:
        """Return the rows of a summary; empty for runs in one process."""
        if not self.count:
            return []
        waits = [100 * seconds / self._seconds for seconds in self._waits]
        waited = f"waited {min(waits):.0f} to {max(waits):.0f} % of {self._seconds:.1f} s"
        return [["ranks", f"{len(waits)} met {self.count:,} times, and {waited}"]]


@contextlib.contextmanager
def _joined() -> Iterator[bool]:
    """Join the other ranks. Yield True at rank 0; False at other ranks, after they have served rank 0."""
    from fanin.sim.cosim import ranks

    first = ranks.join()
    try:
        yield first
    finally:
        if all_ranks := ranks.joined():
            all_ranks.close()


def _start(argv: list[str], ranks: int) -> int:
    """Run the command on ranks of this machine; return its status. Raises ToolFailed if a rank has died."""
    from fanin.sim.cosim.spawn import GRACE_SECONDS, Processes

    processes = Processes(python_module("fanin", *argv), ranks)
    try:
        status = processes.wait()
    except KeyboardInterrupt:  # rank 0 reports the unfinished run
        processes.interrupt()
        status = processes.wait(GRACE_SECONDS)
        if status not in _OWN:
            raise
    finally:
        processes.end()
    if status in _OWN:
        return status
    raise ToolFailed(f"rank 0 ended with status {status}, and so all have ended")
