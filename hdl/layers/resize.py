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
        """Shift transfers in, move them as a group of ``lcm(i, o)`` words, and shift them out."""
        m = Module()
        group = Signal(lcm(self.i, self.o) * WORD_BITS, reset_less=True)
        full = Signal()  # ``group`` holds words
        take = Signal()  # ``group`` moves to the output side
        with m.If(take):
            m.d.sync += full.eq(0)
        self._collect(m, group, full)
        self._send(m, group, full, take)
        return m

    def _collect(self, m: Module, group: Signal, full: Signal) -> None:
        """Collect transfers. The last one waits until ``group`` is empty; at full rate it never waits."""
        source = self.input
        count = len(group) // (self.i * WORD_BITS)
        collected = Signal(range(count))
        last = collected == count - 1
        earlier_words = Signal(len(group) - self.i * WORD_BITS, reset_less=True)
        all_words = Cat(earlier_words, source.payload)
        m.d.comb += source.ready.eq(~(last & full))
        with m.If(source.valid & source.ready):
            m.d.sync += [earlier_words.eq(all_words[self.i * WORD_BITS :]), collected.eq(collected + 1)]
            with m.If(last):
                m.d.sync += [group.eq(all_words), full.eq(1), collected.eq(0)]

    def _send(self, m: Module, group: Signal, full: Signal, take: Signal) -> None:
        """Send the words of ``group``; the next group follows the last transfer without a pause."""
        sink = self.output
        count = len(group) // (self.o * WORD_BITS)
        if count == 1:
            m.d.comb += [sink.valid.eq(full), sink.payload.eq(group), take.eq(full & sink.ready)]
            return
        remaining_words = Signal.like(group)
        transfers_left = Signal(range(count))  # transfers after this one
        m.d.comb += [
            sink.payload.eq(remaining_words[: self.o * WORD_BITS]),
            take.eq(full & (~sink.valid | (transfers_left == 0) & sink.ready)),
        ]
        with m.If(sink.valid & sink.ready):
            m.d.sync += [
                remaining_words.eq(remaining_words >> self.o * WORD_BITS),
                transfers_left.eq(transfers_left - 1),
            ]
            with m.If(transfers_left == 0):
                m.d.sync += sink.valid.eq(0)
        with m.If(take):
            m.d.sync += [remaining_words.eq(group), transfers_left.eq(count - 1), sink.valid.eq(1)]
