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
from fanin.sim.cosim.meeting import PATIENCE, STOPPED
from fanin.sim.cosim.process import SimulationFailed, execute
from fanin.sim.cosim.rendezvous import Listener, NotMet, Place, connect
from fanin.sim.cosim.run import Bytes, Progress, RunRequest, RunResult, in_order, write_memory
from fanin.sim.cosim.spawn import Communicator, started

_SLEEP, _LONGEST_SLEEP = 20e-6, 1e-2  # seconds between two probes for a message

_joined: Ranks | None = None


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
class _Outcome:
    """Answer to either order: the result and the memories that nodes may have changed, or an error."""

    error: str = ""
    result: RunResult | None = None
    contents: dict[Path, Bytes] | None = None


class Ranks:
    """All ranks, as seen by rank 0."""

    def __init__(self, comm: Communicator, hosts: Sequence[str]):
        self.size: int = comm.size
        self._comm, self._hosts = comm, hosts
        self._others = range(1, comm.size)
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
        for rank in self._others:
            self._comm.send(_Build(self._builds, tops[rank], models), rank)
        self._builds += 1
        outcomes: dict[int, _Outcome] = {
            rank: _receive(self._comm, rank, patience=None) for rank in self._others
        }
        for rank, outcome in outcomes.items():
            if outcome.error:
                raise ToolFailed(f"{self.name(rank)}: {outcome.error}")
        return self._builds - 1

    def run(
        self, build: int, directory: Path, request: RunRequest, progress: Callable[[Progress], None] | None
    ) -> RunResult:
        """Run a build, each rank with its share of nodes; memory files change as in a run of one process.

        Raises SimulationFailed if a rank's simulator died, and InputError for hosts that need all nodes in one
        process.
        """
        _check(request)
        listener = Listener([self.name(rank) for rank in range(self.size)], self._hosts)
        for rank in self._others:
            share = request.share_of(rank)
            contents = {path: np.fromfile(path, np.uint8) for paths in share.memories for path in paths}
            self._comm.send(_Run(build, share, contents, listener.place), rank)
        try:
            own = _carried_out(lambda: _executed(directory, request.share_of(0), listener, progress))
            if own.result and own.result.silent is not None:
                _abort(self._comm, f"{self.name(own.result.silent)} has not answered for {PATIENCE:g} s")
        finally:  # the other ranks end with rank 0's simulator
            others = [_receive(self._comm, rank, name=self.name(rank)) for rank in self._others]
        return self._merged(request, [own, *others])

    def name(self, rank: int) -> str:
        """Return the name of a rank for messages."""
        return f"rank {rank} on {self._hosts[rank]}"

    def close(self) -> None:
        """End the other ranks; called at the latest when the program exits."""
        if self._closed:
            return
        self._closed = True
        for rank in self._others:
            self._comm.send(None, rank)

    def _merged(self, request: RunRequest, outcomes: Sequence[_Outcome]) -> RunResult:
        died = [rank for rank, outcome in enumerate(outcomes) if outcome.result is None]
        results = [outcome.result for outcome in outcomes if outcome.result]
        causes = [result.error for result in results if result.error != STOPPED]
        if died:
            nodes = request.shares[died[0]]
            where = f"{self.name(died[0])}, nodes {nodes[0]} to {nodes[-1]}"
            raise SimulationFailed(f"{where}: {outcomes[died[0]].error}")
        whole = results[0]
        for other in results[1:]:
            whole.add(other)
        whole.events = in_order(whole.events, request.event_limit)
        whole.error = next(filter(None, causes), "")
        for outcome in outcomes[1:]:
            for path, content in (outcome.contents or {}).items():
                write_memory(path, content)
        return whole


def joined() -> Ranks | None:
    """Return the ranks that this program may use; None in a program of one process."""
    return _joined


def spread(weights: Sequence[int], size: int, together: int = 1) -> tuple[range, ...]:
    """Return the nodes of each of ``size`` ranks: consecutive nodes, with weights as even as possible.

    - ``weights``: simulation cost of each node.
    - ``together``: number of consecutive nodes that stay in one rank.

    Raises InputError if there are more ranks than such groups.
    """
    nodes = len(weights)
    units = [sum(weights[first : first + together]) for first in range(0, nodes, together)]
    if size > len(units):
        what = f"{nodes} nodes" if together == 1 else f"{len(units)} hosts of {together} nodes"
        raise InputError(f"ranks must be at most {len(units)} for {what}, not {size}")
    sums = [0, *accumulate(units)]
    bounds = [0]
    for rank in range(1, size):  # cut nearest to the rank's share, and leave a unit for each later rank
        cuts = range(bounds[-1] + 1, len(units) - size + rank + 1)
        bounds.append(min(cuts, key=lambda cut: abs(sums[cut] * size - sums[-1] * rank)))
    return tuple(range(begin * together, end * together) for begin, end in pairwise([*bounds, len(units)]))


