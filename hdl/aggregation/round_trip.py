"""Adaptive retransmission timeout from measured round trips, by shifts and adds."""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.golden.round_trip import DEVIATION_SHIFT, MEAN_SHIFT, RTT_BITS, UNKNOWN_SHIFT
from fanin.hdl.aggregation.job import TIMEOUT_BITS

SAMPLE_CYCLES = 3  # cycles in which further samples are ignored


def sample_layout() -> data.StructLayout:
    """Return the layout of a sample: ``cycles``, the round trip of a packet sent once, while ``en`` is high."""
    return data.StructLayout({"en": 1, "cycles": TIMEOUT_BITS})


def delay_layout() -> data.StructLayout:
    """Return the layout of a timer's setting.

    ``timeout``: cycles until a first retransmission. ``slack``: cycles by which an overtaken packet is sent
    again earlier.
    """
    return data.StructLayout({"timeout": TIMEOUT_BITS, "slack": RTT_BITS})


class RoundTripTimer(wiring.Component):
    """Estimator of round trips of one kind of packet, and the timeout that follows from them.

    timeout = mean + max(4 deviations, mean / 8), at least ``least``, at most ``most``. A sample moves the mean
    by 1/8 of its distance, the deviation by 1/16. The first sample sets the mean, and the deviation to half of
    it. Before the first sample the timeout is ``most`` / 8, at least ``least``.

    Members
    -------
    ``adaptive`` : In, 1
        Follow the samples. Low: the timeout is ``most``.
    ``least`` : In, 32
        Floor of the timeout, in cycles.
    ``most`` : In, 32
        Ceiling of the timeout, in cycles, below 2^31.
    ``sample`` : In, ``en``, ``cycles``
        Round trip of a packet that was sent once. Round trips of 2^24 cycles and more count as 2^24 − 1. A
        sample within 3 cycles of the previous one is ignored.
    ``mean`` : Out, 24
        Smoothed round trip, in cycles; 0 before the first sample.
    ``deviation`` : Out, 24
        Smoothed mean deviation of the round trips, in cycles.
    ``delay`` : Out, ``timeout``, ``slack``
        Timeout of a packet that is sent for the first time. ``slack`` is at most a deviation.

    Latency
    -------
    9 cycles from a sample to ``delay``; one sample every 4 cycles.

    Source
    ------
    RFC 6298, sections 2 and 3; RFC 8985 (``slack``); docs/systems/aggregation.md, "Timers".
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "adaptive": In(1),
                "least": In(TIMEOUT_BITS),
                "most": In(TIMEOUT_BITS),
                "sample": In(sample_layout()),
                "mean": Out(RTT_BITS),
                "deviation": Out(RTT_BITS),
                "delay": Out(delay_layout()),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Take a sample in three steps: the error, the mean and the error's magnitude, the deviation.

        The timeout follows in a pipeline that always runs.
        """
        m = Module()
        mean = Signal(RTT_BITS + MEAN_SHIFT)
        deviation = Signal(RTT_BITS + DEVIATION_SHIFT)
        known = Signal()
        step = Signal(SAMPLE_CYCLES)  # one-hot; 0: a sample is taken
        taken = Signal()
        is_first = Signal()
        cycles = Signal(RTT_BITS)
        error = Signal(range(-(1 << RTT_BITS), 1 << RTT_BITS))
        magnitude = Signal(RTT_BITS)
        longest = self.sample.cycles[RTT_BITS:].any()
        m.d.comb += [
            taken.eq(self.sample.en & ~step.any()),
            self.mean.eq(mean >> MEAN_SHIFT),
            self.deviation.eq(deviation >> DEVIATION_SHIFT),
        ]
        m.d.sync += step.eq(step << 1 | taken)
        with m.If(taken):
            m.d.sync += cycles.eq(self.sample.cycles[:RTT_BITS] | longest.replicate(RTT_BITS))
        with m.If(step[0]):
            m.d.sync += [error.eq(cycles - self.mean), is_first.eq(~known), known.eq(1)]
        with m.If(step[1]):
            m.d.sync += [
                mean.eq(Mux(is_first, cycles << MEAN_SHIFT, mean + error)),
                magnitude.eq(Mux(error < 0, -error, error)),
            ]
        with m.If(step[2]):
            moved = deviation + magnitude - self.deviation
            m.d.sync += deviation.eq(Mux(is_first, cycles << (DEVIATION_SHIFT - 1), moved))
        self._delay(m, known, deviation)
        return m

    def _delay(self, m: Module, known: Signal, deviation: Signal) -> None:
        """Derive timeout and slack: deviations; margins; their sum; its limits."""
        four, three = Signal(RTT_BITS + 2), Signal(RTT_BITS + 2)  # deviations
        eighth = Signal(RTT_BITS)  # of the mean
        late, early = Signal(RTT_BITS + 2), Signal(RTT_BITS + 2)  # margins
        total = Signal(RTT_BITS + 3)
        slack = Signal(RTT_BITS)
        floored = Signal(TIMEOUT_BITS)
        last_slack = Signal(RTT_BITS)
        m.d.sync += [
            four.eq(deviation >> (DEVIATION_SHIFT - 2)),
            three.eq((deviation * 3) >> DEVIATION_SHIFT),
            eighth.eq(self.mean >> 3),
            late.eq(Mux(four > eighth, four, eighth)),
            early.eq(Mux(three > eighth, three, eighth)),
            total.eq(self.mean + late),
            slack.eq(late - early),
        ]
        wished = Mux(known, total, self.most >> UNKNOWN_SHIFT)
        m.d.sync += [
            floored.eq(Mux(wished < self.least, self.least, wished)),
            last_slack.eq(Mux(known & self.adaptive, slack, 0)),
            self.delay.slack.eq(last_slack),
            self.delay.timeout.eq(Mux((floored > self.most) | ~self.adaptive, self.most, floored)),
        ]


