"""The alignment unit: pieces of any number of bytes become words without gaps."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.lanes import chosen, ones_from, rotated
from fanin.hdl.stream.packet import packet_stream

LATENCY = 2


def piece_layout(max_bytes: int) -> data.StructLayout:
    """A piece of a frame: the lowest ``count`` bytes of ``data``, the first lowest; the others mean nothing.

    ``last`` ends the frame, and comes with at least one byte.
    """
    return data.StructLayout({"data": 8 * max_bytes, "count": range(max_bytes + 1), "last": 1})


def _turning(width: int) -> data.StructLayout:
    """A piece that is turned within its quarter, in a word and in what it has ``behind`` that.

    ``ahead`` marks the bytes of the coming word that are the piece's, ``beyond`` those of the word after it
    that are of ``behind``; ``end`` is where the piece ends in its last word, and ``partial`` that this word
    is the frame's last and not full.
    """
    size = width // 8
    members = {"data": width, "behind": width, "quarters": 2, "ahead": size, "beyond": size}
    return data.StructLayout(members | {"last": 1, "partial": 1, "end": range(size)})


def _padded(value: Any, width: int) -> Any:
    return Cat(value, Const(0, width - len(value)))


def _sum_is_not_zero(a: Any, b: Any) -> Any:
    """Whether ``a + b``, cut to the bits of ``a``, is not 0: known without waiting for the sum's carries."""
    return ((a ^ b) ^ ((a | b) << 1))[: len(a)].any()


class BytePacker(wiring.Component):
    """Join the pieces of a frame, byte to byte, into the words of a packet stream.

    A word leaves when it is full; on ``last`` what is left leaves, too. Data bits of bytes that ``keep``
    leaves out mean nothing.

    Members
    -------
    ``i`` : In, stream of :func:`piece_layout`
        ``ready`` follows ``o.ready`` through one LUT.
    ``o`` : Out, packet stream of ``width``

    Parameters
    ----------
    ``width`` : int, bits; a power of two, at least 32
    ``max_bytes`` : int
        The longest piece; 1 to twice the bytes of a word.

    Latency
    -------
    2 cycles from a piece to the word that it completes. A piece takes a cycle for every word that it
    completes, what is left at ``last`` being one, and at least one: pieces of up to a word go in at one a
    cycle, and only the last of a frame may take a second.

    Source
    ------
    INCEPTIONN, section VI-A: the compression engine's alignment unit.
    """

    def __init__(self, *, width: int, max_bytes: int):
        if width < 32 or width & (width - 1):
            raise ValueError(f"width must be a power of two, at least 32, not {width!r}")
        if max_bytes not in range(1, width // 4 + 1):
            raise ValueError(f"max_bytes must be 1 to {width // 4} at width {width}, not {max_bytes!r}")
        self.width = width
        self.max_bytes = max_bytes
        super().__init__({"i": In(stream.Signature(piece_layout(max_bytes))), "o": Out(packet_stream(width))})

    def elaborate(self, platform: Any) -> Module:
        """Turn a piece to its place in the word; then choose, byte by byte, between it and what is held.

        From the byte in which it begins, a piece has the bytes of the word; those before it are held. What
        was turned past the end of the word is held for the next one, as are the bytes of a piece beyond a
        word, which follow in registers of their own.
        """
        m = Module()
        o, size = self.o, self.width // 8
        begin = Signal(range(size))  # where the next piece begins in its word
        valid = Signal()  # ``piece`` has a piece
        words = Signal(3)  # a one for each that it has still to give
        piece = Signal(_turning(self.width), reset_less=True)
        held = Signal(self.width, reset_less=True)
        advance = Signal()
        take = Signal()
        # the piece, and what follows, in their place
        here = Signal(self.width)
        behind = Signal(self.width)
        m.d.comb += [
            advance.eq(o.ready | ~o.valid),
            take.eq(~words[1]),
            self.i.ready.eq(advance & take),
            here.eq(rotated(piece.data, piece.quarters, unit=self.width // 4)),
            behind.eq(rotated(piece.behind, piece.quarters, unit=self.width // 4)),
        ]
        with m.If(advance):
            m.d.sync += [
                o.valid.eq(words[0]),
                o.p.data.eq(chosen(piece.ahead, here, held)),
                o.p.last.eq(piece.last & take),
                o.p.keep.eq(Mux(piece.partial & take, ~ones_from(piece.end, size), -1)),
            ]
            with m.If(valid):
                next_word = here if self.max_bytes <= size else chosen(piece.beyond, behind, here)
                m.d.sync += held.eq(Mux(words[0], next_word, chosen(piece.ahead, here, held)))
            with m.If(take):
                m.d.sync += valid.eq(self.i.valid)
                self._take(m, begin, words, piece)
            with m.Else():  # the next word is whole in ``held``, and ``behind`` has what follows
                m.d.sync += [words.eq(words[1:]), piece.ahead.eq(0), piece.beyond.eq(-1)]
        return m

    def _take(self, m: Module, begin: Signal, words: Signal, piece: Any) -> None:
        """Turn a piece within a quarter of the word; how many words it gives, and where the next one begins."""
        i, bits, size = self.i, len(begin), self.width // 8
        total = Signal(bits + 2)
        m.d.comb += total.eq(begin + i.p.count)
        rest, one, two = total[:bits], total[bits], total[bits + 1]
        more = i.p.last & _sum_is_not_zero(begin, i.p.count[:bits])
        gives = Cat(one | two | more, two | one & more, two & more)
        m.d.sync += [
            words.eq(Mux(i.valid, gives, 0)),
            piece.last.eq(i.p.last),
            piece.partial.eq(more),
            piece.end.eq(rest),
            piece.quarters.eq(begin[-2:]),
            piece.ahead.eq(ones_from(begin, size)),
            piece.beyond.eq(ones_from(begin, size)),
            piece.data.eq(rotated(_padded(i.p.data[: self.width], self.width), begin[:-2])),
            piece.behind.eq(rotated(_padded(i.p.data[self.width :], self.width), begin[:-2])),
        ]
        with m.If(i.valid):
            m.d.sync += begin.eq(Mux(i.p.last, 0, rest))
