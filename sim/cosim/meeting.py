"""MeetingTimes of ranks, which simulate parts of one run, at rising edges: reports and answers.

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
from fanin.sim.cosim.exchange import Exchange, Received, Sent, Taken
from fanin.sim.cosim.state import Cut, Fact, State, Verdict

STOPPED = "the other ranks have ended"  #: error text of a run whose other ranks ended first
PATIENCE = 600.0  #: seconds that a rank may take from one meeting to the next
#: Seconds by which rank 0 delays each answer, to model a slower network (``fanin bench scale``).
DELAY = float(os.environ.get("FANIN_COSIM_DELAY", 0))
MAX_WINDOW = 512  # cycles; longer windows save no more time
_LENGTH = struct.Struct("<Q")


def window(least_trip_ps: int, clock: Clock) -> int:
    """Return the cycles between meetings: no frame that leaves after a meeting is received before the next one.

    A frame that leaves at edge 1 of a window, and takes ``least_trip_ps``, must not arrive before the window's
    last edge. Frames that arrive at the last edge are delivered there.
    """
    return min(1 + -(-least_trip_ps // clock.period_ps), MAX_WINDOW)


class Report(NamedTuple):
    """A rank's events since the last meeting, and the state of its nodes."""

    sent: list[Sent]
    taken: list[Taken]
    state: State
    cuts: Sequence[Cut] = ()
    facts: Sequence[Fact] = ()


class Answer(NamedTuple):
    """Frames that a rank's nodes will receive, the state of all nodes, and orders for all hosts."""

    received: list[Received]
    state: State
    orders: Sequence[Any] = ()


class Stopped(Exception):
    """Another rank, or the process that started this one, has ended."""

    def __init__(self) -> None:
        super().__init__(STOPPED)


class Silent(Exception):
    """A rank did not come to a meeting in time."""

    def __init__(self, rank: int):
        self.rank = rank
        super().__init__(f"rank {rank} has not answered for {PATIENCE:g} s")


class Meeting(Protocol):
    """A rank's way to meet the others."""

    def meet(self, now: int, report: Report) -> Answer:
        """Report the events up to rising edge ``now``; return the answer. Raises Stopped and Silent."""


class Channel:
    """Connection to another rank's simulator for pickled objects. Methods raise Stopped when that has ended."""

    def __init__(self, descriptor: int, rank: int):
        self._socket, self._rank = socket(fileno=descriptor), rank
        # Rank 0 finds the silent rank. Others wait longer: rank 0 seems silent while it waits for that rank.
        self._socket.settimeout(PATIENCE if rank else 2 * PATIENCE)

    def send(self, value: Any) -> None:
        """Send an object. Raises Silent if the other rank does not read."""
        data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        try:
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except TimeoutError:
            raise Silent(self._rank) from None
        except OSError:
            raise Stopped from None

    def receive(self) -> Any:
        """Receive an object. Raises Silent on timeout."""
        (size,) = _LENGTH.unpack(self._received(_LENGTH.size))
        return pickle.loads(self._received(size))

    def close(self) -> None:
        """Close the connection, which the other rank notices."""
        self._socket.close()

    def _received(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except TimeoutError:
                raise Silent(self._rank) from None
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
        judge: Callable[[Sequence[Fact]], Verdict],
    ):
        self._exchange, self._shares, self._channels, self._judge = exchange, shares, channels, judge
        self.network_seconds = 0.0  # time spent carrying frames

    def meet(self, now: int, report: Report) -> Answer:
        """Carry all frames, and give each rank the frames for its nodes."""
        if not self._channels:
            received = self._carry(now, report.sent, report.taken, report.cuts)
            return Answer(received, *self._all([report], received))
        reports: list[Report] = [report, *(channel.receive() for channel in self._channels)]
        sent = [frame for each in reports for frame in each.sent]
        taken = [frame for each in reports for frame in each.taken]
        cuts = [cut for each in reports for cut in each.cuts]
        received = self._carry(now, sent, taken, cuts)
        state, orders = self._all(reports, received)
        own, *others = [
            Answer([frame for frame in received if frame.node in nodes], state, orders)
            for nodes in self._shares
        ]
        if DELAY:
            time.sleep(DELAY)
        for channel, answer in zip(self._channels, others, strict=True):
            channel.send(answer)
        return own

    def _carry(
        self, now: int, sent: Sequence[Sent], taken: Sequence[Taken], cuts: Sequence[Cut]
    ) -> list[Received]:
        began = time.perf_counter()
        received = self._exchange.serve(now, sent, taken, cuts)
        self.network_seconds += time.perf_counter() - began
        return received

    def _all(self, reports: Sequence[Report], received: Sequence[Received]) -> tuple[State, Sequence[Any]]:
        facts = [fact for each in reports for fact in each.facts]
        verdict = self._judge(sorted(facts, key=attrgetter("cycle", "node")))
        carries = self._exchange.carries or bool(received) or verdict.waiting
        state = State.of([each.state for each in reports], carries=carries, found=verdict.failure)
        return state, verdict.orders


class Member:
    """Any other rank's side of the meetings."""

    def __init__(self, channel: Channel):
        self._channel = channel

    def meet(self, now: int, report: Report) -> Answer:
        """Report to rank 0 and return its answer."""
        self._channel.send(report)
        answer: Answer = self._channel.receive()
        return answer
