"""The exponent that a block shares: the largest of its values'."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec import EXPONENT_BITS, Bfp
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.bfp.shapes import Words, scaled_layout, word_layout
from fanin.hdl.stream.fifo import StreamFIFO

RADIX = 4  # exponents that are compared at a time, each with each


def _levels(words: Words) -> int:
    """Levels of the tree over the values of a block in a word."""
    return 1 if words.lanes // words.blocks <= RADIX else 2


def maximum_latency(words: Words) -> int:
    """Cycles from a word on a :class:`BlockMaximum`'s input to the same word on its output."""
    return _levels(words) + (words.per_block if words.per_block > 1 else 0)


class BlockMaximum(wiring.Component):
    """Give every word the exponents of its blocks.

    A block of several words waits in a queue of two blocks until its last word has come.

    Members
    -------
    ``i`` : In, stream of :func:`word_layout`
        Whole blocks. ``ready`` follows ``o.ready`` within the cycle, but for blocks of several words.
    ``o`` : Out, stream of :func:`scaled_layout`

    Parameters
    ----------
    ``width`` : int, bits of a word of binary32 values; 256 or 512
    ``block`` : int, values; 4, 8, 16, 32 or 64
    ``mantissa`` : int, bits; 3 to 15

    Latency
    -------
    :func:`maximum_latency` cycles: 1 for blocks of 4 values, 2 for others of up to a word, 2 + S for blocks of
    S > 1 words. One word a cycle.

    Source
    ------
    docs/codecs.md; AI Smart NIC, section IV-B.
    """

    def __init__(self, *, width: int = 512, block: int = 16, mantissa: int = 7):
        self.width = width
        self.block = block
        self.mantissa = mantissa
        self.words = Words(width, Bfp(block, mantissa))
        super().__init__(
            {
                "i": In(stream.Signature(word_layout(self.words))),
                "o": Out(stream.Signature(scaled_layout(self.words))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A tree of maxima over the values of a block in a word; behind it, if need be, over its words."""
        m = Module()
        levels = _levels(self.words)
        advance, ready = Signal(), Signal()
        arrived = Signal(levels)
        valid = arrived[-1]
        m.d.comb += [advance.eq(ready | ~valid), self.i.ready.eq(advance)]
        with m.If(advance):
            m.d.sync += arrived.eq(Cat(self.i.valid, arrived))
            word = delayed(m, self.i.payload, levels, name="word")[-1]
            largest = [value.exponent for value in self.i.payload.values]
            for level in range(levels):
                largest = self._level(m, largest, level, self.words.blocks if level == levels - 1 else None)
        if self.words.per_block == 1:
            m.d.comb += [self.o.valid.eq(valid), ready.eq(self.o.ready), self.o.payload.word.eq(word)]
            m.d.comb += [self.o.payload.exponents[k].eq(value) for k, value in enumerate(largest)]
        else:
            self._over_words(m, valid, ready, word, largest[0])
        return m

    def _level(self, m: Module, values: list[Any], level: int, outputs: int | None) -> list[Any]:
        """The maxima of neighbours, ``RADIX`` at a time or as few as give so many ``outputs``."""
        size = RADIX if outputs is None else len(values) // outputs
        maxima = []
        for k in range(0, len(values), size):
            largest = Signal(EXPONENT_BITS, name=f"largest_{level}_{k}", reset_less=True)
            m.d.sync += largest.eq(_maximum(values[k : k + size]))
            maxima.append(largest)
        return maxima

    def _over_words(self, m: Module, valid: Any, ready: Signal, word: Any, largest: Signal) -> None:
        """Words wait in one queue for their exponents, which come through another."""
        o = self.o
        m.submodules.queue = queue = StreamFIFO(shape=word.shape(), depth=2 * self.words.per_block)
        m.submodules.exponents = exponents = StreamFIFO(shape=EXPONENT_BITS, depth=2)
        so_far = Signal(EXPONENT_BITS, reset_less=True)
        block = Signal(EXPONENT_BITS)
        m.d.comb += [
            block.eq(Mux(word.first, largest, _maximum([so_far, largest]))),
            ready.eq(queue.i.ready),
            queue.i.valid.eq(valid),
            queue.i.payload.eq(word),
            exponents.i.valid.eq(valid & queue.i.ready & word.end),  # has room: 2 blocks fit in the queue
            exponents.i.payload.eq(block),
            o.valid.eq(queue.o.valid & exponents.o.valid),
            queue.o.ready.eq(o.ready & exponents.o.valid),
            exponents.o.ready.eq(o.ready & queue.o.valid & queue.o.payload.end),
            o.payload.word.eq(queue.o.payload),
            o.payload.exponents[0].eq(exponents.o.payload),
        ]
        with m.If(valid & queue.i.ready):
            m.d.sync += so_far.eq(block)


def _maximum(values: list[Any]) -> Any:
    """The largest of up to four values: all pairs are compared at once."""
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        return Mux(values[0] < values[1], values[1], values[0])
    a, b, c, d = values
    low, high = Mux(a < b, b, a), Mux(c < d, d, c)
    a_less, b_less = Mux(c < d, a < d, a < c), Mux(c < d, b < d, b < c)
    return Mux(Mux(a < b, b_less, a_less), high, low)
