"""Counter of rows that are completely in memory."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import MAX_BURST
from fanin.hdl.param_server.shapes import WORDS_BITS


class RowLandings(wiring.Component):
    """Counter that pulses for each row whose words have all landed in memory.

    Members
    -------
    ``start`` : In, 1
        Pulse: reset; allowed only while no write of a row is in flight.
    ``words`` : In
        Words of a row, at least 3.
    ``landed`` : In, range(257)
        Number of additional words of the rows, in order, that are now in memory; on average one word a cycle.
    ``row`` : Out, 1
        Pulse: another row is in memory.

    Parameters
    ----------
    None.

    Latency
    -------
    3 cycles; one row every 3 cycles.

    Source
    ------
    docs/systems/param-server-hardware.md, "Rounds".
    """

    def __init__(self) -> None:
        super().__init__(
            {"start": In(1), "words": In(WORDS_BITS), "landed": In(range(MAX_BURST + 1)), "row": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Count in ``credit`` the landed words of rows that have not been reported.

        Each sum and the comparison are registered. A row's words are subtracted from ``credit`` 2 cycles after
        its pulse; until then no other row is reported.
        """
        m = Module()
        change = Signal.like(self.words + self.landed)
        credit = Signal.like(change)
        row_delayed = Signal()
        m.d.sync += [
            change.eq(self.landed - Mux(self.row, self.words, 0)),
            credit.eq(credit + change),
            self.row.eq((credit >= self.words) & ~self.row & ~row_delayed),
            row_delayed.eq(self.row),
        ]
        with m.If(self.start):
            m.d.sync += [change.eq(0), credit.eq(0), self.row.eq(0)]
        return m
