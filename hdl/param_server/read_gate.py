"""Gate for reads of a row that is still being written: each read waits until its words are in memory."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import MAX_BURST, AXI4ReadSignature
from fanin.hdl.param_server.shapes import WORDS_BITS
from fanin.rdma.facts import RdmaConfig


class ReadGate(wiring.Component):
    """Gate that holds each burst that reads w until its words have landed in memory.

    w of each row is read while the row is still being written. A row consists of a head of one word, ``words``
    words of w, and ``tail`` words. Words land in this order, row after row.

    Members
    -------
    ``start`` : In, 1
        Pulse: row 0 is in memory, and nothing has been written since. Allowed only while nothing is in flight.
    ``words``, ``tail`` : In
        Words of w in a row, and words after w in a row; stable from 2 cycles before ``start`` on.
    ``landed`` : In, range(257)
        Number of additional words of the rows, in order, that are now in memory.
    ``reader`` : In, AXI4 read port
        Reads of w of each row, in increasing order. No burst contains words of two rows.
    ``axi`` : Out, AXI4 read port
        The same reads, each issued after its words have landed.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Data and address width.

    Latency
    -------
    A burst every 4 cycles. A waiting burst passes 3 cycles after ``landed`` has counted its last word. 0 cycles
    for data.

    Source
    ------
    docs/systems/param-server-hardware.md, "Rows in turn".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        axi = AXI4ReadSignature(data_width=config.width, address_width=config.address_width)
        super().__init__(
            {
                "start": In(1),
                "words": In(WORDS_BITS),
                "tail": In(8),
                "landed": In(range(MAX_BURST + 1)),
                "reader": In(axi),
                "axi": Out(axi),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count in ``credit`` the landed words, starting at the next word of w to read.

        A burst costs its words. A row's last burst also costs the words up to the next row's first word of w,
        which are not read. These words may not have landed, so the credit can be negative. Three sums are
        registered one after the other: cost of the burst, change of the credit, credit.
        """
        m = Module()
        reader, axi = self.reader, self.axi
        credit = Signal(signed(WORDS_BITS + 2))
        change = Signal(signed(len(self.landed) + 2))
        cost = Signal(len(self.landed) + 1)
        words = Signal(len(self.landed))  # words of the burst
        words_left = Signal(WORDS_BITS)  # words of this row's w not read yet
        gap = Signal(len(self.tail) + 1)  # words from a row's last word of w to the next row's first
        ends_row = words_left == words  # the burst reads the last words of w
        issued = Signal()
        for name, member in axi.signature.members.items():
            source, target = (reader, axi) if member.flow == Out else (axi, reader)
            if name not in ("arvalid", "arready"):
                m.d.comb += getattr(target, name).eq(getattr(source, name))
        m.d.comb += issued.eq(axi.arvalid & axi.arready)
        m.d.sync += [
            gap.eq(self.tail + 1),
            words.eq(reader.arlen + 1),
            change.eq(self.landed - Mux(issued, cost, 0)),
            credit.eq(credit + change),
        ]
        with m.FSM():
            with m.State("MEASURE"), m.If(reader.arvalid):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                m.d.sync += cost.eq(words + Mux(ends_row, gap, 0))
                with m.If(credit > reader.arlen):
                    m.next = "ISSUE"
            with m.State("ISSUE"):
                m.d.comb += axi.arvalid.eq(1)
                with m.If(axi.arready):
                    m.d.sync += [
                        reader.arready.eq(1),
                        words_left.eq(Mux(ends_row, self.words, words_left - words)),
                    ]
                    m.next = "TAKEN"
            with m.State("TAKEN"):
                m.d.sync += reader.arready.eq(0)
                m.next = "MEASURE"
        with m.If(self.start):
            m.d.sync += [credit.eq(self.words + self.tail), words_left.eq(self.words)]
        return m
