"""Whose turn it is."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class RoundRobin(wiring.Component):
    """Choose one of those who ask: the next one behind the last whose turn it was.

    Members
    -------
    ``i`` : In, one bit for each
        Asks for a turn.
    ``last`` : In, range(count)
        Whose turn it was.
    ``o`` : Out, range(count)
    ``valid`` : Out, 1
        There is one.

    Parameters
    ----------
    ``count`` : int, at least 2

    Latency
    -------
    1 cycle from ``i`` and ``last`` to ``o`` and ``valid``.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, count: int):
        if count < 2:
            raise ValueError(f"count must be at least 2, not {count!r}")
        self.count = count
        super().__init__({"i": In(count), "last": In(range(count)), "o": Out(range(count)), "valid": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """The first one behind the last; or else the first. Later statements win."""
        m = Module()
        first = Signal.like(self.o)
        next_one = Signal.like(self.o)
        behind = Signal()
        for index in reversed(range(self.count)):
            with m.If(self.i[index]):
                m.d.comb += first.eq(index)
            with m.If(self.i[index] & (self.last < index)):
                m.d.comb += [next_one.eq(index), behind.eq(1)]
        m.d.sync += [self.valid.eq(self.i.any()), self.o.eq(first)]
        with m.If(behind):
            m.d.sync += self.o.eq(next_one)
        return m
