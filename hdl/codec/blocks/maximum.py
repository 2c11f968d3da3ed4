"""Shared exponent of a block: the largest exponent of its values."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.blocks.shapes import Words, scaled_layout, word_layout
from fanin.hdl.stream.fifo import StreamFIFO

RADIX = 4  # exponents compared at a time, each with each
LEVEL_LATENCY = 2  # cycles of a level of the tree: comparisons, choice


def _levels(words: Words) -> int:
    """Return the levels of the tree over the values of a block in a word."""
    return 1 if words.lanes // words.blocks <= RADIX else 2


def maximum_latency(words: Words) -> int:
    """Return the cycles from a word on a :class:`BlockMaximum`'s input to the same word on its output."""
    return LEVEL_LATENCY * _levels(words) + (words.per_block if words.per_block > 1 else 0)


class BlockMaximum(wiring.Component):
    """Maximum of the exponents of each block, limited to the format's range, for each word.

    A block of several words waits in a queue of two blocks until its last word has arrived.

    Members
    -------
    ``i`` : In, stream of :func:`word_layout`
        Words of whole blocks. ``ready`` depends combinationally on ``o.ready``, except with blocks of several
        words.
    ``o`` : Out, stream of :func:`scaled_layout`
        The same words with the exponents of their blocks.

    Parameters
    ----------
    ``words`` : Words
        Word width and format.

    Latency
    -------
    :func:`maximum_latency` cycles: 2 for blocks of 4 values, 4 for other blocks of up to a word, 4 + S for
    blocks of S > 1 words. One word a cycle.

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
        """Build a tree of maxima over the values of a block in a word; then, if needed, one over its words."""
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
            largest = [self.words.format.exponent(value) for value in self.i.payload.values]
            for level in range(levels):
                largest = self._level(m, largest, level, self.words.blocks if level == levels - 1 else None)
        if self.words.per_block == 1:
            m.d.comb += [self.o.valid.eq(valid), ready.eq(self.o.ready), self.o.payload.word.eq(word)]
            m.d.comb += [self.o.payload.exponents[k].eq(value) for k, value in enumerate(largest)]
        else:
            self._over_words(m, valid, ready, word, largest[0])
        return m

    def _level(self, m: Module, values: list[Any], level: int, outputs: int | None) -> list[Any]:
        """Return the maxima of neighbours: of ``RADIX`` at a time, or ``outputs`` maxima in the range."""
        size = RADIX if outputs is None else len(values) // outputs
        limited = None if outputs is None else self.words.format.limited
        return [
            _maximum(m, values[k : k + size], f"largest_{level}_{k}", limited)
            for k in range(0, len(values), size)
        ]

    def _over_words(self, m: Module, valid: Any, ready: Signal, word: Any, largest: Signal) -> None:
        """Delay words in a queue until their exponents arrive, through a second queue or past it if empty."""
        o, bits = self.o, len(largest)
        m.submodules.queue = queue = StreamFIFO(shape=word.shape(), depth=2 * self.words.per_block)
        m.submodules.exponents = exponents = StreamFIFO(shape=bits, depth=2)
        running_maximum = Signal(bits, reset_less=True)
        complete = Signal()  # ``running_maximum`` covers a whole block
        has_exponent = Signal()  # the exponent of the block at the queue's head is known
        m.d.comb += [
            ready.eq(queue.i.ready),
            queue.i.valid.eq(valid),
            queue.i.payload.eq(word),
            exponents.i.valid.eq(complete),  # has room, since the word queue holds 2 blocks
            exponents.i.payload.eq(running_maximum),
            has_exponent.eq(exponents.o.valid | complete),
            o.valid.eq(queue.o.valid & has_exponent),
            queue.o.ready.eq(o.ready & has_exponent),
            exponents.o.ready.eq(o.ready & queue.o.valid & queue.o.payload.end),
            o.payload.word.eq(queue.o.payload),
            o.payload.exponents[0].eq(Mux(exponents.o.valid, exponents.o.payload, running_maximum)),
        ]
        m.d.sync += complete.eq(valid & queue.i.ready & word.end)
        with m.If(valid & queue.i.ready & (word.first | (running_maximum < largest))):
            m.d.sync += running_maximum.eq(largest)


def _maximum(m: Module, values: list[Any], name: str, limited: Callable[[Any], Any] | None) -> Signal:
    """Return the largest value after :data:`LEVEL_LATENCY` cycles: compare all pairs, then select the winner.

    With ``limited`` the winner is limited to the format's range, which does not change the order.
    """
    is_less = {}
    for j, k in combinations(range(len(values)), 2):
        is_less[j, k] = Signal(name=f"{name}_less_{j}_{k}", reset_less=True)
        m.d.sync += is_less[j, k].eq(values[j] < values[k])
    candidates = []
    for k, value in enumerate(values):
        comparisons = [is_less[j, k] for j in range(k)] + [~is_less[k, j] for j in range(k + 1, len(values))]
        candidate = Signal(len(values[0]), name=f"{name}_value_{k}_1", reset_less=True)
        m.d.sync += candidate.eq(limited(value) if limited else value)
        candidates.append(Mux(Cat(comparisons).all(), candidate, 0))
    largest = Signal(len(values[0]), name=name, reset_less=True)
    m.d.sync += largest.eq(reduce(or_, candidates))
    return largest
