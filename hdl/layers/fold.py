"""Accumulators that take one term each in turn."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.layer import REUSE
from fanin.hdl.arith.array import AdderArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import shared


class Fold(wiring.Component):
    """``depth`` accumulators of ``lanes`` words. A round has one term for every accumulator, in fixed order.

    A sum begins at +0. Two terms of an accumulator are at least ``REUSE`` cycles apart.

    Members
    -------
    ``valid`` : In(1)
        ``i`` holds a term of the next accumulator.
    ``first``, ``last`` : In(1)
        The term belongs to the first or last round.
    ``i`` : In, ``lanes`` words
    ``o_valid`` : Out(1)
        A sum is complete.
    ``o`` : Out, ``lanes`` words

    Parameters
    ----------
    ``lanes`` : int, at least 1
    ``depth`` : int, at least 1

    Latency
    -------
    ``LATENCY``, 8 cycles from the last term to the sum; a term a cycle.

    Source
    ------
    docs/systems/layers.md, "Numbers": fold.
    """

    LATENCY = REUSE

    def __init__(self, *, lanes: int, depth: int):
        self.lanes, self.depth = lanes, depth
        word = data.ArrayLayout(WORD_BITS, lanes)
        super().__init__(
            {
                "valid": In(1),
                "first": In(1),
                "last": In(1),
                "i": In(word),
                "o_valid": Out(1),
                "o": Out(word),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read the accumulator while its term waits one cycle; the read includes a write of the same cycle."""
        m = Module()
        m.submodules.adder = adder = shared(AdderArray(lanes=self.lanes))
        m.submodules.memory = memory = Memory(shape=self.o.shape(), depth=self.depth, init=[])
        write = memory.write_port()
        read = memory.read_port(transparent_for=(write,))
        entry = Signal(range(self.depth))
        with m.If(self.valid):
            m.d.sync += entry.eq(Mux(entry == self.depth - 1, 0, entry + 1))
        valid = delayed(m, self.valid, self.LATENCY, name="valid", reset_less=False)
        last = delayed(m, self.last, self.LATENCY, name="last")
        first = delayed(m, self.first, 1, name="first")
        term = delayed(m, self.i, 1, name="term")
        m.d.comb += [
            read.addr.eq(entry),
            adder.valid.eq(valid[1]),
            adder.a.eq(Mux(first[1], 0, read.data)),
            adder.b.eq(term[1]),
            write.addr.eq(delayed(m, entry, self.LATENCY, name="entry")[-1]),
            write.data.eq(adder.o),
            write.en.eq(valid[-1]),
            self.o.eq(adder.o),
            self.o_valid.eq(valid[-1] & last[-1]),
        ]
        return m
