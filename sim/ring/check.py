"""Handshake of a ring before its first job: each node probes the next node and hears the previous node."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from fanin.ring.driver import RingDriver, RingFindings, RingMember
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram

TIMEOUT, RETRIES = 2_000, 10  # cycles until a silent node is probed again, and the number of retries
_LOOK_CYCLES = 500  # cycles between two reads of a node's findings


class CheckHosts:
    """Live hosts that start a job without descriptors at each node, and read the nodes' findings.

    ``members``: each node's view of the ring; a node without an entry is not started. The run ends when every
    node has heard both neighbours, has failed, or has had the time of all its retries.
    """

    def __init__(self, board: Board, *, driver: RingDriver, members: Mapping[int, RingMember]):
        self._board, self._driver, self._members = board, driver, members
        self._findings: dict[int, RingFindings] = {}
        self._settled: set[int] = set()
        member = next(iter(members.values()))
        period = 4 * member.timeout // _LOOK_CYCLES
        self._looks = {node: (member.retries + 1) * max(period, 1) for node in members}

    @property
    def done(self) -> bool:
        """Whether all nodes are settled."""
        return len(self._settled) == len(self._members)

    @property
    def progress(self) -> int:
        """Number of settled nodes."""
        return len(self._settled)

    def start(self) -> None:
        """Start the job at all nodes."""
        for node, member in self._members.items():
            program = HostProgram()
            for batch in self._driver.identify(), self._driver.configure(member), self._driver.start():
                program.extend(batch.operations)
            program.poll_field(self._driver.registers, "status", "busy", 0)
            self._board.run(node, program, functools.partial(self._begun, node))

    def _begun(self, node: int, reads: list[int]) -> None:
        identify = self._driver.identify()
        self._driver.check_identity(identify.results(reads))
        self._look(node)

    def _look(self, node: int) -> None:
        program = HostProgram().extend(self._driver.findings().operations)
        self._board.run(node, program, functools.partial(self._found, node))

    def _found(self, node: int, reads: list[int]) -> None:
        found = self._findings[node] = self._driver.findings_of(self._driver.findings().results(reads))
        self._looks[node] -= 1
        if found.complete or not found.running or not self._looks[node]:
            self._settled.add(node)
        else:
            self._board.at(self._board.now + _LOOK_CYCLES * 4_000, functools.partial(self._look, node))

    def may_skip(self) -> bool:
        """Return False: nodes count the cycles of their timeouts."""
        return False

    def waiting(self) -> str:
        """Return the nodes that have not heard both neighbours."""
        return f"nodes {sorted(set(self._members) - self._settled)} have not heard both neighbours"

    def result(self) -> dict[int, RingFindings]:
        """Return the findings of each started node."""
        return self._findings
