"""A checksum of the sums that go to memory, compared with that of the next node."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.link.job import told_layout
from fanin.wire.ring import RING_LINK, SUM_BITS, SUM_HISTORY

TOLD = told_layout(RING_LINK)


class TotalsCheck(wiring.Component):
    """Keep a checksum of all words stored so far, and compare it with the next node's after each descriptor.

    All nodes store the same words of a descriptor, in different orders. The checksum is the exclusive or of all
    half words, each rotated by its place in the word. Every answer of the next node says how many descriptors
    it has stored, and its checksum behind the last of these.

    Members
    -------
    ``word`` : In, ``valid``, ``data`` and ``final``
        A word is stored, if ``valid``. With ``final`` this was the last one of a descriptor, or would be, if it
        were inside the vector.
    ``told`` : Out, :func:`~fanin.hdl.net.link.job.told_layout`
        For answers to the previous node: ``operation``, descriptors stored modulo 256; ``slice`` and
        ``length``, the upper and the lower half of the checksum behind the last of them.
    ``news`` : Out, 1
        Pulse: ``told`` has changed.
    ``heard`` : In, ``valid`` and the members of ``told``
        An answer of the next node.
    ``differs`` : Out, 1
        Pulse: the checksums differ.
    ``agreed`` : Out, 1
        Pulse: they are the same.

    Parameters
    ----------
    ``width`` : int, bits of a word, a multiple of 32

    Latency
    -------
    4 cycles from a final word to ``news``; 3 from ``heard`` to ``differs`` or ``agreed``, or as many as this
    node takes to store what the next one has. An answer that comes meanwhile replaces the one that waits.

    Source
    ------
    docs/systems/ring.md, "Frames".
    """

    def __init__(self, *, width: int):
        self.width = width
        super().__init__(
            {
                "word": In(data.StructLayout({"valid": 1, "data": width, "final": 1})),
                "told": Out(TOLD),
                "news": Out(1),
                "heard": In(data.StructLayout({"valid": 1, **TOLD.members})),
                "differs": Out(1),
                "agreed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Three registers in the way of a word: its groups folded, the word folded, the sum of all."""
        m = Module()
        halves = [self.word.data.word_select(n, SUM_BITS).rotate_left(n) for n in range(self.width // SUM_BITS)]
        groups = [halves[n : n + 6] for n in range(0, len(halves), 6)]
        folded = [Signal(SUM_BITS, name=f"folded_{n}") for n in range(len(groups))]
        word = Signal(SUM_BITS)
        total = Signal(SUM_BITS)
        valid = Signal()  # of each register, the youngest first
        final = Signal(3)
        m.d.sync += [valid.eq(self.word.valid), final.eq(Cat(self.word.final, final))]
        m.d.sync += [out.eq(_xor(group)) for out, group in zip(folded, groups, strict=True)]
        m.d.sync += word.eq(Mux(valid, _xor(folded), 0))
        m.d.sync += total.eq(total ^ word)
        self._compare(m, total, final[2])
        return m

    def _compare(self, m: Module, total: Signal, ends: Any) -> None:
        """Keep the last checksums by number; look at an answer once this node has stored as much."""
        own = Signal.like(self.told.operation)  # descriptors stored
        kept = Signal(range(SUM_HISTORY + 1))  # of which the checksum is known
        m.submodules.history = history = Memory(shape=SUM_BITS, depth=SUM_HISTORY, init=[])
        write, read = history.write_port(), history.read_port(domain="comb")
        m.d.comb += [write.addr.eq(own + 1), write.data.eq(total), write.en.eq(ends)]
        m.d.sync += self.news.eq(ends)
        with m.If(ends):
            m.d.sync += [own.eq(own + 1), kept.eq(Mux(kept == SUM_HISTORY, kept, kept + 1))]
            m.d.sync += [self.told.operation.eq(own + 1), Cat(self.told.length, self.told.slice).eq(total)]
        waiting = Signal(self.heard.shape())
        behind = Signal(own.shape())  # descriptors that this node has stored and the next one had not
        known = Signal()
        same = Signal()
        m.d.comb += [read.addr.eq(waiting.operation), behind.eq(own - waiting.operation)]
        ahead = behind[-1]  # the next node has stored more
        m.d.sync += [
            known.eq(waiting.valid & (behind < kept)),
            same.eq(read.data == Cat(waiting.length, waiting.slice)),
            self.agreed.eq(known & same),
            self.differs.eq(known & ~same),
        ]
        with m.If(self.heard.valid):
            m.d.sync += waiting.eq(self.heard)
        with m.Elif(~ahead):
            m.d.sync += waiting.valid.eq(0)


def _xor(values: Any) -> Any:
    """The exclusive or of several values."""
    first, *others = values
    for value in others:
        first = first ^ value
    return first
