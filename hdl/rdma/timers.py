"""Timers of the queue pairs."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed

TIMEOUT_BITS = 32


class Timers(wiring.Component):
    """Timers, one for each queue pair.

    The timers share one adder, which visits one timer a cycle. A timer may therefore expire late, by at most as
    many cycles as there are timers.

    Members
    -------
    ``timeout`` : In, 32
        Timeout in cycles, rounded down to a multiple of the number of timers.
    ``waiting`` : In, one bit for each timer
        The timer runs; 0: it stays at 0.
    ``restart`` : In, one bit for each timer
        Pulse: set the timer to 0 and clear ``expired``.
    ``expired`` : Out, one bit for each timer
        The timer has run for ``timeout`` cycles; holds until ``restart``.

    Parameters
    ----------
    ``count`` : int
        Number of timers, a power of two, at least 2.

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
        """Keep each timer's age in a word of memory, counted in rounds of visits.

        A visit takes three cycles: read whether the timer was stopped since its last visit, read its age,
        compare the age with the limit. A stop (a restart, or a timer that does not run) is stored until the
        visit; it takes precedence over the comparison.
        """
        m = Module()
        step_bits = (self.count - 1).bit_length()
        limit = Signal(TIMEOUT_BITS - step_bits)
        age_bits = len(limit) + 1  # large enough to exceed the greatest limit
        m.submodules.ages = ages = Memory(shape=age_bits, depth=self.count, init=[])
        read, write = ages.read_port(domain="comb"), ages.write_port()
        visit = Signal(step_bits)
        stopped = Signal(self.count)
        # The timers visited one and two cycles ago:
        _, visited, compared = delayed(m, visit, 2, name="visit")
        visited_stopped = Signal()
        compared_stopped = Signal()
        compared_over = Signal()  # the age is above the limit
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
            compared_stopped.eq(visited_stopped),
            compared_over.eq(read.data > limit),
            self.expired.eq(
                (self.expired | ((compared_over & ~compared_stopped) << compared) & ~stopped) & ~stop
            ),
        ]
        return m
