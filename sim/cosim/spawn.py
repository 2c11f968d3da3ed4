"""Ranks of this machine: processes of one command, connected by socket pairs.

Rank 0 has a socket pair with each other rank. The sockets have no address, so no other program can connect.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NoReturn, Protocol

from fanin.base.errors import InputError, ToolFailed
from fanin.base.processes import die_with_parent

GRACE_SECONDS = 20.0  #: time for the remaining ranks to end, after rank 0 has ended or a rank has died
_VARIABLE = "FANIN_RANKS"  # of a started process: rank, size, and the descriptors of its sockets
_POLL_SECONDS = 0.05  # seconds between two polls of the processes


class Message(Protocol):
    """A message that has arrived."""

    def recv(self) -> Any:
        """Return its value."""


class Communicator(Protocol):
    """Part of mpi4py's communicator that ranks use."""

    rank: int
    size: int

    def send(self, value: Any, dest: int) -> None:
        """Send a value to a rank."""

    def improbe(self, source: int) -> Message | None:
        """Return the next message of a rank if it has arrived."""

    def allgather(self, value: Any) -> list[Any]:
        """Return the values of all ranks."""

    def Abort(self, status: int) -> None:
        """End all ranks."""


class Pipes:
    """Communicator of the ranks that ``Processes`` has started; it connects rank 0 with each other rank.

    The process of another rank ends when rank 0 has ended.
    """

    def __init__(self, rank: int, size: int, sockets: Sequence[int]):
        self.rank, self.size = rank, size
        peers = range(1, size) if rank == 0 else [0]
        self._peers: dict[int, Connection[Any, Any]] = dict(zip(peers, map(Connection, sockets), strict=True))

    def send(self, value: Any, dest: int) -> None:
        """See :class:`Communicator`. A value to a rank that has ended is lost."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._peers[dest].send(value)

    def improbe(self, source: int) -> Message | None:
        """See :class:`Communicator`. Receiving from a rank that has died raises ToolFailed."""
        return _Received(self._peers[source], source) if self._peers[source].poll() else None

    def allgather(self, value: Any) -> list[Any]:
        """See :class:`Communicator`."""
        if self.rank:
            self.send(value, 0)
            values: list[Any] = _Received(self._peers[0], 0).recv()
            return values
        values = [value, *(_Received(peer, rank).recv() for rank, peer in self._peers.items())]
        for rank in self._peers:
            self.send(values, rank)
        return values

    def Abort(self, status: int) -> NoReturn:
        """See :class:`Communicator`. The process that started the ranks ends the others."""
        os._exit(status)


class _Received:
    def __init__(self, peer: Connection, rank: int):
        self._peer, self._rank = peer, rank

    def recv(self) -> Any:
        try:
            return self._peer.recv()
        except (EOFError, ConnectionResetError):
            if self._rank == 0:  # the process that started the ranks reports it
                raise SystemExit(1) from None
            raise ToolFailed(f"rank {self._rank} has died, and so all have ended") from None


def is_started() -> bool:
    """Return whether ``Processes`` has started this process as a rank, and it has not joined yet."""
    return _VARIABLE in os.environ


def join_started() -> Pipes | None:
    """Return the communicator of the ranks that ``Processes`` has started; None if this process is no rank."""
    text = os.environ.pop(_VARIABLE, None)  # processes started by this one are not ranks
    if text is None:
        return None
    rank, size, *sockets = map(int, text.split())
    return Pipes(rank, size, sockets)


class Processes:
    """Processes of a command's ranks, started at once. Raises InputError if the system cannot start them."""

    def __init__(self, command: Sequence[str], ranks: int):
        self._ranks: list[subprocess.Popen[bytes]] = []  # the others in order, then rank 0
        ends: list[int] = []
        try:
            for rank in range(1, ranks):
                first_end, other_end = socket.socketpair()
                ends.append(first_end.detach())
                with other_end:
                    self._start(command, rank, ranks, [other_end.fileno()])
            self._start(command, 0, ranks, ends)
        except OSError as error:
            self.end()
            raise InputError(f"--ranks {ranks}: cannot be started: {error.strerror or error}") from error
        finally:
            for end in ends:
                os.close(end)

    def _start(self, command: Sequence[str], rank: int, ranks: int, sockets: Sequence[int]) -> None:
        text = " ".join(map(str, (rank, ranks, *sockets)))
        self._ranks.append(
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                env={**os.environ, _VARIABLE: text},
                pass_fds=sockets,
                process_group=0,  # signals of a terminal or a group reach them once, by their starter
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL),
            )
        )

    def wait(self, seconds: float = math.inf) -> int:
        """Wait until rank 0 has ended; return its exit status.

        If another rank dies, rank 0 reports it and ends. Raises ToolFailed if rank 0 does not end within
        ``GRACE_SECONDS`` of that, or within ``seconds`` from now.
        """
        deadline = time.monotonic() + seconds
        reason = "rank 0 does not end"
        while (status := self._ranks[-1].poll()) is None:
            dead_ranks = [rank for rank, process in enumerate(self._ranks[:-1], 1) if process.poll()]
            if dead_ranks and deadline == math.inf:
                deadline = time.monotonic() + GRACE_SECONDS
                reason = f"rank {dead_ranks[0]} has died, and so all have ended"
            if time.monotonic() > deadline:
                raise ToolFailed(reason)
            time.sleep(_POLL_SECONDS)
        return status

    def interrupt(self) -> None:
        """Interrupt rank 0, as a terminal does."""
        self._ranks[-1].send_signal(signal.SIGINT)

    def end(self) -> None:
        """End the ranks that still run: terminate rank 0, which cleans up; kill ranks that remain."""
        if self._ranks and self._ranks[-1].poll() is None:
            self._ranks[-1].terminate()
        deadline = time.monotonic() + GRACE_SECONDS
        for process in reversed(self._ranks):
            try:
                process.wait(max(deadline - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
