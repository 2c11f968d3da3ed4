"""Both ends of a reliable link, event by event: what is sent again, and what is taken (docs/systems/link.md).

Time is the caller's: it moves frames, and says when ``timeout`` or ``ack_delay`` has passed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fanin.wire.link import LinkKind

SEQUENCES = 1 << 32


def distance(behind: int, ahead: int) -> int:
    """How far ``ahead`` is ahead, modulo 2^32: negative when it is behind."""
    return (ahead - behind + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2


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
    frames: deque[bytes] = field(default_factory=deque)

    @property
    def failed(self) -> bool:
        """TIMEOUT: as many timeouts in a row as ``retries``, without any answer."""
        return self.timeouts >= self.retries

    def offer(self, payload: bytes) -> bool:
        """Whether there was place to keep ``payload``, and it is on its way."""
        if self.failed or len(self.frames) == self.replay_frames:
            return False
        self.frames.append(payload)
        return True

    def send(self) -> tuple[int, bytes] | None:
        """The DATA frame that goes out now, as sequence number and payload, if any may."""
        place = distance(self.oldest, self.next)
        if self.failed or place == len(self.frames) or distance(self.next, self.limit) <= 0:
            return None
        self.next = (self.next + 1) % SEQUENCES
        if distance(self.fresh, self.next) > 0:
            self.fresh = self.next
        return (self.oldest + place) % SEQUENCES, self.frames[place]

    def answer(self, answer: Answer) -> None:
        """An ACK or NAK has come. Any proves that the peer lives, and a larger count grants room.

        One that is older than another, or acknowledges what was never sent, does no more. A peer that keeps the
        protocol never sends the latter, so its count needs no check: a forged one could as well name a frame
        that was sent.
        """
        self.timeouts = 0 if not self.failed else self.timeouts
        if distance(self.limit, answer.count) > 0:
            self.limit = answer.count
        if not 0 <= distance(self.oldest, answer.sequence) <= distance(self.oldest, self.fresh):
            return
        for _ in range(distance(self.oldest, answer.sequence)):
            self.frames.popleft()
        self.oldest = answer.sequence
        if self.published:
            return
        if answer.kind is LinkKind.NAK or distance(self.next, answer.sequence) > 0:
            self.next = answer.sequence

    def timeout(self) -> bool:
        """``timeout`` has passed without progress, frames kept or ``watch``; whether that asks for a PROBE."""
        if not self.frames and not self.watch:
            return False
        self.timeouts += 1
        nothing_sent = self.next == self.oldest
        if not self.published:
            self.next = self.oldest
        return (nothing_sent or self.published) and not self.failed


@dataclass
class Receiver:
    """Takes frames in order; ``frames`` are those that are not consumed yet, ``due`` what is to be answered."""

    buffer_frames: int
    ack_frames: int = 1
    expected: int = 0
    events: int = 0  # taken or consumed since the last answer
    gap: bool = False  # a NAK was sent since the last frame taken
    due: LinkKind | None = LinkKind.ACK  # the credit to begin with
    published: bool = False  # a gap is a loss
    lost: bool = False  # and there was one: the job ends
    frames: deque[bytes] = field(default_factory=deque)

    def receive(self, sequence: int, payload: bytes) -> bool:
        """A DATA frame has come, whole and right; whether it is taken."""
        ahead = distance(self.expected, sequence)
        if self.published and (ahead > 0 or (ahead == 0 and len(self.frames) == self.buffer_frames)):
            self.lost = True
        elif ahead > 0:
            self.due = self.due if self.gap else LinkKind.NAK
            self.gap = True
        elif ahead < 0:
            self._acknowledge()
        elif len(self.frames) < self.buffer_frames:
            self.frames.append(payload)
            self.expected = (self.expected + 1) % SEQUENCES
            if self.due is LinkKind.NAK:
                self.due = LinkKind.ACK
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
        if self.published and distance(self.expected, sequence) > 0:
            self.lost = True
        self._acknowledge()

    def delay(self) -> None:
        """``ack_delay`` has passed since the first frame that no answer covers."""
        if self.events:
            self._acknowledge()

    def answer(self) -> Answer | None:
        """The answer that goes out now, if one is due."""
        if self.due is None:
            return None
        room = self.buffer_frames - len(self.frames)
        answer = Answer(self.due, self.expected, (self.expected + room) % SEQUENCES)
        self.due, self.events = None, 0
        return answer

    def _event(self) -> None:
        self.events += 1
        if self.events >= self.ack_frames:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self.due = self.due or LinkKind.ACK
