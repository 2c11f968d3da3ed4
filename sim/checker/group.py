"""Group of processes that share one search and exchange their findings in lockstep."""

from __future__ import annotations

import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from fanin.base.errors import CheckFailed

_PEER_ERRORS = (EOFError, ConnectionError, TimeoutError)  # the process at the other end has ended or hangs
_LOST_PEER = 3  # exit status of a process that lost its connection to another
_TIMEOUT = 600.0  # seconds; two exchanges are less than this apart, even when a hash table is enlarged
Work = Callable[["Group"], Any]


class Group:
    """One process's connections to the group: ``rank``, ``size``, and a connection per rank (None for its own).

    All processes make the same calls in the same order. If one ends, or does not answer for ten minutes, the
    calls of the others raise EOFError, ConnectionError or TimeoutError.
    """

    def __init__(self, rank: int = 0, connections: Sequence[Connection | None] = (None,)):
        self.rank, self.size = rank, len(connections)
        self._connections = connections
        self._sender = ThreadPoolExecutor(1)  # pipes are small: two processes that only send would deadlock

    def exchange(self, items: Sequence[Any]) -> list[Any]:
        """Send ``items[r]`` to rank r; return the items received, by rank."""
        peers = [(r, c) for r, c in enumerate(self._connections) if c is not None]
        sent = self._sender.submit(self._send, [(c, items[r]) for r, c in peers]) if peers else None
        received = list(items)
        for rank, connection in peers:
            if not connection.poll(_TIMEOUT):
                raise TimeoutError
            received[rank] = connection.recv()
        if sent:
            sent.result()
        return received

    def gather(self, item: Any) -> list[Any]:
        """Send ``item`` to all ranks; return the items of all ranks, by rank."""
        return self.exchange([item] * self.size)

    def close(self) -> None:
        """Close the connections, which ends the other processes' calls."""
        for connection in self._connections:
            if connection is not None:
                connection.close()
        self._sender.shutdown(wait=False)

    @staticmethod
    def _send(items: Sequence[tuple[Connection, Any]]) -> None:
        for connection, item in items:
            connection.send(item)


@contextmanager
def group_of(processes: int, work: Work) -> Iterator[Group]:
    """Yield this process as rank 0 of a group; the other processes execute ``work`` and end with this block.

    Raises CheckFailed, which names the process, when another process ends before its work is done.
    """
    if processes == 1:
        yield Group()
        return
    context = multiprocessing.get_context("fork")  # models may be local classes, which cannot be pickled
    connections: list[list[Connection | None]] = [[None] * processes for _ in range(processes)]
    for first_rank in range(processes):
        for second_rank in range(first_rank + 1, processes):
            connections[first_rank][second_rank], connections[second_rank][first_rank] = context.Pipe()
    peers = [
        context.Process(target=_run_process, args=(rank, connections, work), name=f"search {rank}")
        for rank in range(1, processes)
    ]
    group = Group(0, connections[0])
    try:
        with warnings.catch_warnings():  # Python 3.12 warns of fork with threads; numpy's threads allow it
            warnings.simplefilter("ignore", DeprecationWarning)
            for process in peers:
                process.start()
        _close_other_ends(0, connections)
        yield group
    except _PEER_ERRORS as error:
        for process in peers:
            process.join(1)
        codes = [process.exitcode for process in peers]
        crashed = [n for n, code in enumerate(codes) if code not in (None, 0, _LOST_PEER)]
        running = [n for n, code in enumerate(codes) if code is None]  # a process that lost another has exited
        failed = [*crashed, *running, 0][0]
        raise CheckFailed(
            f"process {failed + 2} of the search's {processes} {_describe_exit(codes[failed])}"
        ) from error
    finally:
        group.close()
        for process in peers:
            if process.pid is not None:
                process.kill()
                process.join()


def _run_process(rank: int, connections: list[list[Connection | None]], work: Work) -> None:
    """Run ``work`` in another process, which ignores SIGINT: the terminal's interrupt is for rank 0."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _close_other_ends(rank, connections)
    group = Group(rank, connections[rank])
    try:
        work(group)
    except _PEER_ERRORS:
        raise SystemExit(_LOST_PEER) from None
    finally:
        group.close()


def _close_other_ends(rank: int, connections: list[list[Connection | None]]) -> None:
    """Close the connections of other processes, so that each process notices when another ends."""
    for owner, connections_of_rank in enumerate(connections):
        for connection in connections_of_rank if owner != rank else ():
            if connection is not None:
                connection.close()


def _describe_exit(code: int | None) -> str:
    if code is None:
        return f"did not answer for {_TIMEOUT:.0f} s"
    return f"ended: {signal.Signals(-code).name if code < 0 else f'exit status {code}'}"
