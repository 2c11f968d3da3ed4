"""Retransmission timeout from measured round trips, by shifts and adds."""

from typing import Any

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.golden.round_trip import DEVIATION_SHIFT, FIRST_SHIFT, MEAN_SHIFT, MISSES, RTT_BITS

TIMEOUT_BITS = 32  # longest timeout
FLOOR_BITS = 16
_STEPS = 3  # cycles to process a sample


def delay_layout() -> data.StructLayout:
    """Return the layout of a delay: ``cycles``, or with ``longest`` the transport's greatest delay."""
    return data.StructLayout({"cycles": RTT_BITS, "longest": 1})


def limited(m: Module, cycles: Value, ceiling: Value) -> Any:
    """Return ``cycles`` as a delay, 2 cycles later; ``longest`` if it reaches ``ceiling`` or does not fit."""
    delay = Signal(delay_layout())
    cycles_delayed = Signal(RTT_BITS)
    reaches = Signal()
    exceeds = Signal()
    is_short = Signal()
    m.d.sync += [
        cycles_delayed.eq(cycles),
        reaches.eq(cycles[:RTT_BITS] >= ceiling[:RTT_BITS]),
        exceeds.eq(cycles[RTT_BITS:].any()),
        is_short.eq(~ceiling[RTT_BITS:].any()),
        delay.cycles.eq(cycles_delayed),
        delay.longest.eq(exceeds | (reaches & is_short)),
    ]
    return delay


