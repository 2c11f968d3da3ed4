"""Retransmission on a link: which of the frames in flight is sent again, and when."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.select import leading_zeros
from fanin.hdl.net.link.job import ACK_DELAY_BITS, check_link
from fanin.hdl.net.round_trip import (
    FLOOR_BITS,
    TIMEOUT_BITS,
    RoundTripTimer,
    delay_layout,
    limited,
)
from fanin.wire.link import ARRIVED_BITS, FLOOR_CYCLES

_CHECK = 3  # cycles from the address of a frame's timer to the verdict on the frame


def number_bits(frames: int) -> int:
    """Return the bits that distinguish stored frames, and one more for full and empty buffers."""
    return frames.bit_length()


class RepeatTimers(wiring.Component):
    """Timers of the frames in flight, which offers overdue frames one by one.

    A scanner checks one frame a cycle, so a timer costs a word of memory and no comparator. A frame is overdue
    in two cases:

    - Its timer has ended. The timer is the mean round trip plus 4 deviations, or plus ``ack_delay`` if that is
      longer; doubled with each retransmission of the frame; at most ``ceiling``. Without an estimate it is
      ``ceiling``: a shorter one could end before each answer, and would then never give an estimate.
    - It was overtaken: a frame has arrived that was first sent after this one's last transmission, and that
      transmission is as old as the mean round trip. Without an estimate any age is enough.

    Members
    -------
    ``first_in_flight`` : In, bits of a number
        Number of the oldest frame in flight. A number is the lower bits of a sequence number.
    ``end_in_flight`` : In, bits of a number
        Number of the first frame that was never sent; follows ``sent`` by 1 cycle.
    ``has_arrived`` : In, 32
        Frames after the oldest one that have arrived: bit i is frame ``first_in_flight`` + 1 + i.
    ``ceiling`` : In, 32
        Longest delay, in cycles, below 2^31.
    ``ack_delay`` : In, 16
        Longest delay of an answer by its sender, in cycles.
    ``sent`` : In, ``en`` and ``number``
        A frame is sent now: the one on ``offer``, or a new one.
    ``answered`` : In, ``en`` and ``number``
        An answer acknowledges this frame and all before it. None of them had been reported as arrived.
    ``offer`` : Out, ``pending``, ``valid``, ``number`` and ``place``
        ``pending``: an overdue frame is held. ``valid``: it has not arrived. ``place``: counted from the oldest
        frame. ``valid`` and ``place`` follow ``first_in_flight`` by 1 cycle.
    ``take`` : In, 1
        The offer is being sent; only with ``offer.valid`` now or a cycle ago.

    Parameters
    ----------
    ``replay_frames`` : int, a power of two, 2 to 256
        Maximum number of frames in flight; 32 by default. If it exceeds 32, only the oldest 32 are checked.

    Latency
    -------
    A frame is offered at most N + 9 cycles after it is overdue if no other is, where N is the number of frames
    in flight. Each other overdue frame delays the scan by 9 cycles and by the time until it is taken.

    Source
    ------
    RFC 9002, sections 5 and 6; docs/systems/link.md, "Protocol".
    """

    def __init__(self, *, replay_frames: int = 32):
        check_link(replay_frames=replay_frames)
        self.replay_frames = replay_frames
        self.reach = min(replay_frames, ARRIVED_BITS)
        number = number_bits(replay_frames)
        super().__init__(
            {
                "first_in_flight": In(number),
                "end_in_flight": In(number),
                "has_arrived": In(ARRIVED_BITS),
                "ceiling": In(TIMEOUT_BITS),
                "ack_delay": In(ACK_DELAY_BITS),
                "sent": In(data.StructLayout({"en": 1, "number": number})),
                "answered": In(data.StructLayout({"en": 1, "number": number})),
                "offer": Out(data.StructLayout({"pending": 1, "valid": 1, "number": number, "place": number})),
                "take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Scan the frames in flight; hold at an overdue one until it is sent, or has arrived.

        The check of a frame is a pipeline:

        - cycle 0: ``number`` addresses the timers;
        - cycle 1: the frame's ``word`` arrives;
        - cycle 2: ``age``, the cycles since it was last sent, and its ``place`` are known;
        - cycle 3: it is known whether the frame is overdue.

        The frame may have arrived meanwhile, so ``offer.valid`` checks this again while the frame is on
        ``offer``.
        """
        m = Module()
        now = Signal(TIMEOUT_BITS)
        m.d.sync += now.eq(now + 1)
        round_trip = self._measure(m)
        held = Signal(delay_layout())  # delay of the frame on ``offer`` before it is sent again
        word = self._timers(m, now, round_trip.timeout, held)
        number = Signal.like(self.end_in_flight)
        written_end = Signal.like(number)  # the timers of the frames before it are written
        age = Signal(TIMEOUT_BITS)
        is_late = Signal()
        is_past_mean = Signal()
        is_missing = Signal()
        is_overtaken = Signal()
        place = Signal.like(number)
        numbers = delayed(m, number, _CHECK, name="looked")
        delays = delayed(m, word.data.delay, _CHECK - 1, name="delay")
        ends = delayed(m, word.data.end, 1, name="end")
        timeout = Mux(delays[1].longest, self.ceiling, delays[1].cycles)
        m.d.comb += word.addr.eq(number)
        m.d.sync += [
            written_end.eq(self.end_in_flight),
            age.eq(now - word.data.sent),
            place.eq(numbers[1] - self.first_in_flight),
            is_late.eq(age >= timeout),
            is_past_mean.eq(age >= round_trip.mean),
            is_missing.eq(self._is_missing(place)),
            is_overtaken.eq(self._is_overtaken(m, ends[1])),
        ]
        was_sent = delayed(m, (number - written_end)[len(number) - 1], _CHECK, name="was_sent")[-1]
        is_overdue = was_sent & is_missing & (is_late | (is_past_mean & is_overtaken))
        self._walk(m, number)
        self._offer(m, is_overdue, numbers[-1], delays[-1], held)
        return m

    def _is_missing(self, place: Value) -> Value:
        """Return whether the frame at a place after the oldest has not arrived."""
        before = (place - 1)[: (ARRIVED_BITS - 1).bit_length()]
        return ~place[-1] & ((place == 0) | ~self.has_arrived.bit_select(before, 1))

    def _is_overtaken(self, m: Module, end: Value) -> Value:
        """Return whether a frame from number ``end`` on has arrived.

        ``newest`` is the newest frame that has arrived, as of a cycle ago. It is no frame beyond those in
        flight, so its difference from ``end`` is less than ``replay_frames`` in either direction.
        """
        newest = Signal.like(self.end_in_flight)
        has_newest = Signal()
        m.d.sync += [
            has_newest.eq(self.has_arrived.any()),
            newest.eq(self.first_in_flight + ARRIVED_BITS - leading_zeros(self.has_arrived)),
        ]
        return has_newest & ~(newest - end)[len(newest) - 1]

    def _walk(self, m: Module, number: Signal) -> None:
        """Step ``number`` over the frames in flight that answers can report, from the oldest to the newest."""
        newest = Signal.like(number)
        place = Signal.like(number)
        m.d.comb += place.eq(number - self.first_in_flight)
        m.d.sync += newest.eq(self.end_in_flight - 1)
        reach_bits = self.reach.bit_length() - 1
        is_outside = place[reach_bits:].any() | place[:reach_bits].all() | (number == newest)
        m.d.sync += number.eq(Mux(is_outside, self.first_in_flight, number + 1))

    def _offer(self, m: Module, is_overdue: Value, checked: Value, delay: Value, held: Signal) -> None:
        """Hold one overdue frame until it is sent or has arrived.

        ``checked`` is the number of the frame that ``is_overdue`` describes. FLUSH waits until the pipeline has
        no check that began before the frame was sent.
        """
        settle = Signal(range(_CHECK + 2))
        was_sent = Signal()
        is_missing = self._is_missing(self.offer.place) & was_sent
        m.d.comb += self.offer.valid.eq(self.offer.pending & is_missing)
        m.d.sync += [
            self.offer.place.eq(self.offer.number - self.first_in_flight),
            was_sent.eq((self.offer.number - self.end_in_flight)[len(self.offer.number) - 1]),
        ]
        with m.FSM():
            with m.State("SCAN"):
                m.d.sync += [self.offer.number.eq(checked), held.eq(delay)]
                with m.If(is_overdue):
                    m.next = "PLACE"
            with m.State("PLACE"):
                m.d.sync += self.offer.pending.eq(1)
                m.next = "OFFER"
            with m.State("OFFER"), m.If(self.take | ~is_missing):
                m.d.sync += [self.offer.pending.eq(0), settle.eq(0)]
                m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.sync += settle.eq(settle + 1)
                with m.If(settle == _CHECK + 1):
                    m.next = "SCAN"

    def _measure(self, m: Module) -> RoundTripTimer:
        """Return the estimator of round trips. It sees both ends of a round trip a cycle later."""
        m.submodules.round_trip = round_trip = RoundTripTimer(slots=self.replay_frames, first_shift=0)
        floor = self.ack_delay + FLOOR_CYCLES
        m.d.comb += [
            round_trip.adaptive.eq(1),
            round_trip.floor.eq(floor[:FLOOR_BITS] | floor[FLOOR_BITS].replicate(FLOOR_BITS)),
            round_trip.ceiling.eq(self.ceiling),
        ]
        m.d.sync += [
            round_trip.sent.en.eq(self.sent.en),
            round_trip.sent.index.eq(self.sent.number),
            round_trip.sent.again.eq(self.take),
            round_trip.answer.en.eq(self.answered.en),
            round_trip.answer.index.eq(self.answered.number),
        ]
        return round_trip

    def _timers(self, m: Module, now: Signal, timeout: Any, held: Any) -> Any:
        """Return the read port of the timers, written a cycle after a frame is sent.

        ``sent``: cycle of the last transmission. ``delay``: cycles until the next one. ``end``: number of the
        first frame that had never been sent after that transmission.
        """
        number = self.end_in_flight.shape()
        layout = data.StructLayout({"sent": TIMEOUT_BITS, "delay": delay_layout(), "end": number})
        m.submodules.timers = timers = Memory(shape=layout, depth=self.replay_frames, init=[])
        write = timers.write_port()
        sent = Signal.like(self.sent)
        doubled = limited(m, held.cycles << 1, self.ceiling)
        delay = Signal(delay_layout())
        m.d.sync += [
            sent.eq(self.sent),
            delay.cycles.eq(Mux(self.take, doubled.cycles, timeout.cycles)),
            delay.longest.eq(Mux(self.take, held.longest | doubled.longest, timeout.longest)),
        ]
        m.d.comb += [
            write.en.eq(sent.en),
            write.addr.eq(sent.number),
            write.data.sent.eq(now),
            write.data.delay.eq(delay),
            write.data.end.eq(self.end_in_flight),
        ]
        return timers.read_port()
