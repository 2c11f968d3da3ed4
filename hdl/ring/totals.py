"""Checksum of the stored sums, compared with the next node's checksum."""

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
    """Checksum of all words stored so far, compared with the next node's after each descriptor.

    All nodes store the same words of a descriptor, in different orders. The checksum is the exclusive or of all
    half words, each rotated by its place in the word. Each answer of the next node carries the number of
    descriptors that it has stored, and its checksum after the last of them.

    Members
    -------
    ``word`` : In, ``valid``, ``data`` and ``final``
        Stored words, one in each cycle of ``valid``. ``final`` marks the position of a descriptor's last word,
        also without ``valid`` if that word is beyond the vector.
    ``told`` : Out, :func:`~fanin.hdl.net.link.job.told_layout`
        Content of answers to the previous node. ``operation``: descriptors stored, modulo 256. ``slice`` and
        ``length``: upper and lower half of the checksum after the last of them.
    ``news`` : Out, 1
        Pulse: ``told`` has changed.
    ``heard`` : In, ``valid`` and the members of ``told``
        Content of an answer from the next node.
    ``differs`` : Out, 1
        Pulse: the checksums differ.
    ``agreed`` : Out, 1
        Pulse: the checksums are equal.

    Parameters
    ----------
    ``width`` : int
        Bits of a word, a multiple of 32.

    Latency
    -------
    4 cycles from a final word to ``news``. 3 cycles from ``heard`` to ``differs`` or ``agreed``, or more if
    this node has yet to store what the next node has. An answer that arrives meanwhile replaces the waiting
    one.

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
        """Fold each word in three registered steps: groups of half words, the word, the total."""
        m = Module()
        halves = [self.word.data.word_select(n, SUM_BITS).rotate_left(n) for n in range(self.width // SUM_BITS)]
        groups = [halves[n : n + 6] for n in range(0, len(halves), 6)]
        folded = [Signal(SUM_BITS, name=f"folded_{n}") for n in range(len(groups))]
        word = Signal(SUM_BITS)
        total = Signal(SUM_BITS)
        valid = Signal()  # the word in ``folded`` is valid
        final = Signal(3)
        m.d.sync += [valid.eq(self.word.valid), final.eq(Cat(self.word.final, final))]
        m.d.sync += [register.eq(_xor(group)) for register, group in zip(folded, groups, strict=True)]
        m.d.sync += word.eq(Mux(valid, _xor(folded), 0))
        m.d.sync += total.eq(total ^ word)
        self._compare(m, total, final[2])
        return m

    def _compare(self, m: Module, total: Signal, ends: Any) -> None:
        """Keep the last checksums by number; compare an answer after this node has stored as much."""
        stored_count = Signal.like(self.told.operation)  # descriptors stored
        history_count = Signal(range(SUM_HISTORY + 1))  # number of checksums in ``history``
        m.submodules.history = history = Memory(shape=SUM_BITS, depth=SUM_HISTORY, init=[])
        write, read = history.write_port(), history.read_port(domain="comb")
        m.d.comb += [write.addr.eq(stored_count + 1), write.data.eq(total), write.en.eq(ends)]
        m.d.sync += self.news.eq(ends)
        with m.If(ends):
            m.d.sync += [
                stored_count.eq(stored_count + 1),
                history_count.eq(Mux(history_count == SUM_HISTORY, history_count, history_count + 1)),
            ]
            m.d.sync += [
                self.told.operation.eq(stored_count + 1),
                Cat(self.told.length, self.told.slice).eq(total),
            ]
        waiting = Signal(self.heard.shape())
        lead = Signal(stored_count.shape())  # number of descriptors stored here, minus that of the next node
        is_comparable = Signal()
        is_equal = Signal()
        m.d.comb += [read.addr.eq(waiting.operation), lead.eq(stored_count - waiting.operation)]
        next_is_ahead = lead[-1]  # ``lead`` is negative: the next node has stored more
        m.d.sync += [
            is_comparable.eq(waiting.valid & (lead < history_count)),
            is_equal.eq(read.data == Cat(waiting.length, waiting.slice)),
            self.agreed.eq(is_comparable & is_equal),
            self.differs.eq(is_comparable & ~is_equal),
        ]
        with m.If(self.heard.valid):
            m.d.sync += waiting.eq(self.heard)
        with m.Elif(~next_is_ahead):
            m.d.sync += waiting.valid.eq(0)


def _xor(values: Any) -> Any:
    """Return the exclusive or of several values."""
    first, *other_values = values
    for value in other_values:
        first = first ^ value
    return first
