"""Conversion between the parameter image, in beats of memory, and the words of all layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.cnn.layers.family import WORD_BITS
from fanin.cnn.layers.port import BEAT_BITS, BEAT_WORDS


class SectionCounter(wiring.Component):
    """Counter of words through consecutive sections.

    Members
    -------
    ``restart`` : In(1), pulse: begin with the first section
    ``step`` : In(1), a word of the current section has been moved
    ``current`` : Out, one-hot: the current section; 0 before ``restart`` and after the last section
    ``last`` : Out(1), the next word is the last of the current section

    Parameters
    ----------
    ``sections`` : words of each section, at least 1

    Latency
    -------
    1 cycle from ``restart`` or ``step``; a word a cycle.

    Source
    ------
    docs/systems/cluster.md, "Memory map".
    """

    def __init__(self, *, sections: Sequence[int]):
        if not sections or min(sections) < 1:
            raise ValueError(f"sections must be at least one, of at least 1 word, not {sections!r}")
        self.sections = tuple(sections)
        super().__init__({"restart": In(1), "step": In(1), "current": Out(len(self.sections)), "last": Out(1)})

    def elaborate(self, platform: Any) -> Module:
        """Count the section's words after the next one in ``words_left``."""
        m = Module()
        count = len(self.sections)
        lengths = Array(Const(words - 1, range(max(self.sections))) for words in self.sections)
        words_left = Signal(range(max(self.sections)))
        next_section = Signal(range(count + 1))  # number of the section after the current one
        next_length = Signal.like(words_left)
        m.d.sync += next_length.eq(lengths[next_section])
        m.d.comb += self.last.eq(words_left == 0)
        with m.If(self.step):
            m.d.sync += words_left.eq(Mux(self.last, next_length, words_left - 1))
            with m.If(self.last):
                m.d.sync += [self.current.eq(self.current << 1), next_section.eq(next_section + 1)]
        with m.If(self.restart):
            m.d.sync += [self.current.eq(1), words_left.eq(self.sections[0] - 1), next_section.eq(1)]
        return m


class ParameterLoader(wiring.Component):
    """Loader that gives each layer its words of the parameter image.

    Members
    -------
    ``restart`` : In(1), pulse: an image follows
    ``i`` : In, stream of 512 bits
    ``o`` : Out, array of streams of one word, one for each section
    ``busy`` : Out(1), words of the image are still to be moved

    Parameters
    ----------
    ``sections`` : words of each layer; each section begins at a beat

    Latency
    -------
    1 cycle from a beat to its first word; 17 cycles a beat.

    Source
    ------
    docs/systems/cluster.md, "Memory map".
    """

    def __init__(self, *, sections: Sequence[int]):
        self.sections = tuple(sections)
        super().__init__(
            {
                "restart": In(1),
                "i": In(stream.Signature(BEAT_BITS)),
                "o": Out(stream.Signature(WORD_BITS)).array(len(self.sections)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Shift a beat out word by word, and drop its rest at the section's end."""
        m = Module()
        m.submodules.counter = counter = SectionCounter(sections=self.sections)
        beat = Signal(BEAT_BITS)
        words = Signal(range(BEAT_WORDS + 1))  # words left of the beat
        has_word = Signal()
        m.d.comb += [
            counter.restart.eq(self.restart),
            counter.step.eq(Cat(port.valid & port.ready for port in self.o).any()),
            self.busy.eq(counter.current.any()),
            has_word.eq(words.any()),
            self.i.ready.eq(~has_word),
        ]
        for port, current in zip(self.o, counter.current, strict=True):
            m.d.comb += [port.valid.eq(current & has_word), port.payload.eq(beat)]  # truncated
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [beat.eq(self.i.payload), words.eq(BEAT_WORDS)]
        with m.If(counter.step):
            m.d.sync += [beat.eq(beat >> WORD_BITS), words.eq(Mux(counter.last, 0, words - 1))]
        return m


class ParameterCollector(wiring.Component):
    """Collector that packs the words of all layers into a parameter image.

    Members
    -------
    ``restart`` : In(1), pulse: take an image
    ``i`` : In, array of streams of one word, one for each section
        Taken in order of the sections.
    ``o`` : Out, stream of 512 bits
        A beat is padded with zeros after a section's last word.

    Parameters
    ----------
    ``sections`` : words of each layer; each section begins at a beat

    Latency
    -------
    1 cycle from a beat's last word to the beat; 17 cycles a beat.

    Source
    ------
    docs/systems/cluster.md, "Memory map".
    """

    def __init__(self, *, sections: Sequence[int]):
        self.sections = tuple(sections)
        super().__init__(
            {
                "restart": In(1),
                "i": In(stream.Signature(WORD_BITS)).array(len(self.sections)),
                "o": Out(stream.Signature(BEAT_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Store each word at its ``place`` in the beat; a beat's first word clears the other places."""
        m = Module()
        m.submodules.counter = counter = SectionCounter(sections=self.sections)
        place = Signal(range(BEAT_WORDS))
        word = Signal(WORD_BITS)
        step = Signal()
        for port, current in zip(self.i, counter.current, strict=True):
            m.d.comb += port.ready.eq(current & ~self.o.valid)
            with m.If(current):
                m.d.comb += [word.eq(port.payload), step.eq(port.valid & ~self.o.valid)]
        m.d.comb += [counter.restart.eq(self.restart), counter.step.eq(step)]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(step):
            with m.If(place == 0):
                m.d.sync += self.o.payload.eq(word)
            for n in range(1, BEAT_WORDS):
                with m.If(place == n):
                    m.d.sync += self.o.payload.word_select(n, WORD_BITS).eq(word)
            ends = counter.last | (place == BEAT_WORDS - 1)
            m.d.sync += [place.eq(Mux(ends, 0, place + 1)), self.o.valid.eq(ends)]
        return m
