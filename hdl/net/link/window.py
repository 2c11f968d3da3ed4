"""Send window of a link: frames that may be sent, and frames that must be sent again."""

from dataclasses import dataclass
from typing import Any

from amaranth import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.link.buffer import record_layout
from fanin.hdl.net.link.job import RETRY_BITS, SEQUENCE_BITS, TIMEOUT_BITS, LinkTiming, check_link
from fanin.hdl.net.link.receive import ANSWER
from fanin.hdl.net.link.repeat import RepeatTimers, number_bits
from fanin.hdl.net.link.transmit import data_offer
from fanin.wire.link import ARRIVED_BITS, LinkFormat


def _before(one: Value, other: Value) -> Value:
    """Return whether a sequence number is before another, modulo 2^32: the sign of their difference."""
    return (one - other)[SEQUENCE_BITS - 1]


@dataclass(frozen=True)
class _Window:
    """Registers of the send window: frame numbers modulo 2^32, with oldest ≤ first_unsent ≤ kept_end.

    - Frames from ``oldest`` up to, not including, ``kept_end`` are stored.
    - Frames from ``first_unsent`` on have never been sent.
    - ``limit`` is the first frame for which the receiver has granted no room.
    - ``arrived``: bit i is frame ``oldest`` + 1 + i, which the receiver has reported.
    """

    oldest: Signal
    first_unsent: Signal
    kept_end: Signal  # low bits only: it is compared with stored frames alone
    limit: Signal
    arrived: Signal

    def low(self, number: Signal) -> Value:
        """Return the bits that distinguish stored frames, and one more for full and empty buffers."""
        return number[: len(self.kept_end)]


