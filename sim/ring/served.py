"""Hosts of ring nodes that add up vectors from another process, one all-reduce after the other."""

from __future__ import annotations

from functools import partial
from multiprocessing.connection import Client, Connection
from typing import Any, NamedTuple

import numpy.typing as npt

from fanin.base.errors import CheckFailed
from fanin.hdl.ring.registers import Failure
from fanin.host.causes import explain
from fanin.ring.driver import RingDriver
from fanin.ring.facts import RingConfig
from fanin.ring.golden.all_reduce import value_type
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram

Vector = npt.NDArray[Any]  # of float32, or of codes of 16 bits


class ServedSum(NamedTuple):
    """Result of an all-reduce: ``sums`` are the vectors that the nodes have stored.

    ``cycles`` count from the descriptor to the last sum in memory, at the slowest node.
    """

    sums: list[Vector]
    cycles: int


class ServedHosts:
    """Live hosts that receive vectors, one per node, from a socket; simulated time stands still meanwhile.

    The run ends when the peer closes the connection.
    """

    def __init__(self, board: Board, *, address: str, config: RingConfig, nodes: int):
        self.done, self.progress = False, 0
        self._board, self._driver, self._nodes = board, RingDriver(config), nodes
        self._type = value_type(config)
        self._peer: Connection = Client(address, "AF_UNIX")
        self._count = 0
        self._cycles: dict[int, int] = {}

    def start(self) -> None:
        """Wait for the first vectors."""
        self._next()

    def _next(self) -> None:
        try:
            vectors: list[Vector] = self._peer.recv()
        except (EOFError, ConnectionError):
            self.done = True
            return
        self._count = vectors[0].size
        self._cycles.clear()
        for node, vector in enumerate(vectors):
            self._vector(node)[:] = vector
            driver = self._driver
            program = HostProgram().extend(driver.command("clear_counters").operations)
            program.extend(driver.post(0, self._count).operations)
            program.poll_field(driver.registers, "status", "busy", 0)
            program.extend(driver.wait().operations).extend(driver.counters().operations)
            self._board.run(node, program, partial(self._collect, node))

    def _collect(self, node: int, reads: list[int]) -> None:
        driver = self._driver
        status_reads = sum(operation.data is None for operation in driver.wait().operations)
        status = driver.status_of(driver.wait().results(reads[:status_reads]))
        if status.failed or status.refused:
            cause = status.cause if status.failed else Failure.NONE
            raise CheckFailed(f"node {node} ended in all-reduce {self.progress} with {explain(cause)}")
        self._cycles[node] = driver.counters_of(driver.counters().results(reads[status_reads:]))["cycles"]
        if len(self._cycles) == self._nodes:
            self.progress += 1
            sums = [self._vector(node).copy() for node in range(self._nodes)]
            try:
                self._peer.send(ServedSum(sums, max(self._cycles.values())))
            except ConnectionError:
                self.done = True
                return
            self._next()

    def _vector(self, node: int) -> Vector:
        return self._board.memory(node)[: self._type.itemsize * self._count].view(self._type)

    def may_skip(self) -> bool:
        """Return True; without alarms, no time is skipped."""
        return True

    def waiting(self) -> str:
        """Return the nodes that have ended the current all-reduce."""
        return f"all-reduce {self.progress}: nodes {sorted(self._cycles)} of {self._nodes} have ended"

    def result(self) -> int:
        """Return the number of all-reduces carried out."""
        return self.progress