def _check(request: RunRequest) -> None:
    if request.hosts and not request.hosts_apart:
        raise InputError("several ranks: these live hosts need all nodes in one process")


def _executed(
    directory: Path, request: RunRequest, listener: Listener, progress: Callable[[Progress], None] | None
) -> RunResult:
    """Run rank 0's part. Its sockets are closed in any case, so that no other rank waits for them."""
    with contextlib.ExitStack() as opened:
        channels = [opened.enter_context(channel) for channel in listener.accept()]
        return execute(directory, request, progress=progress, channels=channels)


def _carried_out(run: Callable[[], RunResult]) -> _Outcome:
    try:
        return _Outcome(result=run())
    except (SimulationFailed, NotMet) as failure:
        return _Outcome(error=str(failure))


# ---- all ranks but the first ----


def serve(comm: Communicator) -> None:
    """Carry out rank 0's orders until it ends. Signals are ignored: rank 0 handles them and ends this rank."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # a handler, unlike SIG_IGN, is not inherited by simulators
    directories: dict[int, Path] = {}
    while (task := _receive(comm, 0, patience=None)) is not None:
        try:
            if isinstance(task, _Build):
                directories[task.number] = build(task.top, models=task.models, quiet=True)
                outcome = _Outcome()
            else:
                outcome = _run_share(directories[task.build], task, comm.rank)
        except Exception as error:  # for instance a full disk: rank 0 reports it
            outcome = _Outcome(error=f"{type(error).__name__}: {error}")
        comm.send(outcome, 0)


def _run_share(directory: Path, task: _Run, rank: int) -> _Outcome:
    # Rank 0 waits for the socket, and notices its end if anything fails here.
    with connect(task.place, rank) as channel, tempfile.TemporaryDirectory(prefix="fanin-") as temporary:
        folder, request = Path(temporary), task.request
        places = {path: folder / f"memory{number}" for number, path in enumerate(task.contents)}
        for path, place in places.items():
            write_memory(place, task.contents[path])
        request = replace(
            request,
            memories=[[places[path] for path in paths] for paths in request.memories],
            trace=folder / "events" if request.trace else None,
        )
        outcome = _carried_out(lambda: execute(directory, request, channels=[channel]))
        written = {
            path
            for paths, writable in zip(task.request.memories, request.writable, strict=True)
            for path, writes in zip(paths, writable, strict=True)
            if writes
        }
        return replace(outcome, contents={path: np.fromfile(places[path], np.uint8) for path in written})


def _receive(comm: Communicator, source: int, *, name: str = "", patience: float | None = PATIENCE) -> Any:
    """Return the next message of a rank. If it does not arrive within ``patience`` seconds, end all ranks.

    Raises ToolFailed if a rank of ``--ranks`` has died. MPI's own receive would spin and take processor time
    from the simulators.
    """
    begun, sleep = time.monotonic(), _SLEEP
    while (message := comm.improbe(source)) is None:
        time.sleep(sleep)
        sleep = min(1.2 * sleep, _LONGEST_SLEEP)
        if patience is not None and time.monotonic() > begun + patience:
            _abort(comm, f"{name} has not answered for {patience:g} s")
    return message.recv()


def _abort(comm: Communicator, why: str) -> NoReturn:
    """End all ranks, because one of them hangs."""
    print_note(f"fanin: error: {why}")
    comm.Abort(1)
    raise SystemExit(1)


def _communicator() -> tuple[Communicator, str]:
    """Return the communicator of all ranks, and the name of this machine."""
    if pipes := started():
        return pipes, socket.gethostname()
    try:
        from mpi4py import MPI
    except RuntimeError as error:  # mpi4py is installed and finds no MPI library
        reason = str(error).splitlines()[0]
        raise InputError(f"mpi4py finds no MPI ({reason}): pip install mpich, or load the cluster's") from None
    return MPI.COMM_WORLD, MPI.Get_processor_name()


def join() -> bool:
    """Meet the other processes that ``--ranks`` or MPI has started.

    False at all except the first, which have served by then. Raises ModuleNotFoundError without mpi4py, and
    InputError without an MPI. At rank 0 it also raises InputError if ranks have different versions or options.
    """
    global _joined
    comm, host = _communicator()
    own = (__version__, platform.python_version(), sys.argv[1:])
    found = comm.allgather((own, host))
    hosts = [host for _, host in found]
    for rank, (other, host) in enumerate(found):
        for what, a, b in zip(("fanin", "Python", "options"), found[0][0], other, strict=True):
            if a != b:
                if comm.rank:
                    return False
                raise InputError(f"rank {rank} on {host}: {what} must be those of rank 0, {a}, not {b}")
    if comm.rank:
        serve(comm)
        return False
    if comm.size > 1:
        _joined = Ranks(comm, hosts)
        atexit.register(_joined.close)  # before MPI's finalisation, which waits for the other ranks
    return True
