"""Model of both ends of a reliable link, event by event: retransmissions and acceptance (docs/systems/link.md).

The model has no time: the caller moves frames, and reports when ``timeout`` or ``ack_delay`` has passed, or
when a frame's own timer has. The RTL does only what these two classes permit, and ``fanin link check`` explores
all that they permit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fanin.wire.link import ARRIVED_BITS, LinkKind

SEQUENCES = 1 << 32


def distance(start: int, end: int, sequences: int = SEQUENCES) -> int:
    """Return the steps from ``start`` to ``end``, modulo ``sequences``; negative if ``end`` is earlier."""
    return (end - start + sequences // 2) % sequences - sequences // 2


@dataclass(frozen=True)
class Answer:
    """An ACK or NAK.

    - ``sequence``: next sequence number expected.
    - ``count``: first sequence number without room.
    - ``arrived``: frames after the expected one that the receiver holds; bit i is frame ``sequence`` + 1 + i.
    """

    kind: LinkKind
    sequence: int
    count: int
    arrived: int = 0


@dataclass
class Sender:
    """Sending end. It keeps unacknowledged payloads in ``frames``, oldest first.

    - ``fresh``: first sequence number that was never sent.
    - ``limit``: first sequence number without credit. Initially there is no credit: the next node grants it
      when it starts, and in answer to a PROBE.
    - ``arrived``: kept frames that the receiver holds; bit i is frame ``oldest`` + 1 + i.
    """

    replay_frames: int
    retries: int
    oldest: int = 0
    fresh: int = 0
    limit: int = 0
    arrived: int = 0
    timeouts: int = 0
    watch: bool = False  # probe the next node even while no frame is kept
    published: bool = False  # mode without retransmissions
    sequences: int = SEQUENCES  # sequence numbers are modulo this
    probe_due: bool = True  # a PROBE is to be sent; the first one requests the initial credit
    failed: bool = False  # the link has failed with TIMEOUT
    frames: deque[bytes] = field(default_factory=deque)

    def offer(self, payload: bytes) -> bool:
        """Accept ``payload`` for transmission; return False if there is no room."""
        if self.failed or len(self.frames) == self.replay_frames:
            return False
        self.frames.append(payload)
        return True

    def send(self) -> tuple[int, bytes] | None:
        """Return the next new DATA frame to send as sequence number and payload; None if none may be sent."""
        place = self._distance(self.oldest, self.fresh)
        if self.failed or place == len(self.frames) or self._distance(self.fresh, self.limit) <= 0:
            return None
        sequence, self.fresh = self.fresh, (self.fresh + 1) % self.sequences
        return sequence, self.frames[place]

    def missing(self) -> list[int]:
        """Return the frames that may be sent again: sent, not acknowledged, and not reported as arrived.

        Reports reach as far as an answer's bitmap; frames beyond it must not be sent again yet.
        """
        if self.failed or self.published:
            return []
        sent = min(self._distance(self.oldest, self.fresh), ARRIVED_BITS + 1)
        places = [k for k in range(sent) if not k or not self.arrived >> (k - 1) & 1]
        return [(self.oldest + k) % self.sequences for k in places]

    def send_again(self, sequence: int) -> tuple[int, bytes] | None:
        """Return a frame of :meth:`missing` whose timer has ended; None for any other frame."""
        if sequence not in self.missing():
            return None
        return sequence, self.frames[self._distance(self.oldest, sequence)]

    def probe(self) -> int | None:
        """Return the PROBE to send, if one is due: the first sequence number that was never sent."""
        if self.failed or not self.probe_due:
            return None
        self.probe_due = False
        return self.fresh

    def answer(self, answer: Answer) -> None:
        """Handle an ACK or NAK. Any answer proves that the peer is alive, and a larger count grants room.

        An answer has no further effect if it is older than another one. The same holds if it acknowledges a
        number that was never sent; a peer that keeps the protocol sends no such answer.

        A receiver never drops a frame that it holds. The bitmaps of answers with the same sequence number are
        therefore combined. An answer with a later sequence number replaces the bitmap: it reports every frame
        that earlier answers reported.
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
        self.arrived = answer.arrived if acknowledged else self.arrived | answer.arrived

    def timeout(self) -> None:
        """Handle ``timeout`` without progress, while frames are kept or with ``watch``: a PROBE is due."""
        if self.failed or not (self.frames or self.watch):
            return
        self.timeouts += 1
        self.probe_due = True

    def give_up(self) -> bool:
        """Return whether the job has failed after ``retries`` consecutive timeouts; then nothing more is
        sent.
        """
        self.failed = self.failed or self.timeouts >= self.retries
        return self.failed

    def _distance(self, start: int, end: int) -> int:
        return distance(start, end, self.sequences)


