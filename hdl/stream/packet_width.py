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
        """Write each byte to its lane of the word; ``byte_lane`` is one-hot."""
        m = Module()
        i, o = self.i, self.o
        word_bytes = self.width // 8
        byte_lane = Signal(word_bytes, init=1)
        with m.If(i.valid):
            m.d.sync += [byte_lane.eq(byte_lane.rotate_left(1)), o.p.last.eq(i.p.last), o.p.tail.eq(i.p.tail)]
            with m.If(i.p.last):
                m.d.sync += byte_lane.eq(1)
            with m.If(byte_lane[0]):
                m.d.sync += o.p.keep.eq(1)
            with m.Else():
                m.d.sync += o.p.keep.eq(Cat(1, o.p.keep))
            for n in range(word_bytes):
                with m.If(byte_lane[n]):
                    m.d.sync += o.p.data.word_select(n, 8).eq(i.p.data)
        m.d.sync += o.valid.eq(i.valid & (i.p.last | byte_lane[-1]))
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
        """Hold the next word while the bytes of the current one leave, lowest first.

        ``remaining_keep`` has the bits of ``keep`` of the bytes that remain.
        """
        m = Module()
        i, o = self.i, self.o
        next_word = Signal(i.p.shape(), reset_less=True)
        has_next = Signal()
        word = Signal(self.width, reset_less=True)
        remaining_keep = Signal(self.width // 8 - 1, reset_less=True)
        last = Signal(reset_less=True)
        output_free = Signal()
        load = Signal()
        m.d.comb += [
            i.ready.eq(~has_next),
            o.p.data.eq(word[:8]),
            o.p.keep.eq(1),
            o.p.last.eq(last & ~remaining_keep[0]),
            output_free.eq(~o.valid | o.ready & ~remaining_keep[0]),
            load.eq(output_free & has_next),
        ]
        with m.If(~has_next):
            m.d.sync += [next_word.eq(i.p), has_next.eq(i.valid)]
        with m.If(output_free):
            m.d.sync += o.valid.eq(has_next)
        with m.If(load):
            m.d.sync += [
                has_next.eq(0),
                word.eq(next_word.data),
                remaining_keep.eq(next_word.keep[1:]),
                last.eq(next_word.last),
            ]
        with m.Elif(o.ready):
            m.d.sync += [word.eq(word >> 8), remaining_keep.eq(remaining_keep >> 1)]
        return m
