"""Engine for sparse samples: forward, replay and model memories take chunks in the order of a list."""

from typing import Any

from amaranth import Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.glm.backward import Backward
from fanin.hdl.glm.engine import Engine
from fanin.hdl.glm.forward import Forward
from fanin.hdl.glm.model import ModelMemories
from fanin.hdl.glm.replay import Replay, update_layout
from fanin.hdl.glm.shapes import WEIGHT
from fanin.hdl.glm.sparse_list import Entry, ListSequencer, item_layout, tag_layout
from fanin.hdl.stream.buffer import SkidBuffer
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO


class SparseForward(Forward):
    """Forward pass over the items of a list: accepts an item when everything downstream has room.

    Items without a word restart a micro-batch's sum if they are its first, and add nothing.

    Members
    -------
    ``items`` : In, stream of ``item_layout(lanes * banks, depth, l2=l2)``
        Items; ``ready`` depends on registers alone.
    ``waiting`` : In(1)
        The next item waits for final writes.
    ``pa`` : Out, ``ActivationSignature``
        Partial activations, one per micro-batch.
    ``start`` : In(1)
        Pulse: start an epoch and drop the rest of the previous one.
    ``drop`` : In(1)
        Accept nothing, from the next cycle until one cycle after ``drop`` falls.
    ``chunk`` : Out, range(depth)
        Chunk whose weights are needed.
    ``weights`` : In, ``ArrayLayout(signed(32), lanes)``
        Weights of the chunk, two cycles after ``chunk``.
    ``word`` : Out(lanes * banks)
        Word for the replay FIFO, one cycle after its acceptance.
    ``keep`` : Out(1)
        Write ``word`` to the replay FIFO in this cycle.
    ``tag`` : Out, ``tag_layout(depth, l2=l2)``
        Tag of the accepted item.
    ``accept`` : Out(1)
        An item is accepted in this cycle.
    ``freed`` : In(1)
        Pulse: an item has left the replay FIFO.
    ``events`` : Out, ``ForwardEvents``
        Events of this cycle.

    Parameters
    ----------
    ``lanes``, ``banks``, ``depth``, ``fifo_depth``
        See ``Forward``; ``fifo_depth`` counts items.
    ``l2`` : bool
        Whether weights can decay, which tags then say. Default False.

    Latency
    -------
    As ``Forward``, from a micro-batch's last item to ``pa``. One item a cycle.

    Source
    ------
    docs/systems/sparse.md.
    """

    def __init__(
        self,
        *,
        lanes: int = 64,
        banks: int = 8,
        depth: int = 4096,
        fifo_depth: int = 4096,
        l2: bool = False,
    ):
        self.l2 = l2
        super().__init__(lanes=lanes, banks=banks, depth=depth, fifo_depth=fifo_depth)

    def _members(self) -> dict[str, Any]:
        members = super()._members()
        for name in "samples", "shape", "written":
            del members[name]
        return members | {
            "items": In(stream.Signature(item_layout(self.lanes * self.banks, self.depth, l2=self.l2))),
            "waiting": In(1),
            "tag": Out(tag_layout(self.depth, l2=self.l2)),
            "accept": Out(1),
        }

    def elaborate(self, platform: Any) -> Module:
        """Build the acceptance of items, then the pipeline of ``Forward``."""
        m = Module()
        item, tag = self.items.payload, self.items.payload.tag
        armed = Signal()
        started = Signal()
        ready = Signal()
        dropping = Signal()
        fifo_credits, pa_credits = self._room(m, self.accept, tag.first_item)
        m.d.sync += [dropping.eq(self.drop), started.eq(self.start)]
        with m.If(self.start):
            m.d.sync += [armed.eq(1), ready.eq(0)]
        with m.Else():
            several, one = fifo_credits.several & pa_credits.several, fifo_credits.ok & pa_credits.ok
            m.d.sync += ready.eq(Mux(self.accept, several, one))
        m.d.comb += [
            self.items.ready.eq(ready),
            self.accept.eq(self.items.valid & ready & ~dropping),
            self.tag.eq(tag),
            self.chunk.eq(tag.chunk),
            self.events.first.eq(self.accept & tag.first_item),
            self.events.last.eq(self.accept & tag.last_item),
            self.events.model_wait.eq(ready & self.waiting),
            self.events.no_word.eq(ready & ~self.items.valid & ~self.waiting),
        ]
        with m.If(armed & ~ready & ~started):
            m.d.comb += self.events.fifo_full.eq(~fifo_credits.ok)
            m.d.comb += self.events.pa_full.eq(fifo_credits.ok)
        self._pipeline(
            m,
            item.word,
            self.accept & tag.nonzero,
            load=tag.first_plane,
            first=tag.first_item,
            done=self.accept & tag.last_item,
            restart=self.accept & tag.first_item & ~tag.nonzero,
        )
        return m


