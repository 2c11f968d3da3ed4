"""List of a sparse engine: entries become items, one for each word, in step with the model's final writes.

docs/systems/sparse.md has the layout of lists and words.
"""

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.glm.facts import ENTRY_ALLOW_BITS, ENTRY_CHUNK_BITS, ENTRY_KIND_BITS, EntryKind
from fanin.hdl.glm.sequence import Sequencer
from fanin.hdl.glm.shapes import EngineShape, check_engine


class Entry(data.Struct):
    """Entry of a list; docs/systems/sparse.md, "Layout"."""

    chunk: ENTRY_CHUNK_BITS
    allow: ENTRY_ALLOW_BITS
    kind: ENTRY_KIND_BITS
    last: 1


def tag_layout(depth: int, *, l2: bool = False) -> data.StructLayout:
    """Return the layout of an item's tag, which forward and backward use.

    - ``chunk``: chunk of the model memories.
    - ``nonzero``: the item has a word.
    - ``final``: the entry ends in a final write.
    - ``fresh``: the chunk decays in this micro-batch, the first of its mini-batch; with ``l2`` alone.
    - ``first_plane``, ``last_plane``: first or last item of its entry.
    - ``first_item``, ``last_item``: first or last item of its micro-batch.
    """
    flags = ["nonzero", "final", "first_plane", "last_plane", "first_item", "last_item"]
    return data.StructLayout({"chunk": range(depth)} | dict.fromkeys(flags + ["fresh"] * l2, 1))


def item_layout(word_bits: int, depth: int, *, l2: bool = False) -> data.StructLayout:
    """Return the layout of an item: ``tag``, and ``word``, undefined unless ``nonzero``."""
    return data.StructLayout({"tag": tag_layout(depth, l2=l2), "word": word_bits})


