"""One timer for each queue pair."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed

TIMEOUT_BITS = 32


class Timers(wiring.Component):
    """One timer for each queue pair: which of them have expired.

    The timers share one adder, which visits one of them a cycle; so a timer may expire later than it should, by
    as many cycles as there are timers.

    Members
    -------
    ``timeout`` : In, 32
        Cycles; taken in steps of as many as there are timers.
    ``waiting`` : In, one bit for each timer
        The timer runs; else it stands at 0.
    ``restart`` : In, one bit for each timer
        Pulse: it begins anew, and is not expired.
    ``expired`` : Out, one bit for each timer
        It has run for ``timeout`` cycles; holds until ``restart``.

    Parameters
    ----------
    ``count`` : int, a power of two, at least 2

    Latency
    -------
    ``expired`` rises ``timeout`` to ``timeout`` + 2 · ``count`` + 3 cycles after the timer began to run.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, count: int):
        if count < 2 or count & (count - 1):
            raise ValueError(f"count must be a power of two from 2, not {count!r}")
        self.count = count
        super().__init__(
            {
                "timeout": In(TIMEOUT_BITS),
                "waiting": In(count),
                "restart": In(count),
                "expired": Out(count),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A timer's age is a word of memory, counted in rounds of the visits.

        A visit takes three cycles: was the timer stopped since its last visit, what is its age, is that above
        the limit. A stop (a restart, or a timer that does not run) is remembered until the visit, and wins over
        one that is being judged.
        """
        m = Module()
        step_bits = (self.count - 1).bit_length()
        limit = Signal(TIMEOUT_BITS - step_bits)
        age_bits = len(limit) + 1  # the greatest limit, too, is exceeded
        m.submodules.ages = ages = Memory(shape=age_bits, depth=self.count, init=[])
        read, write = ages.read_port(domain="comb"), ages.write_port()
        visit = Signal(step_bits)
        stopped = Signal(self.count)
        # of the timer visited one cycle ago, and of the one two cycles ago:
        _, visited, judged = delayed(m, visit, 2, name="visit")
        visited_stopped = Signal()
        judged_stopped = Signal()
        judged_over = Signal()  # its age is above the limit
        stop = Signal(self.count)
        m.d.comb += [
            stop.eq(self.restart | ~self.waiting),
            read.addr.eq(visited),
            write.addr.eq(visited),
            write.en.eq(1),
            write.data.eq(Mux(visited_stopped, 0, read.data) + 1),
        ]
        m.d.sync += [
            limit.eq(self.timeout[step_bits:]),
            visit.eq(visit + 1),
            visited_stopped.eq(stopped.bit_select(visit, 1)),
            stopped.eq(stopped & ~(1 << visit) | stop),
            judged_stopped.eq(visited_stopped),
            judged_over.eq(read.data > limit),
            self.expired.eq((self.expired | ((judged_over & ~judged_stopped) << judged) & ~stopped) & ~stop),
        ]
        return m
