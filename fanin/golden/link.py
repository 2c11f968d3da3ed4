"""Both ends of a reliable link, event by event: retransmissions and acceptance (docs/systems/link.md).

The model has no time: the caller moves frames, and reports when ``timeout`` or ``ack_delay`` has passed. The
RTL does only what these two classes permit, and ``fanin link check`` explores all that they permit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fanin.wire.link import LinkKind

SEQUENCES = 1 << 32


def distance(behind: int, ahead: int, sequences: int = SEQUENCES) -> int:
    """Return the steps from ``behind`` to ``ahead``, modulo ``sequences``; negative if ``ahead`` is earlier."""
    return (ahead - behind + sequences // 2) % sequences - sequences // 2


@dataclass(frozen=True)
class Answer:
    """An ACK or NAK: the next sequence number expected, and the first one without room."""

    kind: LinkKind
    sequence: int
    count: int


@dataclass
class Sender:
    """Sending end. It keeps unacknowledged payloads in ``frames``, oldest first.

    - ``next``: sequence number to send next.
    - ``fresh``: first sequence number that was never sent.
    - ``limit``: first sequence number without credit. Initially there is no credit: the next node grants it
      when it starts, and in answer to a PROBE.
    """

    replay_frames: int
    retries: int
    oldest: int = 0
    next: int = 0
    fresh: int = 0
    limit: int = 0
    timeouts: int = 0
    watch: bool = False  # probe the next node even while no frame is kept
    published: bool = False  # mode without retransmissions
    sequences: int = SEQUENCES  # sequence numbers are modulo this
    asking: bool = True  # a PROBE is due; the first one requests the initial credit
    failed: bool = False  # the link has failed with TIMEOUT
    frames: deque[bytes] = field(default_factory=deque)

    def offer(self, payload: bytes) -> bool:
        """Accept ``payload`` for transmission; return False if there is no room."""
        if self.failed or len(self.frames) == self.replay_frames:
            return False
        self.frames.append(payload)
        return True

    def send(self) -> tuple[int, bytes] | None:
        """Return the next DATA frame to send as sequence number and payload; None if none may be sent."""
        place = self._distance(self.oldest, self.next)
        if self.failed or place == len(self.frames) or self._distance(self.next, self.limit) <= 0:
            return None
        sequence, self.next = self.next, (self.next + 1) % self.sequences
        if self._distance(self.fresh, self.next) > 0:
            self.fresh = self.next
        return sequence, self.frames[place]

    def probe(self) -> int | None:
        """Return the PROBE to send, if one is due: the first sequence number that was never sent."""
        if self.failed or not self.asking:
            return None
        self.asking = False
        return self.fresh

    def answer(self, answer: Answer) -> None:
        """Handle an ACK or NAK. Any answer proves that the peer is alive, and a larger count grants room.

        An answer that is older than another, or acknowledges a number that was never sent, has no further
        effect. A peer that keeps the protocol never sends the latter. Its count is not checked: a forged answer
        could as well name a frame that was sent.
        """
        if self.failed:
            return
        self.timeouts = 0
        if self._distance(self.limit, answer.count) > 0:
            self.limit = answer.count
        acknowledged = self._distance(self.oldest, answer.sequence)
        if not 0 <= acknowledged <= self._distance(self.oldest, self.fresh):
            return
        for _ in range(acknowledged):
            self.frames.popleft()
        self.oldest = answer.sequence
        if self.published:
            return
        if answer.kind is LinkKind.NAK or self._distance(self.next, answer.sequence) > 0:
            self.next = answer.sequence

    def timeout(self, asks: bool = False) -> None:
        """Handle ``timeout`` without progress, while frames are kept or with ``watch``.

        With ``asks`` a PROBE becomes due in any case: hardware decides this a moment before it sends a frame.
        """
        if self.failed or not (self.frames or self.watch):
            return
        self.timeouts += 1
        self.asking = self.asking or asks or self.published or self.next == self.oldest
        if not self.published:
            self.next = self.oldest

    def give_up(self) -> bool:
        """Return whether the job has failed after ``retries`` consecutive timeouts; then nothing more is
        sent.
        """
        self.failed = self.failed or self.timeouts >= self.retries
        return self.failed

    def _distance(self, behind: int, ahead: int) -> int:
        return distance(behind, ahead, self.sequences)


@dataclass
class Receiver:
    """Receiving end. It accepts frames in order; ``frames`` are those that are not consumed yet.

    ``due``: kinds of answer that may be sent. If both are due, either may be sent, since hardware may not know
    of the last event yet. A NAK says all that an ACK does; after an ACK the NAK is still due.
    """

    buffer_frames: int
    ack_frames: int = 1
    expected: int = 0
    events: int = 0  # frames accepted or consumed since the last answer, while no ACK is due
    gap: bool = False  # a NAK was due since the last accepted frame
    due: frozenset[LinkKind] = frozenset({LinkKind.ACK})  # the first ACK grants the initial credit
    published: bool = False  # mode in which a gap is a loss
    lost: bool = False  # a frame was lost: the job ends
    sequences: int = SEQUENCES  # sequence numbers are modulo this
    frames: deque[bytes] = field(default_factory=deque)

    def receive(self, sequence: int, payload: bytes) -> bool:
        """Handle an intact DATA frame; return whether it is accepted."""
        ahead = distance(self.expected, sequence, self.sequences)
        if self.published and (ahead > 0 or (ahead == 0 and len(self.frames) == self.buffer_frames)):
            self.lost = True
        elif ahead > 0:
            self.due |= set() if self.gap else {LinkKind.NAK}
            self.gap = True
        elif ahead < 0:
            self._acknowledge()
        elif len(self.frames) < self.buffer_frames:
            self.frames.append(payload)
            self.expected = (self.expected + 1) % self.sequences
            if LinkKind.NAK in self.due:
                self._acknowledge()
            self.gap = False
            self._event()
            return True
        return False

    def consume(self) -> bytes:
        """Remove and return the oldest frame, which makes room. Raises IndexError if there is none."""
        payload = self.frames.popleft()
        self._event()
        return payload

    def probe(self, sequence: int = 0) -> None:
        """Handle a PROBE; in published mode ``sequence`` is the number of the first frame never sent."""
        if self.published and distance(self.expected, sequence, self.sequences) > 0:
            self.lost = True
        self._acknowledge()

    def delay(self) -> None:
        """Handle ``ack_delay`` since the first frame that no answer covers."""
        if self.events:
            self._acknowledge()

    def answer(self, kind: LinkKind | None = None) -> Answer | None:
        """Return the answer to send, if one is due: of the given ``kind``, or of the appropriate one."""
        if kind is None:
            kind = LinkKind.NAK if self.gap and LinkKind.NAK in self.due else LinkKind.ACK
        if kind not in self.due:
            return None
        room = self.buffer_frames - len(self.frames)
        overdue = self.due - {kind} if self.gap and kind is LinkKind.ACK else frozenset()
        self.due, self.events = overdue, 0
        return Answer(kind, self.expected, (self.expected + room) % self.sequences)

    def _event(self) -> None:
        self.events += LinkKind.ACK not in self.due
        if self.events >= self.ack_frames:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self.due |= {LinkKind.ACK}
