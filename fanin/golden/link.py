"""Both ends of a reliable link, event by event: what is sent again, and what is taken (docs/systems/link.md).

Time is the caller's: it moves frames, and says when ``timeout`` or ``ack_delay`` has passed. The RTL does
nothing that these two do not permit, and ``fanin link check`` visits all that they permit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fanin.wire.link import LinkKind

SEQUENCES = 1 << 32


def distance(behind: int, ahead: int, sequences: int = SEQUENCES) -> int:
    """How far ``ahead`` is ahead, modulo ``sequences``: negative when it is behind."""
    return (ahead - behind + sequences // 2) % sequences - sequences // 2


@dataclass(frozen=True)
class Answer:
    """An ACK or NAK: the next sequence number expected, and the first one for which there is no room."""

    kind: LinkKind
    sequence: int
    count: int


@dataclass
class Sender:
    """Keeps what is not acknowledged, in ``frames``, the oldest first; ``next`` is what goes out next.

    ``fresh`` is the first that has never gone out.
    It begins without credit: the node behind grants it, on its own start and when asked by a PROBE.
    """

    replay_frames: int
    retries: int
    oldest: int = 0
    next: int = 0
    fresh: int = 0
    limit: int = 0
    timeouts: int = 0
    watch: bool = False  # make sure that the node behind lives, also while no frame is kept
    published: bool = False  # nothing is sent again
    sequences: int = SEQUENCES  # sequence numbers are modulo this
    asking: bool = True  # a PROBE is due: at the start for the first room
    failed: bool = False  # TIMEOUT
    frames: deque[bytes] = field(default_factory=deque)

    def offer(self, payload: bytes) -> bool:
        """Whether there was place to keep ``payload``, and it is on its way."""
        if self.failed or len(self.frames) == self.replay_frames:
            return False
        self.frames.append(payload)
        return True

    def send(self) -> tuple[int, bytes] | None:
        """The DATA frame that goes out now, as sequence number and payload, if any may."""
        place = self._distance(self.oldest, self.next)
        if self.failed or place == len(self.frames) or self._distance(self.next, self.limit) <= 0:
            return None
        sequence, self.next = self.next, (self.next + 1) % self.sequences
        if self._distance(self.fresh, self.next) > 0:
            self.fresh = self.next
        return sequence, self.frames[place]

    def probe(self) -> int | None:
        """The PROBE that goes out now, if one is due: the first sequence number that was never sent."""
        if self.failed or not self.asking:
            return None
        self.asking = False
        return self.fresh

    def answer(self, answer: Answer) -> None:
        """An ACK or NAK has come. Any proves that the peer lives, and a larger count grants room.

        One that is older than another, or acknowledges what was never sent, does no more. A peer that keeps the
        protocol never sends the latter, so its count needs no check: a forged one could as well name a frame
        that was sent.
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
        """``timeout`` has passed without progress, while frames are kept or with ``watch``.

        With ``asks`` a PROBE is due in any case: hardware decides so a moment before it sends a frame.
        """
        if self.failed or not (self.frames or self.watch):
            return
        self.timeouts += 1
        self.asking = self.asking or asks or self.published or self.next == self.oldest
        if not self.published:
            self.next = self.oldest

    def give_up(self) -> bool:
        """Whether ``retries`` timeouts in a row had no answer: the job has failed, and nothing more is sent."""
        self.failed = self.failed or self.timeouts >= self.retries
        return self.failed

    def _distance(self, behind: int, ahead: int) -> int:
        return distance(behind, ahead, self.sequences)


@dataclass
class Receiver:
    """Takes frames in order; ``frames`` are those that are not consumed yet.

    ``due`` are the kinds of answer that may go out. Where both are, hardware may not yet know of the event
    before, so either goes: a NAK says all that an ACK does, and after an ACK the NAK is still due.
    """

    buffer_frames: int
    ack_frames: int = 1
    expected: int = 0
    events: int = 0  # taken or consumed since the last answer, while no ACK is due
    gap: bool = False  # a NAK was due since the last frame taken
    due: frozenset[LinkKind] = frozenset({LinkKind.ACK})  # the credit to begin with
    published: bool = False  # a gap is a loss
    lost: bool = False  # and there was one: the job ends
    sequences: int = SEQUENCES  # sequence numbers are modulo this
    frames: deque[bytes] = field(default_factory=deque)

    def receive(self, sequence: int, payload: bytes) -> bool:
        """A DATA frame has come, whole and right; whether it is taken."""
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
        """The oldest frame, which makes room; IndexError when there is none."""
        payload = self.frames.popleft()
        self._event()
        return payload

    def probe(self, sequence: int = 0) -> None:
        """A PROBE has come; in published mode ``sequence`` is that of the first frame that was never sent."""
        if self.published and distance(self.expected, sequence, self.sequences) > 0:
            self.lost = True
        self._acknowledge()

    def delay(self) -> None:
        """``ack_delay`` has passed since the first frame that no answer covers."""
        if self.events:
            self._acknowledge()

    def answer(self, kind: LinkKind | None = None) -> Answer | None:
        """The answer that goes out now, if one is due: of a ``kind``, or of the right one."""
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
