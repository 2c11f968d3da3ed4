"""What may be sent, what must be sent again, and what is to be answered."""

from typing import Any

from amaranth import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.ring.link_buffer import record_layout
from fanin.hdl.ring.link_job import (
    ACK_DELAY_BITS,
    ACK_FRAMES_BITS,
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


class SendWindow(wiring.Component):
    """Go-back-N: which frame is next, how long to wait for its acknowledgement, when to give up.

    Frames from the oldest that is not acknowledged to the newest are kept. The next one is offered while the
    next node has room for it. A NAK goes back to the frame that it names, a timeout to the oldest; where none
    was sent since, it asks for a PROBE instead. So does a reset, to learn of the first room, and ``watch``
    while no frame is kept.

    Members
    -------
    ``job`` : In, RingJob
    ``running`` : In, 1
    ``watch`` : In, 1
        Make sure that the next node lives, also while no frame is kept.
    ``taken`` : In, 1
        A frame more is kept.
    ``open`` : Out, 1
        There is place for another; low for a cycle after ``taken``.
    ``number`` : Out, range(replay_frames)
        Of the frame that is looked up.
    ``record`` : In, :func:`~fanin.hdl.ring.link_buffer.record_layout`
        That frame's.
    ``offer`` : Out, :func:`~fanin.hdl.ring.link_transmit.data_offer`
    ``sent`` : In, 1
        The frame on offer is begun.
    ``again`` : Out, 1
        The frame on offer was sent before. Means nothing while none is.
    ``answer`` : In, ``valid``, ``nak``, ``sequence`` and ``count``
        An ACK or NAK has come. One that acknowledges what was never sent, or less than another did, only
        proves that the next node lives.
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
        """Go-back-N over four sequence numbers, in order: ``oldest``, ``following``, ``fresh``, ``written``.

        Frames from ``oldest`` up to ``written`` are kept; those before ``fresh`` have been sent at least once.
        ``following`` is sent next, if the receiver grants it: ``limit`` is the first number without room there.
        Going back moves ``following`` to an earlier frame. Numbers count modulo 2^32; the ``low`` bits tell
        kept frames apart. What is on offer is a register: it is withdrawn for the cycle after a change.
        """
        m = Module()
        oldest, following, fresh, limit = (
            Signal(SEQUENCE_BITS, name=name, init=self.first_sequence)
            for name in ("oldest", "following", "fresh", "limit")
        )
        low = slice(0, self.replay_frames.bit_length())
        written = self._keep(m, oldest[low])
        timeout = Signal()
        progress = Signal()
        moves = self._answer(m, oldest, following, fresh, limit, timeout, progress)
        with m.If(self.sent & ~self.again):
            m.d.sync += fresh.eq(fresh + 1)
        with m.If(moves):
            m.d.sync += following.eq(self.answer.sequence)
        with m.Elif(timeout):
            m.d.sync += following.eq(oldest)
        with m.Elif(self.sent):
            m.d.sync += following.eq(following + 1)
        is_kept = following[low] != written
        changes = self.sent | self.answer.valid | timeout
        m.d.sync += [
            self.offer.record.eq(self.record),
            self.offer.valid.eq(is_kept & _before(following, limit) & ~changes),
            self.again.eq(following[low] != fresh[low]),
        ]
        m.d.comb += [
            self.number.eq(following),
            self.offer.sequence.eq(following),
            self.idle.eq(oldest[low] == written),
        ]
        self._time(m, timeout, progress, following[low] == oldest[low])
        return m

    def _keep(self, m: Module, oldest: Value) -> Signal:
        """The low bits of the number after the newest frame; ``open`` waits until they count it."""
        written = Signal(len(oldest), init=self.first_sequence % (1 << len(oldest)))
        full = (oldest ^ written) == self.replay_frames
        m.d.sync += self.open.eq(self.running & ~full & ~self.taken)
        with m.If(self.taken):
            m.d.sync += written.eq(written + 1)
        return written

    def _answer(
        self,
        m: Module,
        oldest: Signal,
        following: Signal,
        fresh: Signal,
        limit: Signal,
        timeout: Signal,
        progress: Signal,
    ) -> Signal:
        """Let go of acknowledged frames and take the new limit; whether the answer says what follows.

        All in one cycle, since answers can come in a row. An answer in the cycle of a timeout wins: from then
        on the oldest frame is the one that it names.
        """
        answer = self.answer
        accept = Signal()
        moves = Signal()
        more_room = Signal()
        m.d.comb += [
            accept.eq(answer.valid & ~_before(answer.sequence, oldest) & ~_before(fresh, answer.sequence)),
            moves.eq(accept & (answer.nak | timeout | _before(following, answer.sequence))),
            more_room.eq(answer.valid & _before(limit, answer.count)),
        ]
        with m.If(accept):
            m.d.sync += oldest.eq(answer.sequence)
        with m.If(more_room):
            m.d.sync += limit.eq(answer.count)
        m.d.sync += progress.eq((accept & _before(oldest, answer.sequence)) | more_room)
        return moves

    def _time(self, m: Module, timeout: Signal, progress: Signal, nothing_sent: Value) -> None:
        """Count down while an answer is due and nothing progresses; then go back or, with nothing sent, ask.

        Both counters end below 0, where their sign says so.
        """
        timer = Signal(signed(TIMEOUT_BITS + 1))
        retries = Signal(signed(RETRY_BITS + 1))  # that are left after the next timeout
        waiting = Signal()
        timed_out = Signal()
        ask = Signal()
        m.d.sync += [
            waiting.eq(self.running & (self.watch | ~self.idle)),
            self.failed.eq(self.running & retries[-1]),
            timed_out.eq(timeout),
            ask.eq(nothing_sent),
        ]
        m.d.comb += timeout.eq(waiting & timer[-1])
        m.d.sync += timer.eq(timer - 1)
        with m.If(~waiting | progress | timeout):
            m.d.sync += timer.eq(self.job.timeout)
        restart = ~self.running | self.answer.valid
        with m.If(restart | timeout):
            m.d.sync += retries.eq(Mux(restart, self.job.retries, retries) - 1)
        with m.If(self.probed):
            m.d.sync += self.probe.eq(0)
        with m.If(timed_out & ask):
            m.d.sync += self.probe.eq(1)


class Acknowledger(wiring.Component):
    """Decide when to answer the node before, and how.

    A NAK is due once a gap shows, and not again until the frame that is missing has come. An ACK is due when
    ``job.ack_frames`` frames were received or consumed since the last answer, ``job.ack_delay`` cycles after
    the first of them, when asked, and after a reset, to grant the first room.

    Members
    -------
    ``job`` : In, RingJob
    ``received`` : In, 1
        A frame was kept.
    ``consumed`` : In, 1
        A frame left the buffer, at least a cycle ago.
    ``asked`` : In, 1
        A PROBE came, or a frame that had been received.
    ``ahead`` : In, 1
        A frame came after a gap.
    ``ack`` : Out, 1
        An answer is due, an ACK unless ``nak``.
    ``nak`` : Out, 1
        It is a NAK.
    ``answered`` : In, 1
        An answer was begun a cycle ago, from the state of that cycle.
    ``answered_nak`` : In, 1
        It was a NAK.
    ``limit`` : Out, 32
        The first sequence number for which there is no room.

    Parameters
    ----------
    ``buffer_frames`` : int, 2 to 256
    ``first_sequence`` : int, 0 to 2^32 − 1

    Latency
    -------
    1 cycle from ``asked`` and ``ahead``, 2 from ``received`` and ``consumed``.

    Source
    ------
    docs/systems/ring.md, "The link".
    """

    def __init__(self, *, buffer_frames: int = 32, first_sequence: int = 0):
        check_link(buffer_frames=buffer_frames, first_sequence=first_sequence)
        self.buffer_frames = buffer_frames
        self.first_sequence = first_sequence
        super().__init__(
            {
                "job": In(RingJob),
                "received": In(1),
                "consumed": In(1),
                "asked": In(1),
                "ahead": In(1),
                "ack": Out(1, init=1),
                "nak": Out(1),
                "answered": In(1),
                "answered_nak": In(1),
                "limit": Out(SEQUENCE_BITS, init=(first_sequence + buffer_frames) % (1 << SEQUENCE_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """``unanswered`` counts events that no answer covers yet; it stops when an answer is due."""
        m = Module()
        unanswered = Signal(ACK_FRAMES_BITS + 1)
        delay = Signal(signed(ACK_DELAY_BITS + 1))
        gap = Signal()  # a NAK was asked for, and the missing frame has not come
        arrivals = self.received + self.consumed
        with m.If(self.consumed):
            m.d.sync += self.limit.eq(self.limit + 1)
        with m.If(~self.ack):
            m.d.sync += unanswered.eq(unanswered + arrivals)
        m.d.sync += delay.eq(delay - 1)
        with m.If((unanswered == 0) | self.answered):
            m.d.sync += delay.eq(self.job.ack_delay)
        with m.If((unanswered >= self.job.ack_frames) | (delay[-1] & (unanswered != 0))):
            m.d.sync += self.ack.eq(1)
        with m.If(self.answered):
            m.d.sync += [self.ack.eq(0), unanswered.eq(arrivals)]
        with m.If(self.answered_nak):
            m.d.sync += self.nak.eq(0)
        with m.If(self.received):
            m.d.sync += [gap.eq(0), self.nak.eq(0)]
        with m.If(self.ahead):
            m.d.sync += gap.eq(1)
        with m.If(self.ahead & ~gap):
            m.d.sync += self.nak.eq(1)
        with m.If(self.asked | (self.received & self.nak)):
            m.d.sync += self.ack.eq(1)
        return m