class RoundTripTimer(wiring.Component):
    """Estimator of round trips from a packet to its answer, and the timeout that follows from them.

    timeout = mean + max(4 deviations, ``floor``). A sample moves the mean by 1/8 of its distance, the deviation
    by 1/16; the first one sets the mean, and the deviation to half of it. A packet that was sent again gives no
    sample, since its answer may be that of an earlier transmission (Karn's rule). After 64 retransmissions
    without a sample the estimate is forgotten, and the timeout is ``ceiling`` until the next sample: round
    trips that are longer than the timeout give none.

    Members
    -------
    ``adaptive`` : In, 1
        Follow the round trips. Low: the timeout is ``ceiling``.
    ``floor`` : In, 16
        Minimum distance of the timeout from the mean, in cycles.
    ``ceiling`` : In, 32
        Longest timeout, in cycles, below 2^31.
    ``sent`` : In, ``en``, ``index``, ``again``
        A packet of slot ``index`` is sent now; ``again``: not for the first time.
    ``answer`` : In, ``en``, ``index``
        The packet of slot ``index`` was answered, at least 2 cycles after it was sent.
    ``mean`` : Out, 18
        Smoothed round trip, in cycles; 0 without an estimate. Longer ones count as 2^18 − 1.
    ``deviation`` : Out, 18
        Smoothed mean deviation of the round trips, in cycles; 0 without an estimate.
    ``timeout`` : Out, ``cycles``, ``longest``
        Timeout of a packet that is sent for the first time.

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
        Maximum number of slots of a job.
    ``first_shift`` : int, 0 to 31
        Without an estimate the timeout is ``ceiling`` / 2^``first_shift``; 3 by default.

    Latency
    -------
    9 cycles from an answer to ``timeout``. An answer within 3 cycles of one that gave a sample gives none.

    Source
    ------
    RFC 6298, sections 2 and 3; docs/systems/aggregation.md, "Timers".
    """

    def __init__(self, *, slots: int, first_shift: int = FIRST_SHIFT):
        self.slots = slots
        self.first_shift = first_shift
        index = (slots - 1).bit_length()
        super().__init__(
            {
                "adaptive": In(1),
                "floor": In(FLOOR_BITS),
                "ceiling": In(TIMEOUT_BITS),
                "sent": In(data.StructLayout({"en": 1, "index": index, "again": 1})),
                "answer": In(data.StructLayout({"en": 1, "index": index})),
                "mean": Out(RTT_BITS),
                "deviation": Out(RTT_BITS),
                "timeout": Out(delay_layout()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Take a sample in steps: its cycles, their distance from the mean, the mean, the deviation."""
        m = Module()
        mean = Signal(RTT_BITS + MEAN_SHIFT)
        deviation = Signal(RTT_BITS + DEVIATION_SHIFT)
        has_estimate = Signal()
        misses = Signal(range(MISSES))
        gave_up = Signal()
        step = Signal(_STEPS)  # one-hot; 0: a sample is taken
        error = Signal(range(-(1 << RTT_BITS), 1 << RTT_BITS))
        change = Signal.like(error)
        is_first = Signal()
        m.d.comb += [self.mean.eq(mean >> MEAN_SHIFT), self.deviation.eq(deviation >> DEVIATION_SHIFT)]
        valid, cycles = self._measure(m)
        sampled = valid & ~step.any()
        m.d.sync += step.eq(step << 1 | sampled)
        with m.If(sampled):
            m.d.sync += [error.eq(cycles - self.mean), is_first.eq(~has_estimate), misses.eq(0)]
        with m.If(step[0]):
            m.d.sync += [
                change.eq((error ^ error[-1].replicate(len(error))).as_signed() - self.deviation),
                mean.eq(mean + Mux(is_first, error << MEAN_SHIFT, error)),
            ]
        with m.If(step[1]):
            m.d.sync += [
                deviation.eq(deviation + Mux(is_first, change << (DEVIATION_SHIFT - 1), change)),
                has_estimate.eq(1),
                gave_up.eq(0),
            ]
        with m.If(self.sent.en & self.sent.again & ~sampled):
            m.d.sync += misses.eq(misses + 1)
            with m.If(misses == MISSES - 1):
                m.d.sync += [has_estimate.eq(0), gave_up.eq(1), mean.eq(0), deviation.eq(0), step.eq(0)]
        self._limit(m, has_estimate, gave_up, deviation)
        return m

    def _measure(self, m: Module) -> tuple[Value, Value]:
        """Store each slot's send time. Return ``valid`` and the cycles of the round trip of a packet sent once.

        Times have one bit more than an estimate. A packet that was sent once is outstanding for longer only if
        its timeout is ``ceiling``; its trip then counts as a shorter one.
        """
        cycle = Signal(RTT_BITS + 1)
        word = data.StructLayout({"when": len(cycle), "again": 1})
        m.submodules.times = times = Memory(shape=word, depth=self.slots, init=[])
        write, read = times.write_port(), times.read_port()
        answer_valid = Signal()
        valid = Signal()
        cycles = Signal(RTT_BITS)
        trip = Signal.like(cycle)
        m.d.comb += [
            write.en.eq(self.sent.en),
            write.addr.eq(self.sent.index),
            write.data.when.eq(cycle),
            write.data.again.eq(self.sent.again),
            read.addr.eq(self.answer.index),
            trip.eq(cycle - 1 - read.data.when),
        ]
        m.d.sync += [
            cycle.eq(cycle + 1),
            answer_valid.eq(self.answer.en),
            valid.eq(answer_valid & ~read.data.again),
            cycles.eq(trip[:-1] | trip[-1].replicate(RTT_BITS)),
        ]
        return valid, cycles

    def _limit(self, m: Module, has_estimate: Signal, gave_up: Signal, deviation: Signal) -> None:
        """Derive the timeout, in a pipeline that always runs."""
        four_deviations = deviation >> (DEVIATION_SHIFT - 2)
        is_small = Signal()
        is_known = Signal()
        is_ceiling = Signal()
        total = Signal(len(four_deviations) + 1)
        m.d.sync += [
            is_small.eq(four_deviations < self.floor),
            total.eq(self.mean + Mux(is_small, self.floor, four_deviations)),
            is_known.eq(has_estimate),
            is_ceiling.eq(gave_up | ~self.adaptive),
        ]
        delay = limited(m, Mux(is_known, total, self.ceiling >> self.first_shift), self.ceiling)
        m.d.comb += [
            self.timeout.cycles.eq(delay.cycles),
            self.timeout.longest.eq(is_ceiling | delay.longest),
        ]
