"""Queue of frames from one clock domain to another."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.hdl import Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.ethernet.async_queue import AsyncQueue, check_capacity


class FrameCrossing(wiring.Component):
    """Queue of frames between two clock domains, which never delivers the end of a frame without its start.

    While the reader is in reset, it takes and drops a word in each cycle, so that the writer is not blocked.
    After the reset, the rest of the current frame is dropped. A reset of ``write`` empties the queue, and a
    frame that is being read may remain incomplete.

    Members
    -------
    ``i`` : In, stream of ``shape``, in the domain ``write``
        Words of frames.
    ``o`` : Out, stream of ``shape``, in the domain ``read``
        Words of frames.
    ``emptied`` : Out, 1, in the domain ``read``
        The queue has been emptied: a frame that has started on ``o`` does not continue.

    Parameters
    ----------
    ``shape`` : StructLayout with a field ``last``
        Layout of a word.
    ``capacity`` : int, words, a power of two from 4
        Size of the queue.

    Latency
    -------
    From ``i`` to ``o``: 1 cycle of ``write``, then 1 to 2 of ``read``. One transfer a cycle in and out; ``i``
    stalls where ``capacity`` - 2 to ``capacity`` words are queued.

    Source
    ------
    docs/systems/boards.md, "Clocks".
    """

    domains = MappingProxyType({"i": "write", "o": "read", "emptied": "read"})

    def __init__(self, *, shape: data.StructLayout, capacity: int):
        check_capacity(capacity)
        self.shape = shape
        self.capacity = capacity
        super().__init__(
            {"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "emptied": Out(1)}
        )

    def elaborate(self, platform: Any) -> Module:
        """Store a bit with each word that marks the start of a frame."""
        m = Module()
        i, o = self.i, self.o
        bits = Value.cast(i.p)
        m.submodules.queue = queue = AsyncQueue(width=len(bits) + 1, capacity=self.capacity)
        begins = Signal(init=1)
        m.d.comb += [
            queue.w_data.eq(Cat(bits, begins)),
            queue.w_en.eq(i.valid & i.ready),
            i.ready.eq(queue.room),
        ]
        with m.If(i.valid & i.ready):
            m.d.write += begins.eq(i.p.last)

        aligned = Signal()  # the reader has reached the start or the end of a frame
        deliver = Signal()
        m.d.comb += [
            Value.cast(o.p).eq(queue.r_data[:-1]),
            deliver.eq(aligned | queue.r_data[-1]),
            o.valid.eq(queue.r_rdy & deliver),
            queue.r_en.eq(o.ready | ~deliver),
            self.emptied.eq(queue.r_rst),
        ]
        with m.If(queue.r_rdy & (deliver | o.p.last)):
            m.d.read += aligned.eq(1)
        return m
