"""Queue of words for a pipeline that takes each word a fixed time before it uses the word."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO

#: Members of a component that takes words. ``ok``: a word is available. ``take``: the component takes the word.
SUPPLY_MEMBERS = {"ok": In(1), "take": Out(1)}


class WordSupply(wiring.Component):
    """Queue for a pipeline that cannot stall: a step takes a word when it begins, and uses it later.

    Members
    -------
    ``i`` : In, stream of ``lanes`` words
    ``ok`` : Out(1)
        A word can be taken; registered.
    ``take`` : In(1)
        Take a word; only while ``ok``.
    ``o`` : Out, ``lanes`` words
        The word that was taken ``latency`` cycles ago, or with ``hold`` the last one up to then.

    Parameters
    ----------
    ``lanes`` : int, at least 1
        Words of a transfer.
    ``latency`` : int, at least 0
        Cycles from ``take`` to ``o``.
    ``hold`` : bool
        Keep each word on ``o`` until the next one.

    Latency
    -------
    1 cycle from ``i`` to ``ok``, ``latency`` cycles from ``take`` to ``o``; a word a cycle.

    Source
    ------
    docs/systems/layers.md, "Parameters in memory".
    """

    def __init__(self, *, lanes: int, latency: int, hold: bool = False):
        self.lanes, self.latency, self.hold = lanes, latency, hold
        word = data.ArrayLayout(WORD_BITS, lanes)
        super().__init__({"i": In(word_stream(lanes)), "ok": Out(1), "take": In(1), "o": Out(word)})

    def elaborate(self, platform: Any) -> Module:
        """Build a queue of ``latency`` + 2 places: at full rate a word holds its place so many cycles."""
        m = Module()
        places = self.latency + 2
        m.submodules.fifo = fifo = StreamFIFO(shape=self.o.shape(), depth=places)
        m.submodules.credits = credits = Credits(limit=places)
        connect_typed(m, wiring.flipped(self.i), fifo.i)
        taken = delayed(m, self.take, self.latency, name="taken", reset_less=False)[-1]
        m.d.comb += [
            self.ok.eq(credits.ok),
            credits.give.eq(self.i.valid & self.i.ready),
            credits.take.eq(self.take),
            fifo.o.ready.eq(taken),
            self.o.eq(fifo.o.payload),
        ]
        if self.hold:
            held = Signal(self.o.shape(), reset_less=True)
            with m.If(taken):
                m.d.sync += held.eq(fifo.o.payload)
            with m.Else():
                m.d.comb += self.o.eq(held)
        return m
