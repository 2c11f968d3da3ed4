"""Transport of INCEPTIONN's hosts: a subset of TCP, reliable and in order.

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
    """Simulated time, in ps, and callbacks."""

    @property
    def now(self) -> int:
        """Time of the current callback."""

    def at(self, time_ps: int, callback: Callable[[], None], /) -> None:
        """Call ``callback`` once, at ``time_ps``."""


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

    - ``local``, ``peer``: addresses of this end and the other one.
    - ``transmit``: called with each frame to send.
    - ``tos``: type of service of segments with payload.
    - ``names``: names of this end and the peer, for messages.
    - ``is_cut``: returns whether the link of this end is cut, which a failure then names as its cause.

    Bytes arrive in order, exactly once; ``read`` delivers them. The scheduler's call raises CheckFailed if the
    peer has not answered after all retries.

    Three equal acknowledgements, or a timeout, show that the oldest segment in flight is lost, and it is sent
    again. Until everything sent by then is acknowledged, each further acknowledgement sends the segment of the
    next gap again (NewReno).
    """

    def __init__(
        self,
        local: Endpoint,
        peer: Endpoint,
        config: TransportConfig,
        *,
        scheduler: Scheduler,
        transmit: Callable[[bytes], None],
        tos: int = 0,
        names: tuple[str, str] = ("this end", "the other end"),
        is_cut: Callable[[], bool] = lambda: False,
    ):
        self._local, self._peer, self._config, self._tos, self._names = local, peer, config, tos, names
        self._scheduler, self._transmit, self._is_cut = scheduler, transmit, is_cut
        self.counters = Counters()
        self._unsent: deque[tuple[bytes, int]] = deque()  # payload and flags
        self._in_flight: deque[tuple[int, bytes, int]] = deque()  # first byte, payload and flags
        self._next = 0  # next byte to send
        self._recover = 0  # end of the bytes that were sent when a loss was detected
        self._duplicate_acks = 0  # consecutive acknowledgements of the same byte
        self._expected = 0  # next byte to receive
        self._out_of_order: dict[int, bytes] = {}  # payloads after a gap, by first byte
        self._unacknowledged = 0  # segments received since the last acknowledgement
        self._stream = bytearray()
        self._pending_read: tuple[int, Callable[[bytes], None]] | None = None
        self._on_drained: Callable[[], None] | None = None
        self._alarm: int | None = None  # time in ps of the next timeout check
        self._retries = 0  # consecutive timeouts without an answer from the peer
        self._last_answer = 0  # time in ps of the peer's last answer, or begin of the wait for it

    # ---- sending ----

    def send(self, message: bytes) -> None:
        """Send a message: segments begin at its start, and keep their bounds when they are sent again."""
        mss = self._config.mss
        parts = [message[start : start + mss] for start in range(0, len(message), mss)]
        self._unsent += [(part, ACK if part is not parts[-1] else ACK | PSH) for part in parts]
        self._fill_window()

    def drain(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when all bytes are acknowledged, possibly at once; one drain may be pending."""
        assert self._on_drained is None
        self._on_drained = callback
        self._report_drained()

    def _report_drained(self) -> None:
        if self.idle and self._on_drained is not None:
            callback, self._on_drained = self._on_drained, None
            callback()

    @property
    def idle(self) -> bool:
        """Whether all bytes are sent and acknowledged."""
        return not self._in_flight and not self._unsent

    def _fill_window(self) -> None:
        while self._unsent and len(self._in_flight) < self._config.window:
            if not self._in_flight:
                self._last_answer = self._scheduler.now
            payload, flags = self._unsent.popleft()
            self._in_flight.append((self._next, payload, flags))
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
            self._local,
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

    def _retransmit(self) -> None:
        """Send the oldest segment in flight again."""
        self.counters.repeated += 1
        self._send(*self._in_flight[0])

    # ---- receiving ----

    def read(self, count: int, callback: Callable[[bytes], None]) -> None:
        """Call ``callback`` with the next ``count`` bytes, possibly at once; one read may be pending."""
        assert self._pending_read is None
        self._pending_read = (count, callback)
        self._last_answer = self._scheduler.now if self.idle else self._last_answer
        self._deliver()
        self._arm()

    def _deliver(self) -> None:
        if self._pending_read is None or len(self._stream) < self._pending_read[0]:
            return
        (count, callback), self._pending_read = self._pending_read, None
        data = bytes(self._stream[:count])
        del self._stream[:count]
        callback(data)

    def receive(self, segment: Segment) -> None:
        """Receive a segment from the peer."""
        self._retries = 0
        if self.idle:
            self._last_answer = self._scheduler.now
        self._take_acknowledgement(segment)
        first = _distance(segment.sequence, self._expected)
        if segment.payload:
            self._take_payload(first, segment)
        elif first < self._expected:  # a probe
            self._acknowledge()
        self._fill_window()
        self._deliver()
        self._report_drained()

    def _take_acknowledgement(self, segment: Segment) -> None:
        oldest = self._in_flight[0][0] if self._in_flight else self._next
        acknowledged = _distance(segment.acknowledgement, oldest)
        if oldest < acknowledged <= self._next:
            while self._in_flight and self._in_flight[0][0] < acknowledged:
                self._in_flight.popleft()
            self._duplicate_acks, self._last_answer = 0, self._scheduler.now
            if self._in_flight and acknowledged < self._recover:
                self._retransmit()  # fill the next gap
        elif acknowledged == oldest and self._in_flight and not segment.payload:
            self._duplicate_acks += 1
            if self._duplicate_acks == _DUPLICATES and oldest >= self._recover:
                self._recover = self._next
                self._retransmit()

    def _take_payload(self, first: int, segment: Segment) -> None:
        config = self._config
        if first < self._expected or first in self._out_of_order:
            self.counters.duplicates += 1
            self._acknowledge()
            return
        if first >= self._expected + config.window * config.mss:
            return
        self._out_of_order[first] = segment.payload
        in_order = first == self._expected and len(self._out_of_order) == 1
        while (payload := self._out_of_order.pop(self._expected, None)) is not None:
            self._stream += payload
            self._expected += len(payload)
            self._unacknowledged += 1
        due = self._unacknowledged >= min(config.ack_every, config.window)
        if due or segment.flags & PSH or not in_order:
            self._acknowledge()

    # ---- time ----

    @property
    def _timeout_ps(self) -> int | None:
        """Time in ps until a retry; None while no answer of the peer is expected."""
        if self._in_flight:
            return round(self._config.timeout * _PS)
        return round(self._config.probe * _PS) if self._pending_read else None

    def _arm(self) -> None:
        if self._timeout_ps is None:
            return
        due = max(self._last_answer + self._timeout_ps, self._scheduler.now + 1)
        if self._alarm is None or due < self._alarm:
            self._alarm = due
            self._scheduler.at(due, partial(self._check_timeout, due))

    def _check_timeout(self, due: int) -> None:
        if due != self._alarm:
            return  # replaced by an earlier alarm
        self._alarm = None
        if self._timeout_ps is not None and self._last_answer + self._timeout_ps <= self._scheduler.now:
            self._retry()
        self._arm()

    def _retry(self) -> None:
        """Handle a timeout: send the oldest segment again, or without one a probe for an acknowledgement."""
        self._retries += 1
        if self._retries > self._config.retries:
            raise self._failure()
        self._last_answer = self._scheduler.now
        if self._in_flight:
            self.counters.timeouts += 1
            self._recover, self._duplicate_acks = self._next, 0
            self._retransmit()
        else:
            self._send(self._next - 1, b"", ACK)  # a number that the peer has already received, so it answers

    def _failure(self) -> CheckFailed:
        local_name, peer_name = self._names
        if self._is_cut():
            return CheckFailed(f"{local_name} has stopped answering: its link is cut")
        config, awaited, seconds = self._config, "answer", self._config.probe
        if self._in_flight:
            awaited, seconds = f"acknowledgement of byte {self._in_flight[0][0]}", config.timeout
        attempts = f"after {config.retries} retries, {seconds:g} s apart"
        return CheckFailed(f"{peer_name} has stopped answering: {local_name} has no {awaited} {attempts}")
