"""The exponent that a block shares: the largest of its values'."""

from __future__ import annotations

from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import EXPONENT_BITS, Bfp
from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.bfp.exponents import in_range
from fanin.hdl.codec.bfp.shapes import Words, scaled_layout, word_layout
from fanin.hdl.stream.fifo import StreamFIFO

RADIX = 4  # exponents that are compared at a time, each with each
LEVEL_LATENCY = 2  # of a level of the tree: comparisons, choice


def _levels(words: Words) -> int:
    """Levels of the tree over the values of a block in a word."""
    return 1 if words.lanes // words.blocks <= RADIX else 2


def maximum_latency(words: Words) -> int:
    """Cycles from a word on a :class:`BlockMaximum`'s input to the same word on its output."""
    return LEVEL_LATENCY * _levels(words) + (words.per_block if words.per_block > 1 else 0)


class BlockMaximum(wiring.Component):
    """Give every word the exponents of its blocks, those out of the format's range as the nearest in it.

    A block of several words waits in a queue of two blocks until its last word has come.

    Members
    -------
    ``i`` : In, stream of :func:`word_layout`
        Whole blocks. ``ready`` follows ``o.ready`` within the cycle, but for blocks of several words.
    ``o`` : Out, stream of :func:`scaled_layout`

    Parameters
    ----------
    ``words`` : Words

    Latency
    -------
    :func:`maximum_latency` cycles: 2 for blocks of 4 values, 4 for others of up to a word, 4 + S for blocks of
    S > 1 words. One word a cycle.

    Source
    ------
    docs/systems/codec.md; AI Smart NIC, section IV-B.
    """

    def __init__(self, *, words: Words):
        self.words = words
        super().__init__(
            {
                "i": In(stream.Signature(word_layout(self.words))),
                "o": Out(stream.Signature(scaled_layout(self.words))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A tree of maxima over the values of a block in a word; after it, if need be, one over its words."""
        m = Module()
        levels = _levels(self.words)
        cycles = LEVEL_LATENCY * levels
        advance = Signal()
        ready = Signal()
        arrived = Signal(cycles)
        valid = arrived[-1]
        m.d.comb += [advance.eq(ready | ~valid), self.i.ready.eq(advance)]
        with m.If(advance):
            m.d.sync += arrived.eq(Cat(self.i.valid, arrived))
            word = delayed(m, self.i.payload, cycles, name="word")[-1]
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
        """The maxima of neighbours, ``RADIX`` at a time, or in the format's range so many ``outputs``."""
        size = RADIX if outputs is None else len(values) // outputs
        config = None if outputs is None else self.words.config
        return [
            _maximum(m, values[k : k + size], f"largest_{level}_{k}", config)
            for k in range(0, len(values), size)
        ]

    def _over_words(self, m: Module, valid: Any, ready: Signal, word: Any, largest: Signal) -> None:
        """Words wait in one queue for exponents, which come through another, or past it when it is empty."""
        o = self.o
        m.submodules.queue = queue = StreamFIFO(shape=word.shape(), depth=2 * self.words.per_block)
        m.submodules.exponents = exponents = StreamFIFO(shape=EXPONENT_BITS, depth=2)
        so_far = Signal(EXPONENT_BITS, reset_less=True)
        complete = Signal()  # ``so_far`` is that of a whole block
        has_exponent = Signal()  # the block in front of the queue
        m.d.comb += [
            ready.eq(queue.i.ready),
            queue.i.valid.eq(valid),
            queue.i.payload.eq(word),
            exponents.i.valid.eq(complete),  # has room: 2 blocks fit in the queue
            exponents.i.payload.eq(so_far),
            has_exponent.eq(exponents.o.valid | complete),
            o.valid.eq(queue.o.valid & has_exponent),
            queue.o.ready.eq(o.ready & has_exponent),
            exponents.o.ready.eq(o.ready & queue.o.valid & queue.o.payload.end),
            o.payload.word.eq(queue.o.payload),
            o.payload.exponents[0].eq(Mux(exponents.o.valid, exponents.o.payload, so_far)),
        ]
        m.d.sync += complete.eq(valid & queue.i.ready & word.end)
        with m.If(valid & queue.i.ready & (word.first | (so_far < largest))):
            m.d.sync += so_far.eq(largest)


def _maximum(m: Module, values: list[Any], name: str, config: Bfp | None) -> Signal:
    """The largest, :data:`LEVEL_LATENCY` cycles later: all pairs are compared, then the winner is taken.

    With ``config`` each is brought into its range meanwhile, which does not change which one is the largest.
    """
    less = {}
    for j, k in combinations(range(len(values)), 2):
        less[j, k] = Signal(name=f"{name}_less_{j}_{k}", reset_less=True)
        m.d.sync += less[j, k].eq(values[j] < values[k])
    candidates = []
    for k, value in enumerate(values):
        wins = [less[j, k] for j in range(k)] + [~less[k, j] for j in range(k + 1, len(values))]
        candidate = Signal(EXPONENT_BITS, name=f"{name}_value_{k}_1", reset_less=True)
        m.d.sync += candidate.eq(in_range(value, config) if config else value)
        candidates.append(Mux(Cat(wins).all(), candidate, 0))
    largest = Signal(EXPONENT_BITS, name=name, reset_less=True)
    m.d.sync += largest.eq(reduce(or_, candidates))
    return largest