class RoundTrips(wiring.Component):
    """Round trips of a transport's packets, and the timeouts of AGG and ACK that follow from them.

    A packet that was sent again gives no sample, since its answer may be that of an earlier transmission
    (Karn's rule).

    Members
    -------
    ``adaptive`` : In, 1
        Follow the round trips. Low: both timeouts are ``most``.
    ``least`` : In, 32
        Floor of both timeouts, in cycles.
    ``most`` : In, 32
        Ceiling of both timeouts, in cycles, below 2^31.
    ``sent`` : In, ``en``, ``index``, ``again``
        A packet of slot ``index`` is sent now; ``again``: not for the first time.
    ``answer`` : In, ``en``, ``index``, ``confirm``
        The RESULT, or CONFIRM, of slot ``index`` was accepted; at least 2 cycles after its packet was sent.
    ``agg``, ``ack`` : Out, RoundTripTimer's ``mean``, ``deviation``, ``delay``
        Timers of AGG (to its RESULT) and ACK (to its CONFIRM).

    Parameters
    ----------
    ``slots`` : int, a power of two, 2 to 65536
        Maximum number of slots of a job.
    ``acknowledges`` : bool
        There are ACKs; else ``ack`` is 0.

    Latency
    -------
    12 cycles from an answer to ``delay``.

    Source
    ------
    RFC 6298, section 3; docs/systems/aggregation.md, "Timers".
    """

    def __init__(self, *, slots: int, acknowledges: bool = True):
        self.slots = slots
        self.acknowledges = acknowledges
        index = (slots - 1).bit_length()
        timer = data.StructLayout({"mean": RTT_BITS, "deviation": RTT_BITS, "delay": delay_layout()})
        super().__init__(
            {
                "adaptive": In(1),
                "least": In(TIMEOUT_BITS),
                "most": In(TIMEOUT_BITS),
                "sent": In(data.StructLayout({"en": 1, "index": index, "again": 1})),
                "answer": In(data.StructLayout({"en": 1, "index": index, "confirm": 1})),
                "agg": Out(timer),
                "ack": Out(timer),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep, by slot, when its packet was sent and whether that was the first time."""
        m = Module()
        now = Signal(TIMEOUT_BITS)
        word = data.StructLayout({"when": TIMEOUT_BITS, "again": 1})
        m.submodules.times = times = Memory(shape=word, depth=self.slots, init=[])
        write, read = times.write_port(), times.read_port()
        answer = Signal.like(self.answer)
        confirm, valid = Signal(), Signal()
        cycles = Signal(TIMEOUT_BITS)
        m.d.comb += [
            write.en.eq(self.sent.en),
            write.addr.eq(self.sent.index),
            write.data.when.eq(now),
            write.data.again.eq(self.sent.again),
            read.addr.eq(self.answer.index),
        ]
        m.d.sync += [
            now.eq(now + 1),
            answer.eq(self.answer),
            cycles.eq(now - 1 - read.data.when),
            confirm.eq(answer.confirm),
            valid.eq(answer.en & ~read.data.again),
        ]
        kinds = {"agg": (self.agg, ~confirm)} | ({"ack": (self.ack, confirm)} if self.acknowledges else {})
        for name, (timer, is_kind) in kinds.items():
            m.submodules[name] = part = RoundTripTimer()
            m.d.comb += [
                part.adaptive.eq(self.adaptive),
                part.least.eq(self.least),
                part.most.eq(self.most),
                part.sample.en.eq(valid & is_kind),
                part.sample.cycles.eq(cycles),
                timer.mean.eq(part.mean),
                timer.deviation.eq(part.deviation),
                timer.delay.eq(part.delay),
            ]
        return m
