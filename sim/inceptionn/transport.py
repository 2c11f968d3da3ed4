"""The hosts' transport: reliable, in-order TCP segments, of a subset of TCP.

docs/systems/inceptionn-training.md states the subset. The transport is driven by events and knows no network:
frames are sent through a function and received by a call, and a scheduler provides time.
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
_PS = 10**12  # picoseconds per second
_DUPLICATES = 3  # equal acknowledgements after which the oldest segment counts as lost


class Scheduler(Protocol):
    """Time, in ps."""

    @property
    def now(self) -> int:
        """Present time."""

    def at(self, time_ps: int, then: Callable[[], None]) -> None:
        """Call ``then`` once, at ``time_ps``."""


@dataclass
class Counters:
    """Counters of a connection."""

    segments: int = 0  # segments sent with payload, with retransmissions
    acknowledgements: int = 0  # segments sent without payload
    repeated: int = 0  # retransmissions
    timeouts: int = 0
    duplicates: int = 0  # received segments that had been received before


def _distance(sequence: int, base: int) -> int:
    """Return the byte number of a 32-bit sequence number: the one nearest to ``base``."""
    half = _SEQUENCES // 2
    return base + (sequence - base + half) % _SEQUENCES - half


class Connection:
    """One end of an established connection: both streams begin at byte 0.

    - ``own``, ``peer``: addresses of the ends.
    - ``transmit``: called with each frame to send.
    - ``tos``: type of service of segments with payload.
    - ``names``: own node and peer, for messages.
    - ``cut``: returns whether the own link is cut, which is then named as the cause of a failure.

    Bytes arrive in order, exactly once; ``read`` delivers them. The scheduler's call raises CheckFailed if the
    peer has not answered after all retries.
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
        self._next = 0  # next byte to send
        self._recover = 0  # end of the bytes that were sent when a loss was detected
        self._same = 0  # consecutive acknowledgements of nothing new
        self._expected = 0  # next byte to receive
        self._early: dict[int, bytes] = {}
        self._unacknowledged = 0  # segments received since the last acknowledgement
        self._stream = bytearray()
        self._wanted: tuple[int, Callable[[bytes], None]] | None = None
        self._drained: Callable[[], None] | None = None
        self._alarm: int | None = None  # time of the next timeout check
        self._tries = 0  # consecutive timeouts without an answer of the peer
        self._heard = 0  # time of the peer's last answer, or when waiting for it began

    # ---- sending ----

    def send(self, message: bytes) -> None:
        """Send a message: segments begin at its start, and keep their bounds when they are sent again."""
        mss = self._config.mss
        parts = [message[at : at + mss] for at in range(0, len(message), mss)]
        self._unsent += [(part, ACK if part is not parts[-1] else ACK | PSH) for part in parts]
        self._pump()

    def drain(self, then: Callable[[], None]) -> None:
        """Call ``then`` when everything sent is acknowledged, perhaps at once; one caller at a time."""
        assert self._drained is None
        self._drained = then
        self._tell_drained()

    def _tell_drained(self) -> None:
        if self.idle and self._drained is not None:
            then, self._drained = self._drained, None
            then()

    @property
    def idle(self) -> bool:
        """Whether everything sent is acknowledged."""
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
        """Call ``then`` with the next ``count`` bytes once they arrive, perhaps at once; one read at a time."""
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
        """Receive a segment from the peer."""
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
                self._repeat()  # fill the next gap
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
        """Time in ps that the peer may be silent; None while no answer is expected."""
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
            return  # replaced by an earlier alarm
        self._alarm = None
        if self._patience is not None and self._heard + self._patience <= self._scheduler.now:
            self._insist()
        self._arm()

    def _insist(self) -> None:
        """Handle a silent peer: send the oldest segment again, or a probe for an acknowledgement."""
        self._tries += 1
        if self._tries > self._config.retries:
            raise self._lost()
        self._heard = self._scheduler.now
        if self._flying:
            self.counters.timeouts += 1
            self._recover, self._same = self._next, 0
            self._repeat()
        else:
            self._send(self._next - 1, b"", ACK)  # a number that the peer has already received, so it answers

    def _lost(self) -> CheckFailed:
        own, peer = self._names
        if self._cut():
            return CheckFailed(f"{own} has stopped answering: its link is cut")
        config, what, seconds = self._config, "answer", self._config.probe
        if self._flying:
            what, seconds = f"acknowledgement of byte {self._flying[0][0]}", config.timeout
        tries = f"after {config.retries} retries, {seconds:g} s apart"
        return CheckFailed(f"{peer} has stopped answering: {own} has no {what} {tries}")