class SparseReplay(Replay):
    """Sequencer of backward for the items of a list.

    Members
    -------
    ``tag`` : In, ``tag_layout(depth, l2=early_reads)``
        Tag of the next item.
    ``tagged`` : In(1)
        There is a next item.
    ``scale``, ``start``, ``drop``, ``take``, ``first``, ``last``, ``terms``, ``control``, ``chunk``,
    ``update``, ``busy``, ``early``
        See ``Replay``. ``take`` is also for items without a word; their ``terms`` are zero.

    Parameters
    ----------
    ``banks``, ``depth``, ``early_reads``
        See ``Replay``.

    Latency
    -------
    As ``Replay``; one item a cycle.

    Source
    ------
    docs/systems/sparse.md.
    """

    def _members(self) -> dict[str, Any]:
        members = super()._members()
        del members["shape"]
        return members | {"tag": In(tag_layout(self.depth, l2=self.early_reads)), "tagged": In(1)}

    def elaborate(self, platform: Any) -> Module:
        """Replay as ``Replay`` does, with the positions in the tags."""
        m = Module()
        tag = self.tag
        self._replay(m, load=tag.first_plane, last=tag.last_item, ready=self.tagged, nonzero=tag.nonzero)
        update = Signal(update_layout(self.depth))
        fresh = tag.fresh if self.early_reads else Const(0)
        m.d.comb += [
            update.valid.eq(self.take & tag.last_plane & (tag.nonzero | tag.final | fresh)),
            update.chunk.eq(tag.chunk),
            update.both.eq(tag.final),
        ]
        self._control(m, update, load=tag.first_plane, fresh=fresh)
        return m


class SparseBackward(Backward):
    """Backward pass over the items of a list.

    Members
    -------
    ``tag``, ``tagged``
        See ``SparseReplay``.
    ``scale``, ``start``, ``drop``, ``take``, ``word``, ``chunk``, ``stored``, ``override``, ``override_value``,
    ``update``, ``weights``, ``first``, ``last``, ``busy``, ``decay``
        See ``Backward``.

    Parameters
    ----------
    ``lanes``, ``banks``, ``depth``, ``l2``
        See ``Backward``.

    Latency
    -------
    As ``Backward``; one item a cycle.

    Source
    ------
    docs/systems/sparse.md.
    """

    def _members(self) -> dict[str, Any]:
        members = super()._members()
        del members["shape"]
        return members | {"tag": In(tag_layout(self.depth, l2=self.l2)), "tagged": In(1)}

    def _make_replay(self, m: Module) -> Replay:
        replay = SparseReplay(banks=self.banks, depth=self.depth, early_reads=self.l2)
        m.d.comb += [replay.tag.eq(self.tag), replay.tagged.eq(self.tagged)]
        return replay


