"""What may be sent, and what must be sent again."""

from dataclasses import dataclass
from typing import Any

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.link_buffer import record_layout
from fanin.hdl.ring.link_job import (
    RETRY_BITS,
    SEQUENCE_BITS,
    TIMEOUT_BITS,
    RingJob,
    check_link,
)
from fanin.hdl.ring.link_receive import ANSWER
from fanin.hdl.ring.link_transmit import data_offer


def _before(one: Value, other: Value) -> Value:
    """Whether a sequence number comes before another, modulo 2^32: the sign of their difference."""
    return (one - other)[SEQUENCE_BITS - 1]


@dataclass(frozen=True)
class _Window:
    """Registers of the send window, frame numbers modulo 2^32: oldest ≤ following ≤ fresh ≤ written.

    Frames from ``oldest`` up to, not including, ``written`` are kept. ``following`` is sent next. Those from
    ``fresh`` on have never been sent. ``limit`` is the first for which the receiver has granted no room.
    """

    oldest: Signal
    following: Signal
    fresh: Signal
    written: Signal  # low bits alone
    limit: Signal

    def low(self, number: Signal) -> Value:
        """The bits that tell kept frames apart, and one more, which tells a full buffer from an empty one."""
        return number[: len(self.written)]


class SendWindow(wiring.Component):
    """Go-back-N: which frame is next, how long to wait for its acknowledgement, when to give up.

    Frames from the oldest that is not acknowledged to the newest are kept. The next one is offered while the
    next node has room for it. A NAK goes back to the frame that it names, a timeout to the oldest. Where the
    oldest is next already, since it waits for room, or no frame is kept, a timeout asks for a PROBE instead.
    So does a reset, to learn of the first room.

    Members
    -------
    ``job`` : In, RingJob
    ``running`` : In, 1
    ``watch`` : In, 1
        Time out also while no frame is kept, to make sure that the next node lives.
    ``taken`` : In, 1
        One more frame is kept.
    ``open`` : Out, 1
        There is place for another frame; low for a cycle after ``taken``.
    ``number`` : Out, range(replay_frames)
        The frame that is sent next: its place in the replay buffer.
    ``record`` : In, :func:`~fanin.hdl.ring.link_buffer.record_layout`
        What the replay buffer knows of that frame.
    ``offer`` : Out, :func:`~fanin.hdl.ring.link_transmit.data_offer`
    ``sent`` : In, 1
        The frame on offer is begun.
    ``again`` : Out, 1
        The frame on offer was sent before. Means nothing while none is on offer.
    ``answer`` : In, ``valid``, ``nak``, ``sequence`` and ``count``
        An ACK or NAK has come. Any answer proves that the next node lives: the retries start over. A larger
        ``count`` than before grants room. If ``sequence`` was never sent, or is older than another answer's,
        it frees no frame and goes back to none. A node that keeps the protocol never sends the first, and no
        new room with the second. So ``count`` needs no check of ``sequence``, and none would stop a forged one.
    ``probe`` : Out, 1
        A PROBE is due.
    ``probed`` : In, 1
        It was begun.
    ``failed`` : Out, 1
        ``job.retries`` timeouts in a row without an answer.
    ``idle`` : Out, 1
        No frame is kept.

    Parameters
    ----------
    ``frame_beats`` : int, 1 to 4096
    ``replay_frames`` : int, a power of two, 2 to 256
    ``first_sequence`` : int, 0 to 2^32 − 1

    Latency
    -------
    2 cycles from ``taken``, ``sent`` or ``answer`` to the next offer. ``job.timeout`` is over 2 cycles late;
    ``failed`` and ``probe`` follow 2 cycles after a timeout.

    Source
    ------
    docs/systems/ring.md, "The link".
    """

    def __init__(self, *, frame_beats: int, replay_frames: int = 32, first_sequence: int = 0):
        check_link(frame_beats=frame_beats, replay_frames=replay_frames, first_sequence=first_sequence)
        self.frame_beats = frame_beats
        self.replay_frames = replay_frames
        self.first_sequence = first_sequence
        super().__init__(
            {
                "job": In(RingJob),
                "running": In(1),
                "watch": In(1),
                "taken": In(1),
                "open": Out(1),
                "number": Out(range(replay_frames)),
                "record": In(record_layout(replay_frames, frame_beats)),
                "offer": Out(data_offer(replay_frames, frame_beats)),
                "sent": In(1),
                "again": Out(1),
                "answer": In(ANSWER),
                "probe": Out(1, init=1),
                "probed": In(1),
                "failed": Out(1),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Go-back-N on the registers of :class:`_Window`: going back moves ``following`` to an earlier frame.

        What is on offer is a register: it is withdrawn for the cycle after a change.
        """
        m = Module()
        oldest, following, fresh, limit = (
            Signal(SEQUENCE_BITS, name=name, init=self.first_sequence)
            for name in ("oldest", "following", "fresh", "limit")
        )
        low_bits = self.replay_frames.bit_length()
        written = Signal(low_bits, init=self.first_sequence % (1 << low_bits))
        window = _Window(oldest=oldest, following=following, fresh=fresh, written=written, limit=limit)
        timeout = Signal()
        progress = Signal()
        self._keep(m, window)
        names_next = self._answer(m, window, timeout, progress)
        with m.If(self.sent & ~self.again):
            m.d.sync += fresh.eq(fresh + 1)
        with m.If(names_next):
            m.d.sync += following.eq(self.answer.sequence)
        with m.Elif(timeout):
            m.d.sync += following.eq(oldest)
        with m.Elif(self.sent):
            m.d.sync += following.eq(following + 1)
        is_kept = window.low(following) != written
        changes = self.sent | self.answer.valid | timeout
        m.d.sync += [
            self.offer.record.eq(self.record),
            self.offer.valid.eq(is_kept & _before(following, limit) & ~changes),
            self.again.eq(window.low(following) != window.low(fresh)),
        ]
        m.d.comb += [
            self.number.eq(following),
            self.offer.sequence.eq(following),
            self.idle.eq(window.low(oldest) == written),
        ]
        self._time(m, timeout, progress, window.low(following) == window.low(oldest))
        return m

    def _keep(self, m: Module, window: _Window) -> None:
        """Count the frames that are kept; ``open`` waits until ``written`` counts the last one."""
        written = window.written
        full = (window.low(window.oldest) ^ written) == self.replay_frames
        m.d.sync += self.open.eq(self.running & ~full & ~self.taken)
        with m.If(self.taken):
            m.d.sync += written.eq(written + 1)

    def _answer(self, m: Module, window: _Window, timeout: Signal, progress: Signal) -> Signal:
        """Let go of acknowledged frames and take the new limit; whether the answer names the frame sent next.

        All in one cycle, since answers can come in a row. An answer in the cycle of a timeout wins:
        the oldest frame from then on is the one that it names.
        """
        answer = self.answer
        oldest, limit = window.oldest, window.limit
        accept = Signal()
        names_next = Signal()
        more_room = Signal()
        too_old, never_sent = _before(answer.sequence, oldest), _before(window.fresh, answer.sequence)
        m.d.comb += [
            accept.eq(answer.valid & ~too_old & ~never_sent),
            names_next.eq(accept & (answer.nak | timeout | _before(window.following, answer.sequence))),
            more_room.eq(answer.valid & _before(limit, answer.count)),
        ]
        with m.If(accept):
            m.d.sync += oldest.eq(answer.sequence)
        with m.If(more_room):
            m.d.sync += limit.eq(answer.count)
        m.d.sync += progress.eq((accept & _before(oldest, answer.sequence)) | more_room)
        return names_next

    def _time(self, m: Module, timeout: Signal, progress: Signal, at_oldest: Value) -> None:
        """Count down while an answer is due and nothing progresses; then ``timeout``, for a cycle.

        With ``at_oldest``, the next frame is the oldest: nothing is sent again, and a PROBE becomes due. Both
        counters end below 0, where their sign says so.
        """
        timer = Signal(signed(TIMEOUT_BITS + 1))
        retries = Signal(signed(RETRY_BITS + 1))  # that are left after the next timeout
        waiting = Signal()
        timed_out = Signal()
        nothing_sent = Signal()  # as the timeout found it
        m.d.sync += [
            waiting.eq(self.running & (self.watch | ~self.idle)),
            self.failed.eq(self.running & retries[-1]),
            timed_out.eq(timeout),
            nothing_sent.eq(at_oldest),
        ]
        m.d.comb += timeout.eq(waiting & timer[-1])
        m.d.sync += timer.eq(timer - 1)
        with m.If(~waiting | progress | timeout):
            m.d.sync += timer.eq(self.job.timeout)
        start_over = ~self.running | self.answer.valid
        with m.If(start_over | timeout):
            m.d.sync += retries.eq(Mux(start_over, self.job.retries, retries) - 1)
        with m.If(self.probed):
            m.d.sync += self.probe.eq(0)
        with m.If(timed_out & nothing_sent):
            m.d.sync += self.probe.eq(1)
