"""Credit counter: lets a sender know one cycle ahead that its receiver has room."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


class Credits(wiring.Component):
    """Counter of credits with registered flags for "at least one" and "at least two".

    With ``full`` the counter starts at ``limit`` and counts free places, for example in a FIFO after a pipeline
    that cannot stall. A payload takes a credit when it enters the pipeline and gives it back when it leaves the
    FIFO. Without ``full`` the counter starts at 0 and counts items that have arrived and wait to be used.

    Members
    -------
    ``restart`` : In(1)
        Set the counter to ``initial``; ``give`` and ``take`` do not count in this cycle.
    ``initial`` : In, range(limit + 1)
        Credits after ``restart``.
    ``give`` : In(1)
        Add one credit. Must not raise the count above ``limit``.
    ``take`` : In(1)
        Remove one credit. Allowed only while ``ok`` is high.
    ``ok`` : Out(1)
        At least one credit is left; registered.
    ``several`` : Out(1)
        At least two credits are left, so one remains after a ``take``; registered.
    ``count`` : Out, range(limit + 1)
        Credits left; registered.

    Parameters
    ----------
    ``limit`` : int, at least 1
        Maximum number of credits.
    ``full`` : bool
        Whether the counter starts at ``limit`` after reset; else it starts at 0 (the default).

    Latency
    -------
    The outputs follow ``give`` and ``take`` by one cycle. ``give`` and ``take`` may be high in every cycle.

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
        """Compute the flags in parallel with the counter, so that no comparison follows its register."""
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
