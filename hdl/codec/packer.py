"""Alignment unit: packs pieces of any number of bytes into words without gaps."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.stream.lanes import ones_from, rotated, select_lanes
from fanin.hdl.stream.packet import packet_stream

LATENCY = 2


def piece_layout(max_bytes: int) -> data.StructLayout:
    """Return the layout of a piece of a frame: the lowest ``count`` bytes of ``data``, the first lowest.

    Other bytes of ``data`` are undefined. ``last`` ends the frame and needs at least one byte.
    """
    return data.StructLayout({"data": 8 * max_bytes, "count": range(max_bytes + 1), "last": 1})


def _rotated_layout(width: int) -> data.StructLayout:
    """Return the layout of a piece that is rotated towards byte ``begin`` of a word, except by whole quarters.

    ``first``: from ``begin`` on bytes of the first word, below ``begin`` bytes of the second word.
    ``second``: for a piece longer than a word, from ``begin`` on further bytes of the second word.
    ``begin``: byte of the word at which the piece begins.
    ``end``: bytes so far in the piece's last word.
    ``last``: the piece ends the frame.
    ``partial``: the piece's last word is the frame's last and is not full.
    """
    index = range(width // 8)
    return data.StructLayout(
        {"first": width, "second": width, "begin": index, "end": index, "last": 1, "partial": 1}
    )


class BytePacker(wiring.Component):
    """Packer that joins the pieces of a frame, byte to byte, into the words of a packet stream.

    A word leaves when it is full. The frame's ``last`` piece also sends a partial word. Data bits of bytes
    outside ``keep`` are undefined.

    Members
    -------
    ``i`` : In, stream of :func:`piece_layout`
        Pieces. ``ready`` depends combinationally on ``o.ready``, through one LUT.
    ``o`` : Out, packet stream of ``width``
        Words.

    Parameters
    ----------
    ``width`` : int
        Bits of a word; a power of two, at least 32.
    ``max_bytes`` : int
        Bytes of the longest piece; 1 to twice the bytes of a word.
    ``unit`` : int
        Bytes of which each piece has a multiple, except the last piece of a frame; a power of two, at most the
        bytes of a word. A larger unit needs fewer multiplexers. Default 1.

    Latency
    -------
    2 cycles from a piece to the word that it completes. A piece takes one cycle for every word that it
    completes, including a partial word at ``last``, and at least one. Pieces of up to a word therefore enter at
    one a cycle, and only the last of a frame may take a second cycle.

    Source
    ------
    INCEPTIONN, section VI-A: the compression engine's alignment unit.
    """

    def __init__(self, *, width: int, max_bytes: int, unit: int = 1):
        if width < 32 or width & (width - 1):
            raise ValueError(f"width must be a power of two, at least 32, not {width!r}")
        if max_bytes not in range(1, width // 4 + 1):
            raise ValueError(f"max_bytes must be 1 to {width // 4} at width {width}, not {max_bytes!r}")
        if unit < 1 or unit & (unit - 1) or unit > width // 8:
            raise ValueError(f"unit must be a power of two, 1 to {width // 8} at width {width}, not {unit!r}")
        self.width = width
        self.max_bytes = max_bytes
        self.unit = unit
        super().__init__({"i": In(stream.Signature(piece_layout(max_bytes))), "o": Out(packet_stream(width))})

    def elaborate(self, platform: Any) -> Module:
        """Rotate each piece in two stages, then merge it with the leftover bytes of earlier pieces.

        Stage 1 (``_take``) registers a piece, rotated to its first byte except by whole quarters of a word;
        stage 2 rotates by these. The next word consists of the piece's bytes from ``begin`` on and the
        ``leftover`` bytes below. A full word leaves, and the piece's other bytes become the new ``leftover``.
        Otherwise the merged word becomes the new ``leftover``.
        """
        m = Module()
        o, size = self.o, self.width // 8
        valid = Signal()  # ``piece`` is valid
        piece = Signal(_rotated_layout(self.width), reset_less=True)
        words = Signal(2)  # words that the piece completes and that have not left
        leftover = Signal(self.width, reset_less=True)
        advance = Signal()
        final = Signal()  # the piece has no more words after this cycle
        first = Signal(self.width)
        second = Signal(self.width)
        merged = Signal(self.width)
        from_begin = ones_from(piece.begin, size)
        m.d.comb += [
            advance.eq(o.ready | ~o.valid),
            final.eq(words <= 1),
            self.i.ready.eq(advance & final),
            first.eq(rotated(piece.first, piece.begin[-2:], unit=self.width // 4)),
            second.eq(rotated(piece.second, piece.begin[-2:], unit=self.width // 4)),
            merged.eq(select_lanes(from_begin, first, leftover)),
        ]
        with m.If(advance):
            m.d.sync += [
                o.valid.eq(words != 0),
                o.p.data.eq(merged),
                o.p.last.eq(piece.last & final),
                o.p.keep.eq(Mux(piece.partial & final, ~ones_from(piece.end, size), -1)),
            ]
            with m.If(valid):
                next_word = first if self.max_bytes <= size else select_lanes(from_begin, second, first)
                m.d.sync += leftover.eq(Mux(words != 0, next_word, merged))
            with m.If(final):
                m.d.sync += valid.eq(self.i.valid)
                self._take(m, words, piece)
            with m.Else():
                m.d.sync += [words.eq(words - 1), piece.first.eq(piece.second)]
        return m

    def _take(self, m: Module, words: Signal, piece: Any) -> None:
        """Build stage 1: rotate the piece on ``i``, and count the words that it completes."""
        i, size = self.i, self.width // 8
        unit_bits = self.unit.bit_length() - 1
        unit = Signal(range(size // self.unit))
        begin = Cat(Const(0, unit_bits), unit)  # byte of its word at which the piece on ``i`` begins
        end = Signal(range(size))  # bytes of the piece's last word
        full = Signal(2)  # words that the piece fills
        partial = Signal()
        m.d.comb += [
            Cat(end, full).eq(begin + i.p.count),
            partial.eq(i.p.last & (end != 0)),
        ]
        padded = Cat(i.p.data, Const(0, 2 * self.width - len(i.p.data)))
        m.d.sync += [
            words.eq(Mux(i.valid, full + partial, 0)),
            piece.last.eq(i.p.last),
            piece.partial.eq(partial),
            piece.begin.eq(begin),
            piece.end.eq(end),
            piece.first.eq(rotated(padded[: self.width], begin[:-2])),
            piece.second.eq(rotated(padded[self.width :], begin[:-2])),
        ]
        with m.If(i.valid):
            m.d.sync += unit.eq(Mux(i.p.last, 0, end[unit_bits:]))
