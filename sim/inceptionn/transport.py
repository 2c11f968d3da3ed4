"""The hosts' transport: TCP segments, reliable and in order, of a stated subset of TCP
(docs/systems/inceptionn-training.md).

It is driven by events and knows no network: frames go out through a function and come in by a call, and time
passes in a scheduler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fanin.base.errors import CheckFailed
from fanin.inceptionn.facts import TransportConfig
from fanin.wire.ethernet import Endpoint
from fanin.wire.tcp import ACK, PSH, Segment, encode_tcp

_SEQUENCES = 1 << 32
_PS = 10**12  # in a second
_DUPLICATES = 3  # acknowledgements alike, after which the oldest segment counts as lost


class Scheduler(Protocol):
    """Time, in ps."""

    @property
    def now(self) -> int:
        """The time."""

    def at(self, time_ps: int, then: Callable[[], None]) -> None:
        """Call ``then`` once, at that time."""


@dataclass
class Counters:
    """What a connection has sent, and sent again."""

    segments: int = 0  # with payload, those sent again among them
    acknowledgements: int = 0  # without payload
    repeated: int = 0  # segments sent again
    timeouts: int = 0
    duplicates: int = 0  # segments received that had been received before


def _distance(sequence: int, base: int) -> int:
    """The byte number that a 32-bit sequence number stands for: the one nearest to ``base``."""
    half = _SEQUENCES // 2
    return base + (sequence - base + half) % _SEQUENCES - half


class Connection:
    """One end of a connection, which is established: both streams begin at byte 0.

    ``names``: own node and peer, for messages. ``cut``: whether the own link is cut, which is then named as the
    cause. ``tos`` is that of segments with payload. Bytes arrive in order, each once: ``read`` hands them over.
    Raises CheckFailed, from the scheduler's call, if the peer has not answered after all retries.
    """

    def __init__(
        self,
        own: Endpoint,
        peer: Endpoint,
        config: TransportConfig,
        *,
        scheduler: Scheduler,
        transmit: Callable[[bytes], None],
        tos: int = 0,
        names: tuple[str, str] = ("this end", "the other end"),
        cut: Callable[[], bool] = lambda: False,
    ):
        self._own, self._peer, self._config, self._tos, self._names = own, peer, config, tos, names
        self._scheduler, self._transmit, self._cut = scheduler, transmit, cut
        self.counters = Counters()
        self._unsent: deque[tuple[bytes, int]] = deque()  # payload and flags
        self._flying: deque[tuple[int, bytes, int]] = deque()  # first byte, payload and flags
        self._next = 0  # byte to be sent
        self._recover = 0  # all below was sent when a loss was seen
        self._same = 0  # acknowledgements that acknowledge nothing new, in a row
        self._expected = 0  # byte to be received
        self._early: dict[int, bytes] = {}
        self._unacknowledged = 0  # segments received since the last acknowledgement
        self._stream = bytearray()
        self._wanted: tuple[int, Callable[[bytes], None]] | None = None
        self._drained: Callable[[], None] | None = None
        self._alarm: int | None = None  # when the next look is due
        self._tries = 0  # times that nothing has come back from the peer
        self._heard = 0  # when the peer was last heard, or waiting for it began

    # ---- sending ----

    def send(self, message: bytes) -> None:
        """Send a message: segments begin at its beginning, and keep their bounds when they are sent again."""
        mss = self._config.mss
        parts = [message[at : at + mss] for at in range(0, len(message), mss)]
        self._unsent += [(part, ACK if part is not parts[-1] else ACK | PSH) for part in parts]
        self._pump()

    def drain(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all that was sent has been acknowledged, perhaps at once; one caller at a time."""
        assert self._drained is None
        self._drained = then
        self._tell_drained()

    def _tell_drained(self) -> None:
        if self.idle and self._drained is not None:
            then, self._drained = self._drained, None
            then()

    @property
    def idle(self) -> bool:
        """Whether all that was sent has been acknowledged."""
        return not self._flying and not self._unsent

    def _pump(self) -> None:
        while self._unsent and len(self._flying) < self._config.window:
            if not self._flying:
                self._heard = self._scheduler.now
            payload, flags = self._unsent.popleft()
            self._flying.append((self._next, payload, flags))
            self._send(self._next, payload, flags)
            self._next += len(payload)
        self._arm()

    def _send(self, first: int, payload: bytes, flags: int) -> None:
        if payload:
            self.counters.segments += 1
        else:
            self.counters.acknowledgements += 1
        self._unacknowledged = 0
        segment = Segment(
            self._own,
            self._peer,
            first % _SEQUENCES,
            self._expected % _SEQUENCES,
            flags=flags,
            window=self._config.window * self._config.mss,
            tos=self._tos if payload else 0,
            payload=payload,
        )
        self._transmit(encode_tcp(segment))

    def _acknowledge(self) -> None:
        self._send(self._next, b"", ACK)

    def _repeat(self) -> None:
        """Send the oldest segment in flight again."""
        self.counters.repeated += 1
        self._send(*self._flying[0])

    # ---- receiving ----

    def read(self, count: int, then: Callable[[bytes], None]) -> None:
        """Hand over the next ``count`` bytes when they have arrived, perhaps at once; one read at a time."""
        assert self._wanted is None
        self._wanted = (count, then)
        self._heard = self._scheduler.now if self.idle else self._heard
        self._hand_over()
        self._arm()

    def _hand_over(self) -> None:
        if self._wanted is None or len(self._stream) < self._wanted[0]:
            return
        (count, then), self._wanted = self._wanted, None
        data = bytes(self._stream[:count])
        del self._stream[:count]
        then(data)

    def receive(self, segment: Segment) -> None:
        """Take a segment from the peer."""
        self._tries = 0
        if self.idle:
            self._heard = self._scheduler.now
        self._take_acknowledgement(segment)
        first = _distance(segment.sequence, self._expected)
        if segment.payload:
            self._take_payload(first, segment)
        elif first < self._expected:  # a probe
            self._acknowledge()
        self._pump()
        self._hand_over()
        self._tell_drained()

    def _take_acknowledgement(self, segment: Segment) -> None:
        oldest = self._flying[0][0] if self._flying else self._next
        acknowledged = _distance(segment.acknowledgement, oldest)
        if oldest < acknowledged <= self._next:
            while self._flying and self._flying[0][0] < acknowledged:
                self._flying.popleft()
            self._same, self._heard = 0, self._scheduler.now
            if self._flying and acknowledged < self._recover:
                self._repeat()  # the next hole
        elif acknowledged == oldest and self._flying and not segment.payload:
            self._same += 1
            if self._same == _DUPLICATES and oldest >= self._recover:
                self._recover = self._next
                self._repeat()

    def _take_payload(self, first: int, segment: Segment) -> None:
        config = self._config
        if first < self._expected or first in self._early:
            self.counters.duplicates += 1
            self._acknowledge()
            return
        if first >= self._expected + config.window * config.mss:
            return
        self._early[first] = segment.payload
        in_order = first == self._expected and len(self._early) == 1
        while (payload := self._early.pop(self._expected, None)) is not None:
            self._stream += payload
            self._expected += len(payload)
            self._unacknowledged += 1
        full = self._unacknowledged >= min(config.ack_every, config.window)
        if full or segment.flags & PSH or not in_order:
            self._acknowledge()

    # ---- time ----

    @property
    def _patience(self) -> int | None:
        """How long the peer may be silent, in ps; None while nothing is expected of it."""
        if self._flying:
            return round(self._config.timeout * _PS)
        return round(self._config.probe * _PS) if self._wanted else None

    def _arm(self) -> None:
        if self._patience is None:
            return
        due = max(self._heard + self._patience, self._scheduler.now + 1)
        if self._alarm is None or due < self._alarm:
            self._alarm = due
            self._scheduler.at(due, partial(self._expired, due))

    def _expired(self, due: int) -> None:
        if due != self._alarm:
            return  # an earlier one has taken its place
        self._alarm = None
        if self._patience is not None and self._heard + self._patience <= self._scheduler.now:
            self._insist()
        self._arm()

    def _insist(self) -> None:
        """The peer has been silent: send the oldest segment again, or ask for an acknowledgement."""
        self._tries += 1
        if self._tries > self._config.retries:
            raise self._lost()
        self._heard = self._scheduler.now
        if self._flying:
            self.counters.timeouts += 1
            self._recover, self._same = self._next, 0
            self._repeat()
        else:
            self._send(self._next - 1, b"", ACK)  # below what the peer expects: it answers

    def _lost(self) -> CheckFailed:
        own, peer = self._names
        if self._cut():
            return CheckFailed(f"{own} has stopped answering: its link is cut")
        config, what, seconds = self._config, "answer", self._config.probe
        if self._flying:
            what, seconds = f"acknowledgement of byte {self._flying[0][0]}", config.timeout
        tries = f"after {config.retries} retries, {seconds:g} s apart"
        return CheckFailed(f"{peer} has stopped answering: {own} has no {what} {tries}")
