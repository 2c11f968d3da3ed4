"""Where the words of a shorter branch wait for those of a longer one."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.layers.interface import word_stream
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO


class SkewQueue(wiring.Component):
    """A queue of words that remembers how full it has been.

    Members
    -------
    ``i`` : In, stream of ``lanes`` words
    ``o`` : Out, stream of ``lanes`` words
    ``highest`` : Out, range(depth + 1)
        The most transfers that it has held at once since reset, as ``StreamFIFO`` counts them.

    Parameters
    ----------
    ``lanes`` : int
        Words of a transfer.
    ``depth`` : int, at least 1
        Transfers; above 64 they lie in block RAM.

    Latency
    -------
    1 cycle from ``i`` to ``o`` when empty; one transfer in and one out a cycle. ``highest`` follows a transfer
    by 2 cycles.

    Source
    ------
    docs/systems/cluster.md, "Layers without weights of their own".
    """

    def __init__(self, *, lanes: int, depth: int):
        self.lanes, self.depth = lanes, depth
        words = word_stream(lanes)
        super().__init__({"i": In(words), "o": Out(words), "highest": Out(range(depth + 1))})

    def elaborate(self, platform: Any) -> Module:
        """A maximum beside a StreamFIFO."""
        m = Module()
        m.submodules.fifo = fifo = StreamFIFO(shape=self.i.payload.shape(), depth=self.depth)
        connect_typed(m, flipped(self.i), fifo.i)
        connect_typed(m, fifo.o, flipped(self.o))
        m.d.sync += self.highest.eq(Mux(fifo.level > self.highest, fifo.level, self.highest))
        return m
