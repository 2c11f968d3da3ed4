"""Pipelined selection of one of many words."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS

_STEP_BITS = 4  # index bits per step


class WordSelect(wiring.Component):
    """Pipelined selector of the word at an index.

    Members
    -------
    ``words`` : In, array of ``count`` words
    ``index`` : In, range(count); stable until the word is on ``o``
    ``o`` : Out(32)
        The word at ``index``, ``latency`` cycles later.

    Parameters
    ----------
    ``count`` : int, at least 1

    Latency
    -------
    ``latency`` cycles: one for every four bits of the index.

    Source
    ------
    docs/systems/cluster.md, "The node".
    """

    def __init__(self, *, count: int):
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count!r}")
        self.count = count
        super().__init__({"words": In(WORD_BITS).array(count), "index": In(range(count)), "o": Out(WORD_BITS)})

    @property
    def latency(self) -> int:
        """Cycles from a word, or the index, to the output."""
        return -(-len(self.index) // _STEP_BITS)

    def elaborate(self, platform: Any) -> Module:
        """Select one word of sixteen in each step."""
        m = Module()
        words = list(self.words)
        for step in range(self.latency):
            index = self.index[step * _STEP_BITS : (step + 1) * _STEP_BITS]
            selected = []
            for first in range(0, len(words), 1 << _STEP_BITS):
                group = words[first : first + (1 << _STEP_BITS)]
                table = Signal(WORD_BITS << len(index), name=f"table{step}_{first}")
                word = Signal(WORD_BITS, name=f"word{step}_{first}")
                fill = [Const(0)] * ((1 << len(index)) - len(group))
                m.d.comb += [
                    table.word_select(n, WORD_BITS).eq(word_of) for n, word_of in enumerate([*group, *fill])
                ]
                m.d.sync += word.eq(table.word_select(index, WORD_BITS))
                selected.append(word)
            words = selected
        m.d.comb += self.o.eq(words[0])
        return m
