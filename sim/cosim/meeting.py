"""Meetings of the ranks of a run at rising edges: each rank reports, and rank 0 answers.

Rank 0 has the network. Between two meetings each rank runs only its own nodes. This is safe because a frame
that leaves a node in that time cannot affect another node before the next meeting (see :func:`window`). A run
in one process is one rank, which meets with itself whenever a frame leaves.
"""

from __future__ import annotations

import os
import pickle
import struct
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from socket import socket
from typing import Any, NamedTuple, Protocol

from fanin.sim.cosim.clock import Clock
from fanin.sim.cosim.exchange import Exchange, ReceivedFrame, SentFrame, TakenFrame
from fanin.sim.cosim.state import Decision, Fact, LinkCut, State

STOPPED = "the other ranks have ended"  #: error text of a run whose other ranks ended first
TIMEOUT = 600.0  #: seconds that a rank may take from one meeting to the next
#: Seconds by which rank 0 delays each answer, to model a slower network (``fanin bench scale``).
DELAY = float(os.environ.get("FANIN_COSIM_DELAY", 0))
MAX_WINDOW = 512  # cycles; longer windows save no more time
_LENGTH = struct.Struct("<Q")


def window(min_trip_ps: int, clock: Clock) -> int:
    """Return the cycles between meetings: no frame that leaves after a meeting is received before the next one.

    ``min_trip_ps`` is the shortest time of a frame from node to node. A frame that leaves at edge 1 of a window
    must not arrive before the window's last edge. Frames that arrive at the last edge are delivered there.
    """
    return min(1 + -(-min_trip_ps // clock.period_ps), MAX_WINDOW)


class Report(NamedTuple):
    """A rank's events since the last meeting, and the state of its nodes."""

    sent: list[SentFrame]
    taken: list[TakenFrame]
    state: State
    cuts: Sequence[LinkCut] = ()
    facts: Sequence[Fact] = ()


class Answer(NamedTuple):
    """Frames that a rank's nodes will receive, the state of all nodes, and orders for all hosts."""

    received: list[ReceivedFrame]
    state: State
    orders: Sequence[Any] = ()


class Stopped(Exception):
    """Another rank, or the process that started this one, has ended."""

    def __init__(self) -> None:
        super().__init__(STOPPED)


class RankTimeout(Exception):
    """A rank has not come to a meeting within ``TIMEOUT`` seconds."""

    def __init__(self, rank: int):
        self.rank = rank
        super().__init__(f"rank {rank} has not answered for {TIMEOUT:g} s")


class Meeting(Protocol):
    """Interface of the two sides of a meeting: rank 0's and the other ranks'."""

    def meet(self, cycle: int, report: Report) -> Answer:
        """Report the events up to rising edge ``cycle``; return the answer. Raises Stopped or RankTimeout."""


class Channel:
    """Connection to another rank's simulator for pickled objects. Methods raise Stopped when it has ended."""

    def __init__(self, descriptor: int, rank: int):
        self._socket, self._rank = socket(fileno=descriptor), rank
        # Rank 0 detects a hung rank. Others wait longer: rank 0 does not answer while it waits for that rank.
        self._socket.settimeout(TIMEOUT if rank else 2 * TIMEOUT)

    def send(self, value: Any) -> None:
        """Send an object. Raises RankTimeout if the other rank does not read."""
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except TimeoutError:
            raise RankTimeout(self._rank) from None
        except OSError:
            raise Stopped from None

    def receive(self) -> Any:
        """Receive an object. Raises RankTimeout on timeout."""
        (size,) = _LENGTH.unpack(self._receive_bytes(_LENGTH.size))
        return pickle.loads(self._receive_bytes(size))

    def close(self) -> None:
        """Close the connection, which the other rank notices."""
        self._socket.close()

    def _receive_bytes(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except TimeoutError:
                raise RankTimeout(self._rank) from None
            except OSError:
                part = b""
            if not part:
                raise Stopped
            data += part
        return bytes(data)


class Centre:
    """Rank 0's side of the meetings, with the network.

    - ``shares``: the nodes of each rank.
    - ``channels``: connections to the other ranks.
    - ``judge``: called with the facts of all hosts, in order.
    """

    def __init__(
        self,
        exchange: Exchange,
        shares: Sequence[range],
        channels: Sequence[Channel],
        judge: Callable[[Sequence[Fact]], Decision],
    ):
        self._exchange, self._shares, self._channels, self._decide = exchange, shares, channels, judge
        self.network_seconds = 0.0  # time spent carrying frames

    def meet(self, cycle: int, report: Report) -> Answer:
        """Carry all frames, and give each rank the frames for its nodes."""
        if not self._channels:
            received = self._carry(cycle, report.sent, report.taken, report.cuts)
            return Answer(received, *self._combine([report], received))
        reports: list[Report] = [report, *(channel.receive() for channel in self._channels)]
        sent = [frame for rank_report in reports for frame in rank_report.sent]
        taken = [frame for rank_report in reports for frame in rank_report.taken]
        cuts = [cut for rank_report in reports for cut in rank_report.cuts]
        received = self._carry(cycle, sent, taken, cuts)
        state, orders = self._combine(reports, received)
        own_answer, *other_answers = [
            Answer([frame for frame in received if frame.node in nodes], state, orders)
            for nodes in self._shares
        ]
        if DELAY:
            time.sleep(DELAY)
        for channel, answer in zip(self._channels, other_answers, strict=True):
            channel.send(answer)
        return own_answer

    def _carry(
        self, cycle: int, sent: Sequence[SentFrame], taken: Sequence[TakenFrame], cuts: Sequence[LinkCut]
    ) -> list[ReceivedFrame]:
        start = time.perf_counter()
        received = self._exchange.serve(cycle, sent, taken, cuts)
        self.network_seconds += time.perf_counter() - start
        return received

    def _combine(
        self, reports: Sequence[Report], received: Sequence[ReceivedFrame]
    ) -> tuple[State, Sequence[Any]]:
        facts = [fact for report in reports for fact in report.facts]
        decision = self._decide(sorted(facts, key=attrgetter("cycle", "node")))
        carries = self._exchange.carries or bool(received) or decision.orders_wait
        state = State.of([report.state for report in reports], carries=carries, host_failure=decision.failure)
        return state, decision.orders


class Member:
    """Side of the meetings of a rank other than 0."""

    def __init__(self, channel: Channel):
        self._channel = channel

    def meet(self, cycle: int, report: Report) -> Answer:
        """Report to rank 0 and return its answer."""
        self._channel.send(report)
        answer: Answer = self._channel.receive()
        return answer
