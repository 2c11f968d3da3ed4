"""Cut a compressed frame into the pieces of its words."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec import Bfp
from fanin.hdl.codec.bfp.shapes import Words
from fanin.hdl.stream.lanes import ones_from, rotated
from fanin.hdl.stream.packet import packet_layout, packet_stream

LENGTH_BITS = 32
UNIT = 9  # a byte, and whether the frame has it


def cut_layout(words: Words) -> data.StructLayout:
    """A piece: exponents (if it is the ``first`` of its block), then codes, at the same place in all pieces.

    ``tail`` is the number of the last byte in the frame's last word, and with it ``missing`` says that the
    frame does not have all that this word needs.
    """
    members = {"data": 8 * words.piece_bytes, "first": 1, "last": 1, "missing": 1}
    return data.StructLayout(members | {"tail": range(words.width // 8)})


class PieceCutter(wiring.Component):
    """Cut compressed frames into pieces, as many as their lengths ask for.

    A frame that ends early gives pieces of no meaning for what it lacks; what it has beyond its length is
    dropped.

    Members
    -------
    ``length`` : In, stream of 32 bits
        Bytes of the coming frame when decompressed, at least 1.
    ``i`` : In, packet stream of ``width``
        ``ready`` follows ``o.ready`` within the cycle.
    ``o`` : Out, stream of :func:`cut_layout`

    Parameters
    ----------
    ``width`` : int, bits of a word of binary32 values; 256 or 512
    ``block`` : int, values; 4, 8, 16, 32 or 64
    ``mantissa`` : int, bits; 3 to 15

    Latency
    -------
    3 cycles from a word to a piece that it completes, if the length is there; 3 from the length. One piece a
    cycle; between two frames at most one cycle is lost, when the last piece began in one word and ended in
    the next, and those of the surplus words.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, width: int = 512, block: int = 16, mantissa: int = 7):
        self.width = width
        self.block = block
        self.mantissa = mantissa
        self.words = Words(width, Bfp(block, mantissa))
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "i": In(packet_stream(width)),
                "o": Out(stream.Signature(cut_layout(self.words))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A piece lies in the current word and, if it crosses that word's end, in the one on ``i``."""
        m = Module()
        current = Signal(packet_layout(self.width), reset_less=True)
        full = Signal()  # there is a current word
        over = Signal()  # the frame has ended early
        surplus = Signal()  # what is left of the frame is dropped
        # the piece ends behind the current word; there or at its end
        crosses = Signal()
        closes = Signal()
        advance = Signal()
        cut = Signal()
        refill = Signal()
        ended = Signal()
        busy, final, tail = self._countdown(m, cut)
        i = self.i
        m.d.comb += [
            ended.eq(over | current.last),
            cut.eq(advance & busy & (over | full & (~crosses | current.last | i.valid))),
            refill.eq(Mux(cut, closes | final, ~full & ~over & ~surplus)),
            i.ready.eq(Mux(cut, final | closes & ~ended, ~full & ~over)),  # neither is there in a surplus
        ]
        with m.If(refill):
            m.d.sync += [full.eq(i.valid & ~(cut & (final ^ ended))), current.eq(i.p)]
        m.d.sync += surplus.eq((surplus | cut & final & ~ended) & ~(i.valid & i.p.last))
        m.d.sync += over.eq((over | cut & closes & ended) & ~(cut & final))
        place, later, first = self._places(m, cut, final, crosses, closes)
        beside = {"first": first, "last": final, "tail": tail}
        self._turn(m, advance, cut, self._merged(m, current, later, over), place, beside)
        return m

    def _countdown(self, m: Module, cut: Signal) -> tuple[Signal, Any, Signal]:
        """Whether pieces are to be cut, whether the next one is the last, and that one's last byte."""
        length, tail_bits = self.length, (self.width // 8 - 1).bit_length()
        busy = Signal()
        left = Signal(signed(LENGTH_BITS + 1 - tail_bits), reset_less=True)  # pieces behind the next, less 1
        tail = Signal(tail_bits, reset_less=True)
        final = left[-1]
        starts = Signal()  # with the next length, if there is one
        m.d.comb += [starts.eq(~busy | final), length.ready.eq(~busy | cut & final)]
        with m.If(~busy | cut):
            m.d.sync += [busy.eq(~starts | length.valid), left.eq(left - 1)]
            with m.If(starts):
                m.d.sync += Cat(tail, left).eq(length.payload - (1 + self.width // 8))
        return busy, final, tail

    def _places(self, m: Module, cut: Signal, final: Any, crosses: Signal, closes: Signal) -> Any:
        """Where the next piece begins, its bytes of the word, and whether it is the first of its block."""
        size, words = self.width // 8, self.words
        place = Signal(range(size))  # where the piece begins; a byte before that if it has no exponent
        later = Signal(size, init=-1)
        number = Signal(range(words.per_block))  # of the word in its block
        end = Signal(range(2 * size), init=words.piece_bytes)  # of the piece
        next_end = Signal.like(end)
        ends = number == words.per_block - 1
        following = Mux(ends, words.piece_bytes, words.code_bytes)
        m.d.comb += next_end.eq(Mux(final, words.piece_bytes, end[:-1] + following))
        with m.If(cut):
            m.d.sync += [
                place.eq(Mux(final, 0, Mux(ends, end[:-1], end[:-1] - 1))),
                later.eq(Mux(final, -1, ones_from(end[:-1], size))),
                number.eq(Mux(final, 0, number + 1)),
                end.eq(next_end),
                crosses.eq(next_end[-1] & next_end[:-1].any()),
                closes.eq(next_end[-1]),
            ]
        return place, later, number == 0

    def _merged(self, m: Module, current: Any, later: Signal, over: Signal) -> Signal:
        """The current word from the piece's first byte on, the next one below it, each byte with its keep."""
        size = self.width // 8
        merged = Signal(UNIT * size)
        for n in range(size):
            now, then = (word.data.word_select(n, 8) for word in (current, self.i.p))
            there = Mux(later[n], current.keep[n], self.i.p.keep[n] & ~current.last) & ~over
            m.d.comb += merged.word_select(n, UNIT).eq(Cat(Mux(later[n], now, then), there))
        return merged

    def _turn(self, m: Module, advance: Signal, cut: Signal, merged: Any, place: Signal, beside: Any) -> None:
        """Rotate the piece down in two stages."""
        words, o = self.words, self.o
        turned = Signal.like(merged, reset_less=True)
        rest = Signal(len(place) - 2, reset_less=True)
        waits = Signal()
        held = Signal(data.StructLayout({"first": 1, "last": 1, "tail": len(place)}), reset_less=True)
        piece = Signal(UNIT * words.piece_bytes, reset_less=True)
        m.d.comb += advance.eq(o.ready | ~o.valid)
        with m.If(advance):
            m.d.sync += [waits.eq(cut), o.valid.eq(waits), rest.eq(place[:-2])]
            m.d.sync += turned.eq(rotated(merged, place[-2:], unit=-UNIT * self.width // 32))
            m.d.sync += [held[name].eq(value) for name, value in beside.items()]
            m.d.sync += [o.payload[name].eq(held[name]) for name in beside]
            m.d.sync += piece.eq(rotated(turned, rest, unit=-UNIT)[: len(piece)])
        m.d.comb += o.payload.data.eq(Cat(piece.word_select(n, UNIT)[:8] for n in range(words.piece_bytes)))
        there = Cat(piece.word_select(n, UNIT)[8] for n in range(words.piece_bytes))
        last_block = o.payload.tail[-(words.blocks - 1).bit_length() :] if words.blocks > 1 else 0
        ends = [words.bytes_of(count) - 1 for count in range(1, words.blocks + 1)]
        m.d.comb += o.payload.missing.eq(
            o.payload.last & ~Cat(there[n] for n in ends).bit_select(last_block, 1)
        )
