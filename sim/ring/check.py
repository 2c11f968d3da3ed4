"""Handshake of a ring before its first job: each node probes the next node and hears the previous node."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from fanin.ring.driver import RingDriver, RingFindings, RingMember
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram

TIMEOUT, RETRIES = 2_000, 10  # cycles until a silent node is probed again, and the number of retries
_READ_CYCLES = 500  # cycles between two reads of a node's findings


class CheckHosts:
    """Live hosts that start a job without descriptors at each node, and read the nodes' findings.

    ``members``: each node's view of the ring; a node without an entry is not started. The run ends when every
    node has heard both neighbours, has failed, or has had the time of all its retries.
    """

    def __init__(self, board: Board, *, driver: RingDriver, members: Mapping[int, RingMember]):
        self._board, self._driver, self._members = board, driver, members
        self._findings: dict[int, RingFindings] = {}
        self._finished: set[int] = set()
        member = next(iter(members.values()))
        period = 4 * member.timeout // _READ_CYCLES
        self._remaining_reads = {node: (member.retries + 1) * max(period, 1) for node in members}

    @property
    def done(self) -> bool:
        """Whether the check of all nodes has ended."""
        return len(self._finished) == len(self._members)

    @property
    def progress(self) -> int:
        """Number of nodes whose check has ended."""
        return len(self._finished)

    def start(self) -> None:
        """Start the job at all nodes."""
        for node, member in self._members.items():
            program = HostProgram()
            for batch in self._driver.identify(), self._driver.configure(member), self._driver.start():
                program.extend(batch.operations)
            program.poll_field(self._driver.registers, "status", "busy", 0)
            self._board.run(node, program, functools.partial(self._check_identity, node))

    def _check_identity(self, node: int, reads: list[int]) -> None:
        identify = self._driver.identify()
        self._driver.check_identity(identify.results(reads))
        self._read_findings(node)

    def _read_findings(self, node: int) -> None:
        program = HostProgram().extend(self._driver.findings().operations)
        self._board.run(node, program, functools.partial(self._note_findings, node))

    def _note_findings(self, node: int, reads: list[int]) -> None:
        findings = self._findings[node] = self._driver.findings_of(self._driver.findings().results(reads))
        self._remaining_reads[node] -= 1
        if findings.complete or not findings.running or not self._remaining_reads[node]:
            self._finished.add(node)
        else:
            self._board.at(self._board.now + _READ_CYCLES * 4_000, functools.partial(self._read_findings, node))

    def may_skip(self) -> bool:
        """Return False: nodes count the cycles of their timeouts."""
        return False

    def waiting(self) -> str:
        """Return the nodes that have not heard both neighbours."""
        return f"nodes {sorted(set(self._members) - self._finished)} have not heard both neighbours"

    def result(self) -> dict[int, RingFindings]:
        """Return the findings of each started node."""
        return self._findings
