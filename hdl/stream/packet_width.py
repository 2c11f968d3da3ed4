"""Width converters of packet streams, between bytes and words."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Signal
from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.packet import packet_stream


def tailed_layout(width: int, tail: ShapeLike) -> data.StructLayout:
    """Return the layout of a packet's word with a ``tail``: data about the packet, valid with ``last``."""
    return data.StructLayout({"data": width, "keep": width // 8, "last": 1, "tail": tail})


def _check(width: int) -> None:
    if width < 16 or width & (width - 1):
        raise ValueError(f"width must be a power of two from 16, not {width!r}")


class BytesToWords(wiring.Component):
    """Converter from a byte-wide packet stream to words, without back-pressure.

    A word that is not taken is lost.

    Members
    -------
    ``i`` : In, stream of ``tailed_layout(8, tail)``, always ready
        Packets as bytes.
    ``o`` : Out, stream of ``tailed_layout(width, tail)``, always ready
        Packets as words. Bytes without ``keep`` hold old data.

    Parameters
    ----------
    ``width`` : int, bits, a power of two from 16
        Width of a word.
    ``tail`` : any shape
        Shape of the data about a packet.

    Latency
    -------
    1 cycle from a word's last byte to the word; one byte a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, width: int, tail: ShapeLike):
        _check(width)
        self.width = width
        self.tail = tail
        super().__init__(
            {
                "i": In(stream.Signature(tailed_layout(8, tail), always_ready=True)),
                "o": Out(stream.Signature(tailed_layout(width, tail), always_ready=True)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Track the byte's place as a one-hot ring."""
        m = Module()
        i, o = self.i, self.o
        size = self.width // 8
        place = Signal(size, init=1)
        with m.If(i.valid):
            m.d.sync += [place.eq(place.rotate_left(1)), o.p.last.eq(i.p.last), o.p.tail.eq(i.p.tail)]
            with m.If(i.p.last):
                m.d.sync += place.eq(1)
            with m.If(place[0]):
                m.d.sync += o.p.keep.eq(1)
            with m.Else():
                m.d.sync += o.p.keep.eq(Cat(1, o.p.keep))
            for n in range(size):
                with m.If(place[n]):
                    m.d.sync += o.p.data.word_select(n, 8).eq(i.p.data)
        m.d.sync += o.valid.eq(i.valid & (i.p.last | place[-1]))
        return m


class WordsToBytes(wiring.Component):
    """Converter from a packet stream of words to bytes.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits
        Packets as words. ``ready`` is registered and high in every second cycle at most.
    ``o`` : Out, packet stream of 8 bits
        Packets as bytes. Valid in every cycle of a packet if ``i`` offers a word in every second cycle.

    Parameters
    ----------
    ``width`` : int, bits, a power of two from 16
        Width of a word.

    Latency
    -------
    2 cycles from a word to its first byte; one byte a cycle.

    Source
    ------
    docs/reference/streams.md.
    """

    def __init__(self, *, width: int):
        _check(width)
        self.width = width
        super().__init__({"i": In(packet_stream(width)), "o": Out(packet_stream(8))})

    def elaborate(self, platform: Any) -> Module:
        """Hold one word while the bytes of another leave, lowest first.

        ``more``: ``keep`` of the bytes that remain.
        """
        m = Module()
        i, o = self.i, self.o
        waiting = Signal(i.p.shape(), reset_less=True)
        waits = Signal()
        word = Signal(self.width, reset_less=True)
        more = Signal(self.width // 8 - 1, reset_less=True)
        last = Signal(reset_less=True)
        free = Signal()
        load = Signal()
        m.d.comb += [
            i.ready.eq(~waits),
            o.p.data.eq(word[:8]),
            o.p.keep.eq(1),
            o.p.last.eq(last & ~more[0]),
            free.eq(~o.valid | o.ready & ~more[0]),
            load.eq(free & waits),
        ]
        with m.If(~waits):
            m.d.sync += [waiting.eq(i.p), waits.eq(i.valid)]
        with m.If(free):
            m.d.sync += o.valid.eq(waits)
        with m.If(load):
            m.d.sync += [
                waits.eq(0),
                word.eq(waiting.data),
                more.eq(waiting.keep[1:]),
                last.eq(waiting.last),
            ]
        with m.Elif(o.ready):
            m.d.sync += [word.eq(word >> 8), more.eq(more >> 1)]
        return m
