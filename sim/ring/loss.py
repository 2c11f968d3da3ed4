"""Event model of an all-reduce over links that lose frames (docs/systems/link.md, "What a loss costs")."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

from fanin.hdl.ring.registers import ACK_DELAY
from fanin.sim.ring.time import RingTime
from fanin.wire.link import ARRIVED_BITS, FLOOR_CYCLES, LINK_CONTROL_BYTES

#: Cycles of both nodes' logic, from a frame's arrival to the retransmission that its answer requests.
_LOGIC = 40
#: Frames that precede an answer and the retransmission that it requests, on busy links: one and a half at the
#: answer's MAC, half at the switch, one at the MAC of the retransmission.
_FRAMES_AHEAD = 3
_TIMER_MARGIN = ACK_DELAY + FLOOR_CYCLES  # cycles by which a frame's timer exceeds the round trip
_OWN_DATA = -1  # frame that waits for no other


@dataclass(frozen=True)
class RingLoss:
    """Time of one all-reduce over links that lose each frame with probability ``time.link.drop``.

    - Every node sends the same sequence of frames. In each step of a segment but the first, a frame waits for
      the frame of the same position that the previous node sent a step earlier. The first step's frames are the
      node's own data.
    - Frames are delivered in order. A frame that arrives after a gap makes the receiver report what is missing.
      The sender repeats a missing frame at most once per round trip, before new frames.
    - If no later frame arrives, a frame is repeated when its timer ends.
    - Answers may be lost, too.

    ``bench ring`` compares the model with RTL.
    """

    time: RingTime

    def ratio(self, seed: int) -> float:
        """Return the time with one seed's losses over the time without loss; with engines, of the last one."""
        loss = 1 - (1 - self.time.link.drop) ** 2  # a frame crosses two links
        runs = (_Run(self, loss, random.Random(f"{seed} {engine}")) for engine in range(self.time.engines))
        return 1 + (max(run.cycles() for run in runs) - self._lossless) / self.time.total

    @cached_property
    def _lossless(self) -> float:
        return _Run(self, 0.0, random.Random(0)).cycles()

    @cached_property
    def frames(self) -> list[tuple[float, int]]:
        """Frames of a node in order: cycles on the link, and the previous node's frame for which it waits."""
        frames: list[tuple[float, int]] = []
        for slice_frames in self.time.slice_frames():
            for step in range(self.time.steps):
                previous_step = len(frames) - len(slice_frames)
                for position, cycles in enumerate(slice_frames):
                    frames.append((cycles, previous_step + position if step else _OWN_DATA))
        return frames


@dataclass
class _Edge:
    """Sender of a node and receiver of the next node.

    - ``fresh``: first frame that was never sent.
    - ``link_free``: cycle in which the link can carry another frame.
    - ``sent``: cycle of each frame's last transmission.
    - ``overdue``: frames that the sender is to repeat.
    - ``arrived``: for each frame, whether it has arrived.
    - ``expected``: first frame that has not arrived.
    - ``last_delivery``: cycle in which the last delivered frame has left the receiver's buffer.
    - ``delivered``: frames that have left it.
    """

    frames: int
    fresh: int = 0
    link_free: float = 0.0
    sent: list[float] = field(init=False)
    overdue: list[int] = field(default_factory=list)
    arrived: list[bool] = field(init=False)
    expected: int = 0
    last_delivery: float = 0.0
    delivered: int = 0

    def __post_init__(self) -> None:
        self.sent, self.arrived = [0.0] * self.frames, [False] * self.frames

    def next_repeat(self) -> int | None:
        """Take the first overdue frame that has not arrived meanwhile; None if there is none."""
        while self.overdue:
            frame = self.overdue.pop(0)
            if not self.arrived[frame]:
                return frame
        return None


class _Run:
    """One run of the events. ``loss``: probability that a frame or an answer is lost on its way."""

    def __init__(self, model: RingLoss, loss: float, rng: random.Random):
        time = model.time
        self._loss, self._rng = loss, rng
        self._frames = model.frames
        self._in_flight = time.config.replay_frames
        self._frame_words = time.config.frame_words
        self._trip = time.hop - self._frame_words
        self._answer = time.transit(LINK_CONTROL_BYTES) + _LOGIC + _FRAMES_AHEAD * self._frames[0][0]
        self._edges = [_Edge(len(self._frames)) for _ in range(time.nodes)]
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._scheduled = 0  # events so far, to order those of one cycle
        self._now = 0.0

    def cycles(self) -> float:
        """Return the cycle in which the last frame is delivered."""
        for node in range(len(self._edges)):
            self._send(node)
        while self._events:
            self._now, _, event = heapq.heappop(self._events)
            event()
        return max(edge.last_delivery for edge in self._edges)

    def _at(self, cycle: float, event: Callable[..., None], *args: object) -> None:
        self._scheduled += 1
        call: Callable[[], None] = partial(event, *args)
        heapq.heappush(self._events, (cycle, self._scheduled, call))

    def _lost(self) -> bool:
        return self._rng.random() < self._loss

    def _send(self, node: int) -> None:
        """Send a frame if the link is free: an overdue one, or else a new one that is ready and has credit."""
        edge = self._edges[node]
        if edge.link_free > self._now:
            return
        frame = edge.next_repeat()
        if frame is None:
            frame = edge.fresh
            if frame == len(self._frames) or frame >= edge.expected + self._in_flight:
                return
            if self._frames[frame][1] >= self._edges[node - 1].delivered:
                return
            edge.fresh += 1
        edge.sent[frame], edge.link_free = self._now, self._now + self._frames[frame][0]
        self._at(edge.link_free, self._send, node)
        if not self._lost():
            self._at(self._now + self._trip, self._arrive, node, frame)
        timer_end = self._now + self._trip + self._answer + _TIMER_MARGIN
        self._at(timer_end, self._repeat, node, frame, self._now)

    def _arrive(self, node: int, frame: int) -> None:
        """Deliver the frames before the first missing one, at a word a cycle; report those missing.

        An answer reports no frame after ``frame``.
        """
        edge = self._edges[node]
        edge.arrived[frame] = True
        while edge.expected < edge.fresh and edge.arrived[edge.expected]:
            edge.expected += 1
            edge.last_delivery = max(self._now, edge.last_delivery) + self._frame_words
            self._at(edge.last_delivery, self._deliver, node)
        if not self._lost():
            end = min(frame, edge.expected + ARRIVED_BITS)
            missing = [number for number in range(edge.expected, end) if not edge.arrived[number]]
            self._at(self._now + self._answer, self._learn, node, missing)

    def _deliver(self, node: int) -> None:
        """Give one frame to the next node, which may then send its own frame of the next step."""
        self._edges[node].delivered += 1
        self._send((node + 1) % len(self._edges))

    def _learn(self, node: int, missing: list[int]) -> None:
        """Handle an answer that reports frames missing: repeat each, a round trip after it was last sent."""
        edge = self._edges[node]
        for frame in missing:
            due = max(self._now, edge.sent[frame] + self._trip + self._answer)
            self._at(due, self._repeat, node, frame, edge.sent[frame])
        self._send(node)

    def _repeat(self, node: int, frame: int, sent: float) -> None:
        """Make a frame overdue if it has neither arrived nor been sent again since ``sent``."""
        edge = self._edges[node]
        if not edge.arrived[frame] and edge.sent[frame] == sent and frame not in edge.overdue:
            edge.overdue.append(frame)
            self._send(node)
