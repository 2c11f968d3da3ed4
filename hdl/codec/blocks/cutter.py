"""Cutter of compressed frames into the pieces of their words."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.codec.blocks.shapes import Words
from fanin.hdl.stream.lanes import ones_from, rotated
from fanin.hdl.stream.packet import packet_layout, packet_stream

LENGTH_BITS = 32
UNIT = 9  # bits of a byte and its keep flag


def cut_layout(words: Words) -> data.StructLayout:
    """Return the layout of a piece: scales (in the ``first`` piece of a block), then codes.

    Codes are at the same place in all pieces. With ``last``, ``tail`` is the index of the last byte in the
    frame's last word, and ``missing`` is 1 if the frame lacks data that this word needs.
    """
    members = {"data": words.piece_bits, "first": 1, "last": 1, "missing": 1}
    return data.StructLayout(members | {"tail": range(words.width // 8)})


def cutter_latency(words: Words) -> int:
    """Return the cycles from a word on a :class:`PieceCutter`'s input to a piece that it completes."""
    return 3 if words.whole_bytes else 4


class PieceCutter(wiring.Component):
    """Cutter of compressed frames into pieces; the frame's length determines their number.

    A frame that ends early yields undefined pieces for the missing data. Data beyond the length are dropped.

    Members
    -------
    ``length`` : In, stream of 32 bits
        Decompressed bytes of the next frame, at least 1.
    ``i`` : In, packet stream of ``width``
        Compressed frames. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, stream of :func:`cut_layout`
        Pieces.

    Parameters
    ----------
    ``words`` : Words
        Word width and format.

    Latency
    -------
    :func:`cutter_latency` cycles from a word to a piece that it completes, if the length is present, and the
    same from the length: 3, or 4 if a word's scales are not whole bytes. One piece a cycle. Between two
    frames at most one cycle is lost, if the last piece began in one word and ended in the next; each surplus
    word takes one more.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, words: Words):
        self.words = words
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "i": In(packet_stream(words.width)),
                "o": Out(stream.Signature(cut_layout(self.words))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Cut each piece from the ``current`` word and, if it ``crosses`` that word's end, from ``i``.

        ``take`` cuts a piece. A new current word is needed if the piece ``closes`` the old one, by reaching or
        crossing its end. A frame that has ``ended`` before its last piece still yields all pieces, with
        undefined data. A frame with a ``surplus`` continues after its last piece and is dropped up to its end.
        """
        m = Module()
        current = Signal(packet_layout(self.words.width), reset_less=True)
        full = Signal()  # ``current`` is valid
        ended = Signal()
        surplus = Signal()
        crosses = Signal()
        closes = Signal()
        advance = Signal()
        take = Signal()
        refill = Signal()
        at_end = Signal()  # no word of the frame follows the current one
        busy, final, tail = self._countdown(m, take)
        i = self.i
        m.d.comb += [
            at_end.eq(ended | current.last),
            take.eq(advance & busy & (ended | full & (~crosses | current.last | i.valid))),
            refill.eq(Mux(take, closes | final, ~full & ~ended & ~surplus)),
            i.ready.eq(Mux(take, final | closes & ~at_end, ~full & ~ended)),  # also during a surplus
        ]
        with m.If(refill):
            m.d.sync += [full.eq(i.valid & ~(take & (final ^ at_end))), current.eq(i.p)]
        m.d.sync += surplus.eq((surplus | take & final & ~at_end) & ~(i.valid & i.p.last))
        m.d.sync += ended.eq((ended | take & closes & at_end) & ~(take & final))
        begin, from_begin, first = self._positions(m, take, final, crosses, closes)
        flags = {"first": first, "last": final, "tail": tail}
        self._align(m, advance, take, self._merged(m, current, from_begin, ended), begin, flags)
        return m

    def _countdown(self, m: Module, take: Signal) -> tuple[Signal, Any, Signal]:
        """Return whether pieces remain, whether the next piece is the last, and the last one's last byte."""
        length, tail_bits = self.length, (self.words.width // 8 - 1).bit_length()
        busy = Signal()
        # Pieces after the next one, less 1.
        pieces_left = Signal(signed(LENGTH_BITS + 1 - tail_bits), reset_less=True)
        tail = Signal(tail_bits, reset_less=True)
        final = pieces_left[-1]
        starts = Signal()  # the next piece begins a new frame, if its length is present
        m.d.comb += [starts.eq(~busy | final), length.ready.eq(~busy | take & final)]
        with m.If(~busy | take):
            m.d.sync += [busy.eq(~starts | length.valid), pieces_left.eq(pieces_left - 1)]
            with m.If(starts):
                m.d.sync += Cat(tail, pieces_left).eq(length.payload - (1 + self.words.width // 8))
        return busy, final, tail

    def _positions(self, m: Module, take: Signal, final: Any, crosses: Signal, closes: Signal) -> Any:
        """Return the next piece's first grain, a mask of the current word from there, and a block's begin."""
        words, size = self.words, self.words.width // self.words.grain
        unit_bits = words.unit.bit_length() - 1
        whole_units = Const(0, unit_bits)
        begin_unit = Signal(range(size // words.unit))
        # For a piece without a scale, moved down so that codes have equal places.
        begin = Cat(whole_units, begin_unit)
        from_begin = Signal(words.width // 8, init=-1)
        number = Signal(range(words.per_block))  # index of the word in its block
        piece_units, code_units = (
            bits // words.grain // words.unit for bits in (words.piece_bits, words.code_bits)
        )
        end_unit = Signal(range(2 * size // words.unit), init=piece_units)  # end of the piece
        end = Cat(whole_units, end_unit)
        next_end = Signal.like(end_unit)
        scale_units = piece_units - code_units if words.per_block > 1 else 0
        block_ends = number == words.per_block - 1
        m.d.comb += next_end.eq(
            Mux(final, piece_units, end_unit[:-1] + Mux(block_ends, piece_units, code_units))
        )
        with m.If(take):
            m.d.sync += [
                begin_unit.eq(Mux(final, 0, Mux(block_ends, end_unit[:-1], end_unit[:-1] - scale_units))),
                from_begin.eq(Mux(final, -1, ones_from(end[words.phase_bits : -1], len(from_begin)))),
                number.eq(Mux(final, 0, number + 1)),
                end_unit.eq(next_end),
                crosses.eq(next_end[-1] & next_end[:-1].any()),
                closes.eq(next_end[-1]),
            ]
        return begin, from_begin, number == 0

    def _merged(self, m: Module, current: Any, from_begin: Signal, ended: Signal) -> Signal:
        """Return the current word from the piece's first byte on and the next word below, with keep flags."""
        size = self.words.width // 8
        merged = Signal(UNIT * size)
        for n in range(size):
            current_byte, next_byte = (word.data.word_select(n, 8) for word in (current, self.i.p))
            keep = Mux(from_begin[n], current.keep[n], self.i.p.keep[n] & ~current.last) & ~ended
            m.d.comb += merged.word_select(n, UNIT).eq(Cat(Mux(from_begin[n], current_byte, next_byte), keep))
        return merged

    def _align(
        self, m: Module, advance: Signal, take: Signal, merged: Any, begin: Signal, flags: dict[str, Any]
    ) -> None:
        """Rotate the piece's first byte to the bottom: by quarters of a word, by the rest, then by grains."""
        words, o, phase_bits = self.words, self.o, self.words.phase_bits
        coarse = Signal.like(merged, reset_less=True)
        fine_shift = Signal(len(begin) - 2, reset_less=True)
        valid = Signal(2 if words.whole_bytes else 3)
        layout = data.StructLayout({"first": 1, "last": 1, "tail": range(words.width // 8)})
        coarse_flags = Signal(layout, reset_less=True)
        fine_flags = Signal(layout, reset_less=True)
        piece = Signal(UNIT * words.spanned_bytes, reset_less=True)
        phase = Signal(phase_bits, reset_less=True)
        m.d.comb += [advance.eq(o.ready | ~o.valid), o.valid.eq(valid[-1])]
        with m.If(advance):
            m.d.sync += [
                valid.eq(Cat(take, valid)),
                fine_shift.eq(begin[:-2]),
                phase.eq(fine_shift[:phase_bits]),
            ]
            m.d.sync += coarse.eq(rotated(merged, begin[-2:], unit=-UNIT * words.width // 32))
            m.d.sync += [coarse_flags[name].eq(value) for name, value in flags.items()]
            m.d.sync += fine_flags.eq(coarse_flags)
            m.d.sync += piece.eq(rotated(coarse, fine_shift[phase_bits:], unit=-UNIT)[: len(piece)])
        assignments = self._from_phase(piece, phase, fine_flags)
        if words.whole_bytes:
            m.d.comb += assignments
        else:
            with m.If(advance):
                m.d.sync += assignments

    def _from_phase(self, piece: Any, phase: Any, flags: Any) -> list[Any]:
        """Return the piece from its first grain on, and whether the frame lacks a part of it."""
        words, o = self.words, self.o.payload
        units = [piece.word_select(n, UNIT) for n in range(words.spanned_bytes)]
        data = Cat(unit[:8] for unit in units) >> phase * words.grain
        keep = Cat(unit[8].replicate(8 // words.grain) for unit in units) >> phase
        last_block = flags.tail[-(words.blocks - 1).bit_length() :] if words.blocks > 1 else 0
        last_grains = [words.grains_of(count) - 1 for count in range(1, words.blocks + 1)]
        missing = flags.last & ~Cat(keep[n] for n in last_grains).bit_select(last_block, 1)
        return [
            o.data.eq(data),
            o.missing.eq(missing),
            *(o[name].eq(flags[name]) for name in flags.shape().members),
        ]
