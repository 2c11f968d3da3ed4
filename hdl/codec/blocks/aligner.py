"""Aligner that turns pieces beginning within a byte into pieces of whole bytes."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.codec.blocks.shapes import Words, coded_layout
from fanin.hdl.codec.packer import piece_layout


def aligner_latency(words: Words) -> int:
    """Return the cycles that a :class:`PieceAligner` takes; 0 if all pieces are whole bytes and need none."""
    return 0 if words.whole_bytes else 1


class PieceAligner(wiring.Component):
    """Aligner of a frame's pieces: each begins at the grain at which the previous piece ended.

    Grains that do not fill a byte wait for the next piece. A frame's last byte is filled up with zeros.

    Members
    -------
    ``i`` : In, stream of :func:`coded_layout`
        Pieces. Only the last piece of a frame may lack blocks. ``ready`` depends combinationally on
        ``o.ready``.
    ``o`` : Out, stream of :func:`piece_layout`
        Pieces of whole bytes.

    Parameters
    ----------
    ``words`` : Words
        Format whose pieces are not all whole bytes.

    Latency
    -------
    1 cycle; one piece a cycle.

    Source
    ------
    docs/systems/codec.md.
    """

    def __init__(self, *, words: Words):
        if words.whole_bytes:
            raise ValueError(f"words must have pieces that are not whole bytes, not those of {words.format}")
        self.words = words
        super().__init__(
            {
                "i": In(stream.Signature(coded_layout(words))),
                "o": Out(stream.Signature(piece_layout(words.spanned_bytes))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Shift each piece up by its phase; keep the bits above its whole bytes in ``partial_byte``."""
        m = Module()
        words, i, o = self.words, self.i, self.o
        bits = words.phase_bits
        phase = Signal(bits)  # grains already used in the next piece's first byte
        partial_byte = Signal(8 - words.grain)  # bits in these grains
        advance = Signal()
        next_phase = Signal(bits)
        carry = Signal()  # the used grains and the piece's partial byte make another whole byte
        m.d.comb += [
            advance.eq(o.ready | ~o.valid),
            i.ready.eq(advance),
            Cat(next_phase, carry).eq(i.p.count[:bits] + phase),
        ]
        shifted = Cat(i.p.data, Const(0, len(o.p.data) - len(i.p.data))) << phase * words.grain
        shifted = Cat(shifted[: len(o.p.data)])
        with m.If(advance):
            m.d.sync += [
                o.valid.eq(i.valid),
                o.p.data.eq(shifted | partial_byte),
                o.p.count.eq(i.p.count[bits:] + carry + (i.p.last & next_phase.any())),
                o.p.last.eq(i.p.last),
            ]
            with m.If(i.valid):
                whole_bits = words.piece_bits // 8 * 8
                upper_bits = Mux(
                    carry, Cat(shifted[whole_bits + 8 :], Const(0, 8)), shifted[whole_bits : whole_bits + 8]
                )
                m.d.sync += [
                    phase.eq(Mux(i.p.last, 0, next_phase)),
                    partial_byte.eq(Mux(i.p.last, 0, upper_bits)),
                ]
        return m