class SparseEngine(Engine):
    """Engine that takes the chunks that a list names, and only these.

    Queues of ``QUEUE`` micro-batches before and after the network let engines of a worker have lists of
    different lengths.

    Members
    -------
    ``entries`` : In, stream of ``Entry``
        List of an epoch, repeated for each epoch.
    ``samples`` : In, stream of ``lanes * banks`` bits
        Words of the list's entries, in their order.
    ``fault`` : Out(1)
        The list is wrong; see ``ListSequencer``.
    ``pa``, ``scale``, ``shape``, ``start``, ``drop``, ``clear``, ``host``, ``busy``, ``events``, ``decay``
        See ``Engine``. A micro-batch has at most ``fifo_depth`` items.

    Parameters
    ----------
    ``lanes``, ``banks``, ``depth``, ``l2``
        See ``Engine``.
    ``fifo_depth`` : int, at least 1
        Items that the replay FIFO holds.

    Latency
    -------
    As ``Engine``, and 1 cycle more from ``scale`` to the first gradient, 1 more from a final write to the item
    that waits for it. One item a cycle.

    Source
    ------
    docs/systems/sparse.md.
    """

    QUEUE = 16  # scales, equal to the PAs in flight

    def __init__(
        self,
        *,
        lanes: int = 64,
        banks: int = 8,
        depth: int = 4096,
        fifo_depth: int = 4096,
        l2: bool = False,
    ):
        super().__init__(lanes=lanes, banks=banks, depth=depth, fifo_depth=fifo_depth, l2=l2)

    def _members(self) -> dict[str, Any]:
        return super()._members() | {"entries": In(stream.Signature(Entry)), "fault": Out(1)}

    def elaborate(self, platform: Any) -> Module:
        """Connect list, forward, replay FIFO with tags, backward and model."""
        m = Module()
        size = {"lanes": self.lanes, "banks": self.banks, "depth": self.depth}
        m.submodules.list = sequencer = ListSequencer(
            word_bits=self.lanes * self.banks, depth=self.depth, max_items=self.fifo_depth, l2=self.l2
        )
        m.submodules.forward = forward = SparseForward(**size, fifo_depth=self.fifo_depth, l2=self.l2)
        m.submodules.backward = backward = SparseBackward(**size, l2=self.l2)
        m.submodules.model = model = ModelMemories(lanes=self.lanes, depth=self.depth)
        tags = StreamFIFO(shape=tag_layout(self.depth, l2=self.l2), depth=self.fifo_depth)
        m.submodules.tags = ResetInserter(self.start)(tags)
        scales = StreamFIFO(shape=data.ArrayLayout(WEIGHT, self.banks), depth=self.QUEUE)
        m.submodules.scales = ResetInserter(self.start | self.drop)(scales)
        m.submodules.entry_buffer = buffer = SkidBuffer(shape=Entry)  # its ``ready`` is a register
        connect_typed(m, flipped(self.entries), buffer.i)
        connect_typed(m, buffer.o, sequencer.entries)
        connect_typed(m, flipped(self.samples), sequencer.words)
        connect_typed(m, sequencer.items, forward.items)
        connect_typed(m, forward.pa, flipped(self.pa))
        connect_typed(m, scales.o, backward.scale)
        connect_typed(m, flipped(self.host), model.host)
        for part in sequencer, forward, backward:
            m.d.comb += [part.start.eq(self.start), part.drop.eq(self.drop)]
        m.d.comb += [
            scales.i.payload.eq(self.scale.payload),
            scales.i.valid.eq(self.scale.valid & ~self.drop),
            self.scale.ready.eq(scales.i.ready | self.drop),
            sequencer.shape.eq(self.shape),
            sequencer.written.eq(model.written),
            self.fault.eq(sequencer.fault),
            forward.waiting.eq(sequencer.waiting),
            forward.weights.eq(model.forward_weights),
            forward.freed.eq(backward.take),
            tags.i.payload.eq(forward.tag),
            tags.i.valid.eq(forward.accept),
            backward.tag.eq(tags.o.payload),
            backward.tagged.eq(tags.o.valid),
            tags.o.ready.eq(backward.take),
            model.forward_chunk.eq(forward.chunk),
            model.backward_chunk.eq(backward.chunk),
            backward.stored.eq(model.backward_weights),
            backward.override.eq(model.override),
            backward.override_value.eq(model.override_value),
            model.update.eq(backward.update),
            model.weights.eq(backward.weights),
            model.clear.eq(self.clear),
        ]
        if self.l2:
            m.d.comb += backward.decay.eq(self.decay)
        self._words(m, forward.word, forward.keep, backward.word, backward.take & tags.o.payload.nonzero)
        m.d.sync += self.busy.eq(tags.level.any() | backward.busy | model.clearing | self.clear)
        self._events(m, forward, backward)
        return m