@dataclass
class Receiver:
    """Receiving end. It accepts frames in any order within its buffer, and delivers them in order.

    - ``frames``: frames in order that are not consumed yet.
    - ``held``: other frames that were accepted, by sequence number, from ``expected`` on.
    - ``due``: kinds of answer that may be sent. If both are due, either may be sent, since hardware may not
      know of the last event yet. Either reports everything.
    """

    buffer_frames: int
    ack_frames: int = 1
    expected: int = 0
    events: int = 0  # frames accepted or consumed since the last answer, while no ACK is due
    due: frozenset[LinkKind] = frozenset({LinkKind.ACK})  # the first ACK grants the initial credit
    published: bool = False  # mode in which a gap is a loss
    lost: bool = False  # a frame was lost: the job ends
    sequences: int = SEQUENCES  # sequence numbers are modulo this
    frames: deque[bytes] = field(default_factory=deque)
    held: dict[int, bytes] = field(default_factory=dict)

    def receive(self, sequence: int, payload: bytes) -> bool:
        """Handle an intact DATA frame; return whether it is accepted. :meth:`advance` puts it in order.

        A frame is accepted if it is not a duplicate and there is room up to its place. A frame that opens a new
        gap makes a NAK due. A duplicate makes an ACK due, and so does each frame while frames are missing.
        """
        ahead = distance(self.expected, sequence, self.sequences)
        room = self.buffer_frames - len(self.frames)
        if self.published and (ahead > 0 or (ahead == 0 and not room)):
            self.lost = True
        elif ahead < 0 or sequence in self.held:
            self._acknowledge()
        elif ahead < room:
            newest = max((distance(self.expected, s, self.sequences) for s in self.held), default=-1)
            if ahead > newest + 1:
                self.due |= {LinkKind.NAK}
            if ahead or self.held:
                self._acknowledge()
            self.held[sequence] = payload
            if self.published:
                self.advance()
            self._event()
            return True
        return False

    def advance(self) -> bool:
        """Move the expected frame from ``held`` to ``frames``; return False if it has not arrived.

        Hardware moves a frame a cycle, and may answer in between.
        """
        if self.expected not in self.held:
            return False
        self.frames.append(self.held.pop(self.expected))
        self.expected = (self.expected + 1) % self.sequences
        return True

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

    @property
    def arrived(self) -> int:
        """Bitmap of an answer: the frames held after the expected one."""
        places = (distance(self.expected, sequence, self.sequences) - 1 for sequence in self.held)
        return sum(1 << place for place in places if 0 <= place < ARRIVED_BITS)

    def answer(self, kind: LinkKind | None = None) -> Answer | None:
        """Return the answer to send, if one is due: of the given ``kind``, or of the appropriate one."""
        if kind is None:
            kind = LinkKind.NAK if LinkKind.NAK in self.due else LinkKind.ACK
        if kind not in self.due:
            return None
        self.due, self.events = frozenset(), 0
        room = self.buffer_frames - len(self.frames)
        return Answer(kind, self.expected, (self.expected + room) % self.sequences, self.arrived)

    def _event(self) -> None:
        self.events += LinkKind.ACK not in self.due
        if self.events >= self.ack_frames:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self.due |= {LinkKind.ACK}
