"""Ranks: processes of ``--ranks`` or MPI, each of which simulates some of a run's nodes (docs/scale.md).

Rank 0 is the program. The other ranks serve it: they build the sources that it sends, simulate their nodes when
it starts a run, and end with it. The simulator of rank 0 has one TCP connection to each other rank's simulator.
"""

from __future__ import annotations

import atexit
import contextlib
import platform
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from fanin import __version__
from fanin.base.errors import InputError, ToolFailed
from fanin.base.printable import print_note
from fanin.sim.cosim.build import build
from fanin.sim.cosim.meeting import STOPPED, TIMEOUT
from fanin.sim.cosim.process import SimulationFailed, execute
from fanin.sim.cosim.rendezvous import Listener, Place, RendezvousFailed, connect
from fanin.sim.cosim.run import Bytes, Progress, RunRequest, RunResult, in_order, write_memory
from fanin.sim.cosim.spawn import Communicator, join_started

_SLEEP, _LONGEST_SLEEP = 20e-6, 1e-2  # seconds between two probes for a message

_program_ranks: Ranks | None = None


@dataclass(frozen=True)
class _Build:
    """Order to a rank: build a top. ``number`` identifies the build in runs."""

    number: int
    top: dict[str, str]
    models: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True)
class _Run:
    """Order to a rank: run its part. ``contents``: memories by rank 0's paths; ``place``: where ranks meet."""

    build: int
    request: RunRequest
    contents: dict[Path, Bytes]
    place: Place


@dataclass(frozen=True)
class _Answer:
    """Answer to either order: the result and the memories that nodes may have changed, or an error."""

    error: str = ""
    result: RunResult | None = None
    contents: dict[Path, Bytes] | None = None


class Ranks:
    """All ranks, as seen by rank 0."""

    def __init__(self, comm: Communicator, hosts: Sequence[str]):
        self.size: int = comm.size
        self._comm, self._hosts = comm, hosts
        self._other_ranks = range(1, comm.size)
        self._builds = 0
        self._closed = False

    def build(
        self, tops: Sequence[dict[str, str]], models: Mapping[str, Mapping[str, str]], *, quiet: bool
    ) -> int:
        """Build each rank's top, first here, so that ranks with the same cache folder find the builds.

        Returns the build's number, for :meth:`run`. Raises ToolFailed or InputError like ``build``, and
        ToolFailed with the rank's name if the build fails at another rank.
        """
        for top in tops[1:]:
            build(top, models=models, quiet=quiet)
        for rank in self._other_ranks:
            self._comm.send(_Build(self._builds, tops[rank], models), rank)
        self._builds += 1
        answers: dict[int, _Answer] = {
            rank: _receive(self._comm, rank, timeout=None) for rank in self._other_ranks
        }
        for rank, answer in answers.items():
            if answer.error:
                raise ToolFailed(f"{self.name(rank)}: {answer.error}")
        return self._builds - 1

    def run(
        self, build: int, directory: Path, request: RunRequest, progress: Callable[[Progress], None] | None
    ) -> RunResult:
        """Run a build, each rank with its share of nodes; memory files change as in a single-process run.

        Raises SimulationFailed if a rank's simulator died, and InputError for hosts that need all nodes in one
        process.
        """
        _check_hosts(request)
        listener = Listener([self.name(rank) for rank in range(self.size)], self._hosts)
        for rank in self._other_ranks:
            share = request.share_of(rank)
            contents = {path: np.fromfile(path, np.uint8) for paths in share.memories for path in paths}
            self._comm.send(_Run(build, share, contents, listener.place), rank)
        try:
            answer = _answer_of(lambda: _execute_first(directory, request.share_of(0), listener, progress))
            if answer.result and answer.result.silent_rank is not None:
                _abort(self._comm, f"{self.name(answer.result.silent_rank)} has not answered for {TIMEOUT:g} s")
        finally:  # the other ranks end with rank 0's simulator
            other_answers = [_receive(self._comm, rank, name=self.name(rank)) for rank in self._other_ranks]
        return self._merge(request, [answer, *other_answers])

    def name(self, rank: int) -> str:
        """Return the name of a rank for messages."""
        return f"rank {rank} on {self._hosts[rank]}"

    def close(self) -> None:
        """End the other ranks; called at the latest when the program exits."""
        if self._closed:
            return
        self._closed = True
        for rank in self._other_ranks:
            self._comm.send(None, rank)

    def _merge(self, request: RunRequest, answers: Sequence[_Answer]) -> RunResult:
        failed_ranks = [rank for rank, answer in enumerate(answers) if answer.result is None]
        results = [answer.result for answer in answers if answer.result]
        errors = [result.error for result in results if result.error != STOPPED]
        if failed_ranks:
            nodes = request.shares[failed_ranks[0]]
            place = f"{self.name(failed_ranks[0])}, nodes {nodes[0]} to {nodes[-1]}"
            raise SimulationFailed(f"{place}: {answers[failed_ranks[0]].error}")
        merged = results[0]
        for other in results[1:]:
            merged.add(other)
        merged.events = in_order(merged.events, request.event_limit)
        merged.error = next(filter(None, errors), "")
        for answer in answers[1:]:
            for path, content in (answer.contents or {}).items():
                write_memory(path, content)
        return merged


