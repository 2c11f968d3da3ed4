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

MAX_RANKS = 1024
_REPORTED = (0, 1, 2, 130, 143)  # exit statuses for which the command itself has printed the reason


def add_ranks(parser: argparse.ArgumentParser) -> None:
    """Declare the options for :func:`run_on_ranks`.

    The parsed arguments have ``spreads``: another command's option ``--ranks`` spreads no simulation.
    """
    parser.set_defaults(spreads=True)
    group = parser.add_argument_group("processes").add_mutually_exclusive_group()
    group.add_argument(
        "--ranks", type=int, metavar="N", help="spread the nodes over N processes of this machine"
    )
    group.add_argument(
        "--mpi", action="store_true", help="spread the nodes over the processes that mpirun or srun started"
    )


def run_on_ranks(args: argparse.Namespace) -> int:
    """Run a parsed command on the ranks that it requests; return its exit status.

    For several ranks of this machine, the command starts itself once per rank. In these processes
    ``_is_started`` is true: they meet, rank 0 runs the command, and the others simulate their nodes for it.
    """
    spreads = getattr(args, "spreads", False)
    ranks = args.ranks if spreads and args.ranks is not None else 1
    if not 1 <= ranks <= MAX_RANKS:
        raise InputError(f"--ranks must be in 1…{MAX_RANKS}, not {ranks}")
    is_spread = ranks > 1
    started = is_spread and _is_started()
    with fresh_cache(getattr(args, "no_cache", False) and not started):
        if is_spread and not started:
            return _start(args.argv, ranks)
        if is_spread or (spreads and args.mpi):
            with _join_ranks() as first:
                return args.run(args) if first else 0
        return args.run(args)


def _is_started() -> bool:
    """Whether this process is a rank that ``_start`` has started."""
    from fanin.sim.cosim.spawn import is_started

    return is_started()


def refuse_ranks(args: argparse.Namespace | Call, option: str) -> None:
    """Raise InputError if several ranks are requested together with ``option``, which excludes them."""
    if args.mpi or (args.ranks or 1) > 1:
        raise InputError(f"--{'mpi' if args.mpi else 'ranks'}: does not go with {option}")


def check_nodes(args: argparse.Namespace | Call, nodes: int) -> None:
    """Raise InputError if there are more ranks than nodes; for a check before the run."""
    if args.mpi or (args.ranks or 1) > 1:
        from fanin.sim.cosim.ranks import joined, spread

        group = joined()
        spread([1] * nodes, group.size if group else 1)


class MeetingTimes:
    """Number and duration of the meetings of ranks, summed over runs.

    They depend on the machine, so they are printed, but not written to a file.
    """

    def __init__(self) -> None:
        self.count, self._seconds = 0, 0.0
        self._wait_seconds: list[float] = []  # seconds of waiting, by rank

    def add(self, raw: RunResult) -> None:
        """Add the meetings of a run."""
        self.count += raw.meetings
        self._seconds += raw.seconds
        waits = self._wait_seconds or [0.0] * len(raw.meeting_seconds)
        self._wait_seconds = [sum(pair) for pair in zip(waits, raw.meeting_seconds, strict=True)]

    def facts(self) -> list[list[str]]:
        """Return the rows of a summary; empty for runs in one process."""
        if not self.count:
            return []
        shares = [100 * seconds / self._seconds for seconds in self._wait_seconds]
        text = f"waited {min(shares):.0f} to {max(shares):.0f} % of {self._seconds:.1f} s"
        return [["ranks", f"{len(shares)} met {self.count:,} times, and {text}"]]


@contextlib.contextmanager
def _join_ranks() -> Iterator[bool]:
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
        if status not in _REPORTED:
            raise
    finally:
        processes.end()
    if status in _REPORTED:
        return status
    raise ToolFailed(f"rank 0 ended with status {status}, and so all have ended")
