"""Conversion between streams of different widths."""

from __future__ import annotations

from math import lcm
from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.stream.connect import connect_typed


def resized(m: Module, name: str, source: Any, *, words: int, i: int, o: int) -> Any:
    """Return ``source``, of ``i`` words a transfer, as a stream of ``o`` words; a Resize converts if needed."""
    if i == o:
        return source
    m.submodules[name] = resize = Resize(words=words, i=i, o=o)
    connect_typed(m, source, resize.input)
    return resize.output


class Resize(wiring.Component):
    """Converter of a stream to another width, in order.

    The converter collects ``lcm(i, o)`` words, a whole number of transfers of both widths, and then sends them.
    A frame is a multiple of ``lcm(i, o)`` words, so no word waits for the next frame.

    Members
    -------
    ``input`` : In, stream of ``i`` words
    ``output`` : Out, stream of ``o`` words

    Parameters
    ----------
    ``words`` : int
        Words of a frame.
    ``i``, ``o`` : int
        Words of a transfer in and out; different, and both divide ``words``.

    Latency
    -------
    From the transfer that completes ``lcm(i, o)`` words to their first output: 1 cycle, or 2 if ``o`` is less
    than ``lcm(i, o)``. The rate is that of the narrower side. All outputs are registered.

    Source
    ------
    docs/systems/layers.md, "Interface of a layer".
    """

    def __init__(self, *, words: int, i: int, o: int):
        for name, width in (("i", i), ("o", o)):
            if width < 1 or words % width:
                raise ValueError(f"{name} must divide the {words} words of a frame, not {width!r}")
        if i == o:
            raise ValueError(f"i and o must differ, not both be {i!r}")
        self.words, self.i, self.o = words, i, o
        super().__init__({"input": In(word_stream(i)), "output": Out(word_stream(o))})

    def elaborate(self, platform: Any) -> Module:
        """Shift transfers in, move them as a whole, and shift them out."""
        m = Module()
        whole = Signal(lcm(self.i, self.o) * WORD_BITS, reset_less=True)
        full = Signal()  # ``whole`` holds words
        take = Signal()  # ``whole`` is taken
        with m.If(take):
            m.d.sync += full.eq(0)
        self._collect(m, whole, full)
        self._give(m, whole, full, take)
        return m

    def _collect(self, m: Module, whole: Signal, full: Signal) -> None:
        """Collect transfers. The last one waits until ``whole`` is empty, which is no wait at full rate."""
        source = self.input
        count = len(whole) // (self.i * WORD_BITS)
        have = Signal(range(count))
        last = have == count - 1
        older = Signal(len(whole) - self.i * WORD_BITS, reset_less=True)
        every = Cat(older, source.payload)
        m.d.comb += source.ready.eq(~(last & full))
        with m.If(source.valid & source.ready):
            m.d.sync += [older.eq(every[self.i * WORD_BITS :]), have.eq(have + 1)]
            with m.If(last):
                m.d.sync += [whole.eq(every), full.eq(1), have.eq(0)]

    def _give(self, m: Module, whole: Signal, full: Signal, take: Signal) -> None:
        """Send the words of ``whole``; the next ``whole`` follows the last transfer."""
        sink = self.output
        count = len(whole) // (self.o * WORD_BITS)
        if count == 1:
            m.d.comb += [sink.valid.eq(full), sink.payload.eq(whole), take.eq(full & sink.ready)]
            return
        rest = Signal.like(whole)
        left = Signal(range(count))  # transfers after this one
        m.d.comb += [
            sink.payload.eq(rest[: self.o * WORD_BITS]),
            take.eq(full & (~sink.valid | (left == 0) & sink.ready)),
        ]
        with m.If(sink.valid & sink.ready):
            m.d.sync += [rest.eq(rest >> self.o * WORD_BITS), left.eq(left - 1)]
            with m.If(left == 0):
                m.d.sync += sink.valid.eq(0)
        with m.If(take):
            m.d.sync += [rest.eq(whole), left.eq(count - 1), sink.valid.eq(1)]