def joined() -> Ranks | None:
    """Return the ranks that this program may use; None in a program of one process."""
    return _program_ranks


def spread(weights: Sequence[int], size: int, group_size: int = 1) -> tuple[range, ...]:
    """Return the nodes of each of ``size`` ranks: consecutive nodes, with sums of weights as even as possible.

    - ``weights``: simulation cost of each node.
    - ``group_size``: number of consecutive nodes that stay in one rank.

    Raises InputError if there are more ranks than groups.
    """
    nodes = len(weights)
    groups = [sum(weights[first : first + group_size]) for first in range(0, nodes, group_size)]
    if size > len(groups):
        description = f"{nodes} nodes" if group_size == 1 else f"{len(groups)} hosts of {group_size} nodes"
        raise InputError(f"ranks must be at most {len(groups)} for {description}, not {size}")
    sums = [0, *accumulate(groups)]
    bounds = [0]
    for rank in range(1, size):  # cut nearest to the rank's share, and leave a unit for each later rank
        candidates = range(bounds[-1] + 1, len(groups) - size + rank + 1)
        bounds.append(min(candidates, key=lambda bound: abs(sums[bound] * size - sums[-1] * rank)))
    return tuple(range(begin * group_size, end * group_size) for begin, end in pairwise([*bounds, len(groups)]))


def _check_hosts(request: RunRequest) -> None:
    if request.hosts and not request.independent_hosts:
        raise InputError("several ranks: these live hosts need all nodes in one process")


def _execute_first(
    directory: Path, request: RunRequest, listener: Listener, progress: Callable[[Progress], None] | None
) -> RunResult:
    """Run rank 0's part. Its sockets are closed in any case, so that no other rank waits for them."""
    with contextlib.ExitStack() as stack:
        channels = [stack.enter_context(channel) for channel in listener.accept()]
        return execute(directory, request, progress=progress, channels=channels)


def _answer_of(run: Callable[[], RunResult]) -> _Answer:
    try:
        return _Answer(result=run())
    except (SimulationFailed, RendezvousFailed) as failure:
        return _Answer(error=str(failure))


# ---- all ranks but the first ----


