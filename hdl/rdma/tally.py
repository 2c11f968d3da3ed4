"""A number of things that have come and not yet been used."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Tally(wiring.Component):
    """Count up and down, and tell whether the count is 0.

    Members
    -------
    ``up``, ``down`` : In(1)
        One more, one less; both at once change nothing. ``down`` only while there are ``some``, ``up`` only
        below the limit.
    ``some`` : Out(1)
        The count is not 0; registered.

    Parameters
    ----------
    ``limit`` : int, the highest count; at least 1

    Latency
    -------
    1 cycle.

    Source
    ------
    docs/systems/rdma.md.
    """

    def __init__(self, *, limit: int):
        if not isinstance(limit, int) or limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit!r}")
        self.limit = limit
        super().__init__({"up": In(1), "down": In(1), "some": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """``some`` is known a cycle ahead, so that nothing waits for a comparison."""
        m = Module()
        count = Signal(range(self.limit + 1))
        with m.If(self.up & ~self.down):
            m.d.sync += [count.eq(count + 1), self.some.eq(1)]
        with m.Elif(self.down & ~self.up):
            m.d.sync += [count.eq(count - 1), self.some.eq(count != 1)]
        return m
