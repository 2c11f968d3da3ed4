"""Traffic of the hosts during an all-reduce, from every node's host to the next node's host."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fanin.hdl.ring.share import OVERHEAD
from fanin.job import worker_endpoint
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.wire.ethernet import ETHERNET
from fanin.wire.fields import byte_length, pack_fields

ETHERTYPE = 0x88B7  # IEEE 802 OUI extended: no protocol that a node handles
NUMBER_BYTES = 8
MIN_BYTES = byte_length(ETHERNET) + NUMBER_BYTES
WINDOW = 8  # frames offered and not taken by the node, above which a host skips a frame
_GRACE_PS = 50_000_000  # time after the all-reduce in which frames in flight arrive
_PS = 8000  # ps per byte at 1 Gb/s


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Frames that each host sends to the next host.

    - ``gbps``: rate on the link, with preamble, FCS and gap. A host skips frames that its node does not take.
    - ``size``: bytes of a frame.
    - ``share``: the host's share of the link, in sixteenths.
    - ``stall``: share of the cycles in which a receiving host takes nothing.

    Raises ValueError for a size too small and a rate of 0.
    """

    gbps: float
    size: int = 1500
    share: int = 2
    stall: float = 0.0

    def __post_init__(self) -> None:
        if self.size < MIN_BYTES:
            raise ValueError(f"size must be at least {MIN_BYTES}, not {self.size!r}")
        if not self.gbps > 0:
            raise ValueError(f"gbps must be above 0, not {self.gbps!r}")

    @property
    def interval(self) -> Fraction:
        """Time from one frame to the next, in ps."""
        return (self.size + OVERHEAD) * _PS / Fraction(self.gbps)

    def frame(self, node: int, nodes: int, number: int) -> bytes:
        """Return a host's frame of a number, filled with random bytes."""
        header = {
            "destination": worker_endpoint((node + 1) % nodes).mac,
            "source": worker_endpoint(node).mac,
            "ethertype": ETHERTYPE,
        }
        filler = np.random.default_rng((node, number)).bytes(self.size - MIN_BYTES)
        return pack_fields(ETHERNET, header) + number.to_bytes(NUMBER_BYTES, "big") + filler


@dataclass
class FlowCounters:
    """Counters of a host's frames."""

    sent: int = 0
    received: int = 0
    wrong: int = 0  #: frames changed, repeated, or out of order


class FlowHosts:
    """Live hosts that post their descriptors, and send frames until all nodes have reduced; see LiveHosts.

    - ``reduce``: per node, the program that posts its descriptors and waits for the sums.
    - ``last``: program whose reads ``result`` contains, run at every node after the all-reduce.
    """

    def __init__(self, board: Board, *, flow: Flow, reduce: list[HostProgram], last: HostProgram):
        self.board, self.flow, self.programs, self.last = board, flow, reduce, last
        self.nodes = len(reduce)
        self.counters = [FlowCounters() for _ in reduce]
        self.expected = [0] * self.nodes  # per sender, the number of the next frame at its receiver
        self.reducing, self.reads = self.nodes, dict[int, list[int]]()

    @property
    def done(self) -> bool:
        """Whether every host has read its counters."""
        return len(self.reads) == self.nodes

    @property
    def progress(self) -> int:
        """Number of frames received."""
        return sum(counters.received for counters in self.counters)

    def start(self) -> None:
        """Start all hosts at once."""
        for node, program in enumerate(self.programs):
            self.board.on_frame(node, functools.partial(self._received, (node - 1) % self.nodes))
            self.board.stall(node, self.flow.stall)
            self.board.run(node, program, self._reduced)
            self._send(node, self.board.now)

    def may_skip(self) -> bool:
        """Return whether the all-reduce is over: afterwards nothing is counted in cycles."""
        return not self.reducing

    def waiting(self) -> str:
        """Return the state for the message of a failed run."""
        return f"{self.reducing} of {self.nodes} nodes reduce"

    def result(self) -> tuple[list[list[int]], list[FlowCounters]]:
        """Return the words read and the counters of frames, per node."""
        return [self.reads[node] for node in range(self.nodes)], self.counters

    def _send(self, node: int, start: int) -> None:
        def send(time: int) -> None:
            if not self.reducing:
                return
            if self.board.unsent(node) < WINDOW:
                counters = self.counters[node]
                self.board.send(node, self.flow.frame(node, self.nodes, counters.sent))
                counters.sent += 1
            self.board.at(start + int((time + 1) * self.flow.interval), lambda: send(time + 1))

        send(0)

    def _received(self, sender: int, frame: bytes) -> None:
        counters, number = (
            self.counters[sender],
            int.from_bytes(frame[MIN_BYTES - NUMBER_BYTES : MIN_BYTES], "big"),
        )
        counters.received += 1
        if number < self.expected[sender] or frame != self.flow.frame(sender, self.nodes, number):
            counters.wrong += 1
        self.expected[sender] = number + 1

    def _reduced(self, reads: list[int]) -> None:
        self.reducing -= 1
        if not self.reducing:
            self.board.at(self.board.now + _GRACE_PS, self._read)

    def _read(self) -> None:
        for node in range(self.nodes):
            self.board.run(node, self.last, functools.partial(self.reads.__setitem__, node))