def serve(comm: Communicator) -> None:
    """Carry out rank 0's orders until it ends. Signals are ignored: rank 0 handles them and ends the rank."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # a handler, unlike SIG_IGN, is not inherited by simulators
    directories: dict[int, Path] = {}
    while (order := _receive(comm, 0, timeout=None)) is not None:
        try:
            if isinstance(order, _Build):
                directories[order.number] = build(order.top, models=order.models, quiet=True)
                answer = _Answer()
            else:
                answer = _run_share(directories[order.build], order, comm.rank)
        except Exception as error:  # for instance a full disk: rank 0 reports it
            answer = _Answer(error=f"{type(error).__name__}: {error}")
        comm.send(answer, 0)


def _run_share(directory: Path, order: _Run, rank: int) -> _Answer:
    # Rank 0 waits for the socket, and notices its end if anything fails here.
    with connect(order.place, rank) as channel, tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
        folder, request = Path(temporary), order.request
        places = {path: folder / f"memory{number}" for number, path in enumerate(order.contents)}
        for path, place in places.items():
            write_memory(place, order.contents[path])
        request = replace(
            request,
            memories=[[places[path] for path in paths] for paths in request.memories],
            trace=folder / "events" if request.trace else None,
        )
        answer = _answer_of(lambda: execute(directory, request, channels=[channel]))
        changed = {
            path
            for paths, writable in zip(order.request.memories, request.writable, strict=True)
            for path, is_writable in zip(paths, writable, strict=True)
            if is_writable
        }
        return replace(answer, contents={path: np.fromfile(places[path], np.uint8) for path in changed})


def _receive(comm: Communicator, source: int, *, name: str = "", timeout: float | None = TIMEOUT) -> Any:
    """Return the next message of a rank. If it does not arrive within ``timeout`` seconds, end all ranks.

    Raises ToolFailed if a rank of ``--ranks`` has died. MPI's own receive would spin and take processor time
    from the simulators.
    """
    start, sleep = time.monotonic(), _SLEEP
    while (message := comm.improbe(source)) is None:
        time.sleep(sleep)
        sleep = min(1.2 * sleep, _LONGEST_SLEEP)
        if timeout is not None and time.monotonic() > start + timeout:
            _abort(comm, f"{name} has not answered for {timeout:g} s")
    return message.recv()


def _abort(comm: Communicator, reason: str) -> NoReturn:
    """End all ranks, because one of them hangs."""
    print_note(f"fanin: error: {reason}")
    comm.Abort(1)
    raise SystemExit(1)


def _communicator() -> tuple[Communicator, str]:
    """Return the communicator of all ranks, and the name of this machine."""
    if pipes := join_started():
        return pipes, socket.gethostname()
    try:
        from mpi4py import MPI
    except RuntimeError as error:  # mpi4py is installed and finds no MPI library
        reason = str(error).splitlines()[0]
        raise InputError(f"mpi4py finds no MPI ({reason}): pip install mpich, or load the cluster's") from None
    return MPI.COMM_WORLD, MPI.Get_processor_name()


def join() -> bool:
    """Join the other processes that ``--ranks`` or MPI has started; return whether this process is rank 0.

    At other ranks the call returns once rank 0 has ended. Raises ModuleNotFoundError without mpi4py, and
    InputError without an MPI. At rank 0 it also raises InputError if ranks have different versions or options.
    """
    global _program_ranks
    comm, host = _communicator()
    identity = (__version__, platform.python_version(), sys.argv[1:])
    identities = comm.allgather((identity, host))
    hosts = [host for _, host in identities]
    for rank, (identity_of_rank, host) in enumerate(identities):
        for name, expected, actual in zip(
            ("fanin", "Python", "options"), identities[0][0], identity_of_rank, strict=True
        ):
            if expected != actual:
                if comm.rank:
                    return False
                raise InputError(
                    f"rank {rank} on {host}: {name} must be those of rank 0, {expected}, not {actual}"
                )
    if comm.rank:
        serve(comm)
        return False
    if comm.size > 1:
        _program_ranks = Ranks(comm, hosts)
        atexit.register(_program_ranks.close)  # before MPI's finalisation, which waits for the other ranks
    return True