class ListSequencer(wiring.Component):
    """Expand a list's entries into items: a word for each plane of a WORDS, one item for any other entry.

    An entry waits until at most ``allow`` final writes of earlier mini-batches are missing.

    Members
    -------
    ``entries`` : In, stream of ``Entry``
        List of an epoch, repeated for each epoch. Waits until the first ``start``.
    ``words`` : In, stream of ``word_bits`` bits
        Words of the WORDS entries, in the same order.
    ``items`` : Out, stream of ``item_layout(word_bits, depth, l2=l2)``
        Items; ``ready`` must depend on registers alone.
    ``shape`` : In, ``EngineShape``
        Loop counts; ``chunks`` limits the chunks of entries.
    ``start`` : In(1)
        Pulse: start an epoch and drop the rest of the previous one.
    ``drop`` : In(1)
        Take and drop entries and words, from the next cycle until one cycle after ``drop`` falls.
    ``written`` : In(1)
        Pulse: a final write is in progress; forward can read the chunk in the next cycle.
    ``waiting`` : Out(1)
        An entry waits for final writes.
    ``fault`` : Out(1)
        The list is wrong: a chunk beyond ``shape.chunks``, or a micro-batch of more than ``max_items`` items.
        High until ``start``.

    Parameters
    ----------
    ``word_bits`` : int
        Bits of a word.
    ``depth`` : int, 1 to 4096
        Chunks that each model memory holds.
    ``max_items`` : int, at least 1
        Most items of a micro-batch: the capacity of the replay FIFO.
    ``l2`` : bool
        Whether weights can decay: each first micro-batch of a mini-batch then names all chunks. Default False.

    Latency
    -------
    1 cycle from an entry to its first item; 2 from ``written`` to the item that waits for it. One item a cycle,
    also between entries; a mini-batch whose last entry is a single item is followed by a cycle without an item.

    Source
    ------
    docs/systems/sparse.md, "Model memories and hazards".
    """

    def __init__(self, *, word_bits: int, depth: int, max_items: int, l2: bool = False):
        check_engine(lanes=2, banks=2, depth=depth, fifo_depth=max_items)
        self.word_bits = word_bits
        self.depth = depth
        self.max_items = max_items
        self.l2 = l2
        super().__init__(
            {
                "entries": In(stream.Signature(Entry)),
                "words": In(stream.Signature(word_bits)),
                "items": Out(stream.Signature(item_layout(word_bits, depth, l2=l2))),
                "shape": In(EngineShape),
                "start": In(1),
                "drop": In(1),
                "written": In(1),
                "waiting": Out(1),
                "fault": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Hold an entry in a register, with its place in the mini-batch and whether it may go."""
        m = Module()
        m.submodules.micro_batches = micro_batches = Sequencer(depth=1)
        held = Signal()  # an entry is in ``tag``
        cleared = Signal()  # it may go
        allow = Signal(ENTRY_ALLOW_BITS)
        armed = Signal()
        dropping = Signal()
        tag = Signal(tag_layout(self.depth, l2=self.l2), reset_less=True)
        first_entry = Signal()  # the next entry is its micro-batch's first
        last_entry = Signal()  # the held entry is its micro-batch's last
        entry = self.entries.payload
        load = Signal()  # an entry is taken
        accept = Signal()  # an item is taken
        ends = Signal()  # it is its entry's last
        last_micro = micro_batches.position.last_micro
        final = last_micro & (entry.kind != EntryKind.EMPTY)
        if self.l2:
            final |= entry.kind == EntryKind.FINAL
        uncounted = Signal()  # the held entry ends its mini-batch, whose final writes do not count yet
        close = held & cleared & uncounted
        missing = self._count_missing(m, load & final, close)
        m.d.sync += dropping.eq(self.drop)
        m.d.comb += [
            micro_batches.shape.planes.eq(1),
            micro_batches.shape.chunks.eq(1),
            micro_batches.shape.mini_batch.eq(self.shape.mini_batch),
            micro_batches.shape.epoch.eq(self.shape.epoch),
            micro_batches.start.eq(self.start),
            micro_batches.step.eq(load & entry.last),
            ends.eq(accept & tag.last_plane),
            load.eq(self.entries.valid & self.entries.ready & ~dropping),
            self.entries.ready.eq(armed & (~held | ends & ~uncounted) & ~self.start | dropping),
            self.items.valid.eq(held & cleared & (self.words.valid | ~tag.nonzero)),
            self.items.payload.tag.eq(tag),
            self.items.payload.tag.last_item.eq(last_entry & tag.last_plane),
            self.items.payload.word.eq(self.words.payload),
            self.words.ready.eq(self.items.ready & held & cleared & tag.nonzero | dropping),
            accept.eq(self.items.valid & self.items.ready & ~dropping),
            self.waiting.eq(held & ~cleared),
        ]
        with m.If(self.start):
            m.d.sync += [armed.eq(1), held.eq(0), first_entry.eq(1)]
        with m.Elif(load):
            m.d.sync += [
                held.eq(1),
                cleared.eq(missing <= entry.allow),
                allow.eq(entry.allow),
                tag.chunk.eq(entry.chunk),
                tag.nonzero.eq(entry.kind == EntryKind.WORDS),
                tag.final.eq(final),
                tag.first_item.eq(first_entry),
                first_entry.eq(entry.last),
                last_entry.eq(entry.last),
                uncounted.eq(entry.last & last_micro),
            ]
        with m.Else():
            m.d.sync += [
                held.eq(held & ~ends),
                cleared.eq(cleared | (missing <= allow)),
                uncounted.eq(uncounted & ~close),
            ]
            with m.If(accept):
                m.d.sync += tag.first_item.eq(0)
        if self.l2:
            fresh = Signal(reset_less=True)
            with m.If(load):
                m.d.sync += fresh.eq(micro_batches.position.first_micro & (entry.kind != EntryKind.EMPTY))
            m.d.comb += self.items.payload.tag.fresh.eq(fresh)
        self._planes(m, tag, entry, load, accept)
        self._faults(m, entry, load, accept, ends & last_entry)
        return m

    def _planes(self, m: Module, tag: Any, entry: Any, load: Signal, accept: Signal) -> None:
        """Count the planes of an entry; ``last_plane`` is computed one item ahead."""
        left = Signal.like(self.shape.planes, reset_less=True)  # items after the next one
        single = Signal(reset_less=True)
        m.d.sync += single.eq(self.shape.planes == 1)
        with m.If(load):
            m.d.sync += [
                tag.first_plane.eq(1),
                tag.last_plane.eq(single | (entry.kind != EntryKind.WORDS)),
                left.eq(self.shape.planes - 1),
            ]
        with m.Elif(accept):
            m.d.sync += [tag.first_plane.eq(0), tag.last_plane.eq(left == 1), left.eq(left - 1)]

    def _count_missing(self, m: Module, final: Any, close: Any) -> Signal:
        """Return the number of final writes of earlier mini-batches that are missing.

        Those of a mini-batch count once its last entry may go: until then the entry waits for earlier ones.
        With ``l2`` some are in progress before that, when no earlier ones are missing; the number is then
        negative.

        ``final``: an entry with a final write is loaded; ``close``: those of its mini-batch count from now on.
        """
        missing = Signal(range(-self.depth if self.l2 else 0, 2 * self.depth + 1))
        of_mini_batch = Signal(range(self.depth + 1))  # final writes of the mini-batch that is being loaded
        m.d.sync += [
            of_mini_batch.eq(
                Mux(close, 0, of_mini_batch + final)
            ),  # no entry is loaded in the cycle of ``close``
            missing.eq(missing + Mux(close, of_mini_batch, 0) - self.written),
        ]
        with m.If(self.start):
            m.d.sync += [missing.eq(0), of_mini_batch.eq(0)]
        return missing

    def _faults(self, m: Module, entry: Any, load: Signal, accept: Signal, ends_micro_batch: Any) -> None:
        items = Signal(range(self.max_items + 1))  # items so far of a micro-batch that has not ended
        out_of_range = Signal()
        m.d.sync += out_of_range.eq(load & (entry.kind != EntryKind.EMPTY) & (entry.chunk >= self.shape.chunks))
        with m.If(accept):
            m.d.sync += items.eq(Mux(ends_micro_batch, 0, items + 1))
        with m.If(out_of_range | (items == self.max_items)):
            m.d.sync += self.fault.eq(1)
        with m.If(self.start):
            m.d.sync += [items.eq(0), self.fault.eq(0), out_of_range.eq(0)]
