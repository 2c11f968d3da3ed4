"""What layers that fold over the raster, or handle it word by word, have in common."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal, Value

from fanin.hdl.arith.array import LaneArray
from fanin.hdl.emit import shared
from fanin.layers.layer import REUSE


def apart(m: Module, used_last: Any, rows: int) -> Value:
    """Whether an accumulator may be used, of ``rows`` that are used in turn; ``used_last``: the last one is.

    Low for as long as it takes that each is used ``REUSE`` cycles after its last use, at the earliest.
    """
    rest = max(REUSE - rows, 0)
    if not rest:
        return Value.cast(1)
    left = Signal(range(rest + 1), name="rest")
    may = Signal(name="may_fold", init=1)
    with m.If(used_last):
        m.d.sync += [left.eq(rest - 1), may.eq(0)]
    with m.Elif(left == 0):
        m.d.sync += may.eq(1)
    with m.Else():
        m.d.sync += left.eq(left - 1)
    return may


def scaled(m: Module, words: Any, factor: int, valid: Any, *, name: str) -> tuple[Any, int]:
    """Every word times the binary32 number of the bits ``factor``, and the cycles that it takes."""
    trees = tuple(((lane, 0),) for lane in range(len(words)))
    m.submodules[name] = array = shared(LaneArray(trees=trees))
    m.d.comb += [array.a.eq(words), array.b[0].eq(factor), array.valid.eq(valid)]
    return array.o, array.latency
