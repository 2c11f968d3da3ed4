"""Block floating point decompressor: a word of binary32 values a cycle."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import EXPONENT_BITS, FRACTION_BITS, QUIET_NAN, SPECIAL_EXPONENT, Bfp
from fanin.hdl.arith.delay import delayed
from fanin.hdl.arith.select import leading_zeros
from fanin.hdl.codec.bfp.cutter import LENGTH_BITS, PieceCutter, cutter_latency
from fanin.hdl.codec.bfp.exponents import exponent_of
from fanin.hdl.codec.bfp.shapes import Words
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.lanes import ones_through
from fanin.hdl.stream.packet import packet_stream

STAGES = 3


class BfpDecompressor(wiring.Component):
    """Decompressor of frames of blocks to binary32 values.

    An output frame has exactly ``length`` bytes. ``error``, valid with ``last``, reports that the compressed
    frame ended before the codes of its last word. In blocks of several words, codes after ``length`` are not
    required. Further data of a compressed frame are dropped.

    Members
    -------
    ``length`` : In, stream of 32 bits
        Decompressed bytes of the next frame, at least 1.
    ``i`` : In, packet stream of ``width``
        Compressed frames. ``ready`` depends combinationally on ``o.ready``.
    ``o`` : Out, packet stream of ``width`` with ``error``
        Decompressed frames.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 256 or 512. Default 512.
    ``block`` : int
        Values that share an exponent: 4, 8, 16, 32 or 64. Default 16.
    ``mantissa`` : int
        Bits of a magnitude, 3 to 15. Default 7.
    ``exponent`` : int
        Bits of an exponent, 1 to 8. Default 8.
    ``offset`` : int
        Powers of two by which the exponent range is lowered, 0 to 31; 0 with 8 bits. Default 0.

    Latency
    -------
    ``latency`` cycles from a word to the last word of values that it completes, if the length is present, and
    the same from the length: 6, or 7 if a word's exponents are not whole bytes. One word of values a cycle.
    Between two frames at most one cycle is lost; each surplus word takes one more.

    Source
    ------
    AI Smart NIC, section IV-B; docs/systems/codec.md.
    """

    def __init__(
        self,
        *,
        width: int = 512,
        block: int = 16,
        mantissa: int = 7,
        exponent: int = EXPONENT_BITS,
        offset: int = 0,
    ):
        self.width = width
        self.block = block
        self.mantissa = mantissa
        self.exponent = exponent
        self.offset = offset
        self.words = Words(width, Bfp(block, mantissa, exponent, offset))
        self.latency = cutter_latency(self.words) + STAGES
        super().__init__(
            {
                "length": In(stream.Signature(LENGTH_BITS)),
                "i": In(packet_stream(width)),
                "o": Out(packet_stream(width, error=True)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Cut pieces, then decode in lanes that stall together: leading zeros, shift, special values."""
        m = Module()
        m.submodules.cutter = cutter = PieceCutter(words=self.words)
        connect_typed(m, wiring.flipped(self.length), cutter.length)
        connect_typed(m, wiring.flipped(self.i), cutter.i)
        piece, o = cutter.o.payload, self.o
        advance = Signal()
        arrived = Signal(STAGES)
        m.d.comb += [advance.eq(o.ready | ~o.valid), cutter.o.ready.eq(advance), o.valid.eq(arrived[-1])]
        with m.If(advance):
            m.d.sync += arrived.eq(Cat(cutter.o.valid, arrived))
            tail, last, missing = (
                delayed(m, piece[name], STAGES - 1, name=name)[-1] for name in ("tail", "last", "missing")
            )
            keep = Mux(last, ones_through(tail, self.words.width // 8), -1)
            m.d.sync += [o.p.keep.eq(keep), o.p.last.eq(last), o.p.error.eq(missing)]
            exponents = self._exponents(m, cutter.o)
            for n, code in enumerate(self._codes(piece.data)):
                exponent = exponents[n * self.words.blocks // self.words.lanes]
                m.d.sync += o.p.data.word_select(n, 32).eq(self._lane(m, code, exponent, str(n)))
        return m

    def _exponents(self, m: Module, piece: Any) -> list[Any]:
        """Return the exponents of a piece; a piece without one uses that of its block's first piece."""
        words = self.words
        codes = [piece.payload.data[start : start + words.config.exponent] for start in self._block_starts()]
        if words.per_block == 1:
            return [exponent_of(code, words.config) for code in codes]
        stored_exponent = Signal(EXPONENT_BITS, reset_less=True)
        exponent = Mux(piece.payload.first, exponent_of(codes[0], words.config), stored_exponent)
        with m.If(piece.valid):
            m.d.sync += stored_exponent.eq(exponent)
        return [exponent]

    def _block_starts(self) -> list[int]:
        """Return the bit of a piece at which each of its blocks begins."""
        words = self.words
        return [k * words.piece_bits // words.blocks for k in range(words.blocks)]

    def _codes(self, bits: Any) -> list[Any]:
        words, width = self.words, self.words.config.code_bits
        per_block = words.lanes // words.blocks
        starts = [
            start + words.config.exponent + n * width
            for start in self._block_starts()
            for n in range(per_block)
        ]
        return [bits[start : start + width] for start in starts]

    def _lane(self, m: Module, code: Any, block_exponent: Any, name: str) -> Any:
        """Return a value, computed from its magnitude's leading one and the zeros above it."""
        bits = self.words.config.mantissa
        magnitude, sign = code[:-1], code[-1]
        zeros = Signal(range(bits), name=f"zeros_{name}", reset_less=True)  # above the leading one
        first = Signal(
            data.StructLayout({"magnitude": bits, "exponent": EXPONENT_BITS, "sign": 1, "empty": 1}),
            name=f"first_{name}",
            reset_less=True,
        )
        m.d.sync += [
            zeros.eq(leading_zeros(magnitude)),
            first.eq(Cat(magnitude, block_exponent, sign, ~magnitude.any())),
        ]

        nan = (first.exponent == SPECIAL_EXPONENT) & first.magnitude[-1] & first.magnitude[:-1].any()
        flags = data.StructLayout(
            {"fraction": bits - 1, "exponent": EXPONENT_BITS, "sign": 1, "zero": 1, "nan": 1}
        )
        second = Signal(flags, name=f"second_{name}", reset_less=True)
        m.d.sync += [
            second.fraction.eq((first.magnitude << zeros)[: bits - 1]),
            second.exponent.eq(first.exponent - zeros),
            second.sign.eq(first.sign),
            second.zero.eq((first.exponent <= zeros) | first.empty),
            second.nan.eq(nan),
        ]
        fraction = Cat(Const(0, FRACTION_BITS + 1 - bits), second.fraction)
        value = Mux(second.zero, 0, Cat(fraction, second.exponent, second.sign))
        return Mux(second.nan, QUIET_NAN, value)
