"""Credits: how a sender knows that its receiver has room, without asking in the same cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Credits(wiring.Component):
    """Permission to go on: a counter of what is free or waiting, and a registered flag that there is some.

    A counter that starts ``full`` counts free places, for example of a FIFO after a pipeline that cannot stall:
    a payload that enters takes a credit, and gives it back when it leaves the FIFO. One that starts at 0 counts
    what has arrived and waits to be used.

    Members
    -------
    ``restart`` : In(1)
        Set the counter to ``initial``; ``give`` and ``take`` do not count in this cycle.
    ``initial`` : In, range(limit + 1)
    ``give`` : In(1)
        One credit more; never above ``limit``.
    ``take`` : In(1)
        One credit less; only while there is one.
    ``ok`` : Out(1)
        At least one credit is left; registered.
    ``several`` : Out(1)
        At least two are, so that one is left after a ``take``; registered.
    ``count`` : Out, range(limit + 1)
        The credits that are left; registered.

    Parameters
    ----------
    ``limit`` : int, at least 1
    ``full`` : bool
        Whether all credits are there after reset, or none.

    Latency
    -------
    The outputs answer one cycle after ``give`` and ``take``, which both may happen in every cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, limit: int, full: bool = False):
        if not isinstance(limit, int) or limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit!r}")
        self.limit = limit
        self.full = full
        start = limit if full else 0
        super().__init__(
            {
                "restart": In(1),
                "initial": In(range(limit + 1)),
                "give": In(1),
                "take": In(1),
                "ok": Out(1, init=int(start > 0)),
                "several": Out(1, init=int(start > 1)),
                "count": Out(range(limit + 1), init=start),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """The flags are computed beside the counter, so that who reads them waits for no comparison."""
        m = Module()
        count = self.count
        with m.If(self.restart):
            m.d.sync += [
                count.eq(self.initial),
                self.ok.eq(self.initial != 0),
                self.several.eq(self.initial > 1),
            ]
        with m.Elif(self.give != self.take):
            m.d.sync += [
                count.eq(Mux(self.give, count + 1, count - 1)),
                self.ok.eq(self.give | self.several),
                self.several.eq(Mux(self.give, self.ok, count > 2)),
            ]
        return m
