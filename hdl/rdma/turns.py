"""Whose turn it is, of many."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out


def first_of(asking: Value) -> tuple[Value, Value]:
    """Whether a bit is set, and the number of the lowest one: a tree."""
    if len(asking) == 1:
        return asking[0], Const(0, 0)
    half = len(asking) // 2
    (low, low_index), (high, high_index) = first_of(asking[:half]), first_of(asking[half:])
    return low | high, Cat(Mux(low, low_index, high_index), ~low)


class Turns(wiring.Component):
    """Choose the next of those that ask, behind the last one chosen.

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
    ``count`` : int, a power of two, at least 2

    Latency
    -------
    3 cycles from ``i`` and ``last`` to ``o`` and ``valid``.

    Source
    ------
    docs/systems/rdma.md, "Requester".
    """

    def __init__(self, *, count: int):
        if count < 2 or count & (count - 1):
            raise ValueError(f"count must be a power of two from 2, not {count!r}")
        self.count = count
        super().__init__({"i": In(count), "last": In(range(count)), "o": Out(range(count)), "valid": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """Those behind the last one come first, then all."""
        m = Module()
        behind = Signal(self.count)
        asking = Signal(self.count)
        found = Signal(2)
        places = [Signal.like(self.o, name=name) for name in ("place_behind", "place")]
        above_last = (Const(-2, self.count) << self.last)[: self.count]
        m.d.sync += [behind.eq(self.i & above_last), asking.eq(self.i)]
        for n, flags in enumerate((behind, asking)):
            m.d.sync += Cat(found[n], places[n]).eq(Cat(*first_of(flags)))
        m.d.sync += [self.valid.eq(found[1]), self.o.eq(Mux(found[0], *places))]
        return m