class SendWindow(wiring.Component):
    """Send window with selective repeat: selects the next frame to send, and fails after retries.

    Frames from the oldest unacknowledged one to the newest are stored. A frame that is overdue
    (:class:`~fanin.hdl.net.link.repeat.RepeatTimers`) and not reported as arrived is offered first, else the
    next new one, while the peer has room for it. ``timing.timeout`` cycles without progress make a PROBE due. A
    reset also makes a PROBE due, to learn of the first room.

    Members
    -------
    ``timing`` : In, LinkTiming
        Timeout and retries. The timeout also limits the delay of a retransmission.
    ``running`` : In, 1
        The link runs. If low, no frame is taken and no time is counted.
    ``watch`` : In, 1
        Time out even if no frame is stored, to check that the peer is alive.
    ``taken`` : In, 1
        Pulse: one more frame is stored; only while ``can_take``.
    ``can_take`` : Out, 1
        There is room for another frame; low for a cycle after ``taken``.
    ``number`` : Out, range(replay_frames)
        Place of the frame to offer next, in the replay buffer.
    ``record`` : In, :func:`~fanin.hdl.net.link.buffer.record_layout`
        Record of that frame from the replay buffer.
    ``offer`` : Out, :func:`~fanin.hdl.net.link.transmit.data_offer`
        Next frame to send.
    ``sent`` : In, 1
        Pulse: the frame on offer is started.
    ``unsent`` : Out, 32
        Sequence number of the first frame that was never sent.
    ``sent_before`` : Out, 1
        The frame on offer is a retransmission; undefined without an offer.
    ``answer`` : In, ``valid``, ``sequence``, ``limit`` and ``arrived``
        An ACK or NAK has arrived. Any answer proves that the peer is alive and restarts the retries. A larger
        ``limit`` than before grants room. An answer has no further effect if its ``sequence`` was never sent,
        or is older than another answer's. Its ``limit`` is used even then, which is safe: a correct receiver
        never acknowledges an unsent frame, and a late answer never carries a larger limit.
    ``probe`` : Out, 1
        A PROBE is due.
    ``probed`` : In, 1
        Pulse: the PROBE was started.
    ``failed`` : Out, 1
        ``timing.retries`` timeouts in a row have passed without an answer.
    ``idle`` : Out, 1
        No frame is stored.
    ``impossible`` : Out, 1
        Pulse: an answer acknowledged a frame that was never sent.

    Parameters
    ----------
    ``form`` : LinkFormat
        Format of the frames.
    ``frame_beats`` : int, 1 to 4096
        Maximum beats of a payload.
    ``replay_frames`` : int, a power of two, 2 to 256
        Frames that the replay buffer holds; 32 by default.
    ``published`` : bool
        Send no frame again. False by default.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Sequence number of the first frame; 0 except in tests.

    Latency
    -------
    - 2 cycles from ``taken``, ``sent`` or ``answer`` to the next offer.
    - The first timeout comes ``timing.timeout`` + 3 cycles after the first ``taken``, or after the last answer
      that freed a frame or granted room.
    - Further timeouts come ``timing.timeout`` + 2 cycles apart.
    - ``failed`` and ``probe`` follow 2 cycles after a timeout.

    Source
    ------
    docs/systems/link.md, "Protocol".
    """

    def __init__(
        self,
        *,
        form: LinkFormat,
        frame_beats: int,
        replay_frames: int = 32,
        published: bool = False,
        first_sequence: int = 0,
    ):
        check_link(frame_beats=frame_beats, replay_frames=replay_frames, first_sequence=first_sequence)
        self.form = form
        self.frame_beats = frame_beats
        self.replay_frames = replay_frames
        self.published = published
        self.first_sequence = first_sequence
        super().__init__(
            {
                "timing": In(LinkTiming),
                "running": In(1),
                "watch": In(1),
                "taken": In(1),
                "can_take": Out(1),
                "number": Out(range(replay_frames)),
                "record": In(record_layout(form, replay_frames, frame_beats)),
                "offer": Out(data_offer(form, replay_frames, frame_beats)),
                "sent": In(1),
                "unsent": Out(SEQUENCE_BITS, init=first_sequence),
                "sent_before": Out(1),
                "answer": In(ANSWER),
                "probe": Out(1, init=1),
                "probed": In(1),
                "failed": Out(1),
                "idle": Out(1),
                "impossible": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Implement selective repeat on the registers of :class:`_Window`.

        The offer is a register, so it describes the state of a cycle ago. After a cycle that changes the state,
        there is no offer for a cycle. After an answer there is no frame to send again for two.
        """
        m = Module()
        oldest, first_unsent, limit = (
            Signal(SEQUENCE_BITS, name=name, init=self.first_sequence)
            for name in ("oldest", "first_unsent", "limit")
        )
        low_bits = number_bits(self.replay_frames)
        kept_end = Signal(low_bits, init=self.first_sequence % (1 << low_bits))
        arrived = Signal(ARRIVED_BITS)
        window = _Window(
            oldest=oldest, first_unsent=first_unsent, kept_end=kept_end, limit=limit, arrived=arrived
        )
        timeout = Signal()
        progress = Signal()
        self._keep(m, window)
        freed = self._answer(m, window, progress)
        repeats, repeated, place, may_repeat = (Const(0, bits) for bits in (1, low_bits, low_bits, 1))
        if not self.published:
            timers = self._repeat(m, window, freed)
            answered = Signal()  # an answer arrived a cycle ago
            m.d.sync += answered.eq(self.answer.valid)
            repeats, repeated, place = timers.offer.pending, timers.offer.number, timers.offer.place
            may_repeat = timers.offer.valid & ~answered
        with m.If(self.sent & ~self.sent_before):
            m.d.sync += first_unsent.eq(first_unsent + 1)
        may_send = (window.low(first_unsent) != kept_end) & _before(first_unsent, limit)
        m.d.sync += [
            self.offer.record.eq(self.record),
            self.offer.sequence.eq(Mux(repeats, oldest + place, first_unsent)),
            self.offer.valid.eq(Mux(repeats, may_repeat, may_send) & ~self.sent & ~self.answer.valid),
            self.sent_before.eq(repeats),
        ]
        m.d.comb += [
            self.number.eq(Mux(repeats, repeated, first_unsent)),
            self.unsent.eq(first_unsent),
            self.idle.eq(window.low(oldest) == kept_end),
        ]
        self._time(m, timeout, progress)
        return m

    def _keep(self, m: Module, window: _Window) -> None:
        """Count the stored frames.

        ``can_take`` is a register, so it is low in the cycle in which ``kept_end`` first counts a frame. Only
        that cycle shows whether the frame filled the buffer.
        """
        kept_end = window.kept_end
        full = (window.low(window.oldest) ^ kept_end) == self.replay_frames
        m.d.sync += self.can_take.eq(self.running & ~full & ~self.taken)
        with m.If(self.taken):
            m.d.sync += kept_end.eq(kept_end + 1)

    def _answer(self, m: Module, window: _Window, progress: Signal) -> Signal:
        """Free acknowledged frames, note those that have arrived, and take the new limit.

        Return whether the answer frees frames. All of this takes one cycle, since answers can arrive in every
        cycle. A receiver never drops a frame that it has reported. The reports of two answers with the same
        number are therefore combined, and an answer with a later number includes all earlier reports.
        """
        answer = self.answer
        oldest, limit, arrived = window.oldest, window.limit, window.arrived
        accept = Signal()
        freed = Signal()
        more_room = Signal()
        too_old, beyond_sent = _before(answer.sequence, oldest), _before(window.first_unsent, answer.sequence)
        m.d.comb += [
            accept.eq(answer.valid & ~too_old & ~beyond_sent),
            freed.eq(accept & (answer.sequence != oldest)),
            more_room.eq(answer.valid & _before(limit, answer.limit)),
        ]
        m.d.sync += self.impossible.eq(answer.valid & beyond_sent & ~too_old)
        with m.If(accept):
            m.d.sync += [
                oldest.eq(answer.sequence),
                arrived.eq(answer.arrived | Mux(answer.sequence == oldest, arrived, 0)),
            ]
        with m.If(more_room):
            m.d.sync += limit.eq(answer.limit)
        m.d.sync += progress.eq(freed | more_room)
        return freed

    def _repeat(self, m: Module, window: _Window, freed: Signal) -> RepeatTimers:
        """Return the timers of the frames in flight.

        The newest frame that an answer acknowledges gives a round trip. It gives none while frames after a gap
        are reported, since it may have waited for a retransmission.
        """
        m.submodules.timers = timers = RepeatTimers(replay_frames=self.replay_frames)
        m.d.comb += [
            timers.first_in_flight.eq(window.low(window.oldest)),
            timers.end_in_flight.eq(window.low(window.first_unsent)),
            timers.has_arrived.eq(window.arrived),
            timers.ceiling.eq(self.timing.timeout),
            timers.ack_delay.eq(self.timing.ack_delay),
            timers.sent.en.eq(self.sent),
            timers.sent.number.eq(self.offer.sequence),
            timers.take.eq(self.sent & self.sent_before),
            timers.answered.en.eq(freed & ~window.arrived.any()),
            timers.answered.number.eq(self.answer.sequence - 1),
        ]
        return timers

    def _time(self, m: Module, timeout: Signal, progress: Signal) -> None:
        """Count down while an answer is due and there is no progress; then raise ``timeout`` for a cycle.

        A timeout makes a PROBE due. Both counters end below 0, so that their sign shows the end.
        """
        timer = Signal(signed(TIMEOUT_BITS + 1))
        retries_left = Signal(signed(RETRY_BITS + 1))  # retries after the next timeout
        waiting = Signal()
        timed_out = Signal()  # a timeout a cycle ago
        m.d.sync += [
            waiting.eq(self.running & (self.watch | ~self.idle)),
            self.failed.eq(self.running & retries_left[-1]),
            timed_out.eq(timeout),
        ]
        m.d.comb += timeout.eq(waiting & timer[-1])
        m.d.sync += timer.eq(timer - 1)
        with m.If(~waiting | progress | timeout):
            m.d.sync += timer.eq(self.timing.timeout)
        start_over = ~self.running | self.answer.valid
        with m.If(start_over | timeout):
            m.d.sync += retries_left.eq(Mux(start_over, self.timing.retries, retries_left) - 1)
        with m.If(self.probed):
            m.d.sync += self.probe.eq(0)
        with m.If(timed_out):
            m.d.sync += self.probe.eq(1)
