"""Reads of a row that is still being written: each waits until memory has what it asks for."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.bus.axi4 import MAX_BURST, AXI4ReadSignature
from fanin.hdl.param_server.shapes import WORDS_BITS
from fanin.rdma import RdmaConfig


class ReadGate(wiring.Component):
    """Let bursts that read w out of row after row pass once the words have landed that the last row is made of.

    A row has its head, ``words`` words that are read, and ``tail`` more; they land in this order.

    Members
    -------
    ``start`` : In, 1
        Pulse: nothing has been written yet, and row 0 is there; only while nothing is under way.
    ``words``, ``tail`` : In
        Stable from 2 cycles before ``start`` on.
    ``landed`` : In, range(257)
        So many words of the rows are in memory now.
    ``reader`` : In, AXI4 read port
        Of each row, the words of w in increasing order, in bursts that are its own.
    ``axi`` : Out, AXI4 read port

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    A burst every 4 cycles; one that waits passes 3 cycles after ``landed`` told of its last word. 0 cycles for
    data.

    Source
    ------
    docs/systems/param-server.md, "Rows in turn".
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
        """``credit`` words behind the next one to be read are there. One addition at a time."""
        m = Module()
        reader, axi = self.reader, self.axi
        credit = Signal(signed(WORDS_BITS + 2))
        left = Signal(WORDS_BITS)  # words of this row that were not read, less one
        whole = Signal(WORDS_BITS)  # and when none was
        rest = Signal(signed(WORDS_BITS + 1))  # and behind the burst; negative: it ends the row
        between = Signal(len(self.tail) + 1)  # the last word of a row and the first of the next one
        cost = Signal(len(self.landed) + 1)  # of the burst, and of what is not read behind it
        change = Signal(signed(len(cost) + 1))
        passes = Signal()
        for name, member in axi.signature.members.items():
            source, target = (reader, axi) if member.flow == Out else (axi, reader)
            if name not in ("arvalid", "arready"):
                m.d.comb += getattr(target, name).eq(getattr(source, name))
        m.d.comb += passes.eq(axi.arvalid & axi.arready)
        m.d.sync += [
            change.eq(self.landed - Mux(passes, cost, 0)),
            credit.eq(credit + change),
            whole.eq(self.words - 1),
            between.eq(self.tail + 2),
            rest.eq(left + ~Cat(reader.arlen, Const(0, 1)).as_signed()),  # - n - 1 is + ~n
        ]
        with m.FSM():
            with m.State("MEASURE"), m.If(reader.arvalid):
                m.next = "COMPARE"
            with m.State("COMPARE"):
                # Behind w the tail and the next row's head are passed over.
                m.d.sync += cost.eq(reader.arlen + Mux(rest < 0, between, 1))
                with m.If(credit > reader.arlen):
                    m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += axi.arvalid.eq(1)
                with m.If(axi.arready):
                    m.d.sync += [reader.arready.eq(1), left.eq(Mux(rest < 0, whole, rest))]
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.sync += reader.arready.eq(0)
                m.next = "MEASURE"
        with m.If(self.start):
            m.d.sync += [credit.eq(self.words + self.tail), left.eq(whole)]
        return m
