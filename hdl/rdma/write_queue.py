"""The writes that the host posts: checked, counted and queued."""

from __future__ import annotations

from typing import Any

from amaranth import Array, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, index_bits, write_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma.facts import RdmaConfig, Refusal
from fanin.wire.rdma import MAX_MESSAGE_BYTES

_QUEUE = 16  # writes that may wait for their queue pair's ring


class WriteQueue(wiring.Component):
    """Accept the host's writes, or refuse those that cannot be carried out or whose completion has no place.

    Five kinds are refused: a queue pair that does not exist, or is being connected; a length above 2^31; a
    source that begins or ends beyond the memory's addresses; one write too many. 16 may wait for their queue
    pair's ring, and ``completions`` may be unfinished or have a completion that the host has not taken.

    A write that waits while its queue pair is connected anew is ``stale``: it is of the old connection.

    Members
    -------
    ``post`` : In, 1
        At most one in 4 cycles.
    ``write`` : In, :func:`~fanin.hdl.rdma.queue_pair.write_layout`
    ``local`` : In, 64
        The whole of the local address.
    ``foreign`` : In, 1
        The write's queue pair does not exist.
    ``connecting`` : In, 1
        The write's queue pair is being connected.
    ``connected`` : In, 1
        Pulse: the queue pair at ``connected_index`` begins anew, or ends.
    ``connected_index`` : In, range(queue pairs)
    ``completed`` : In, 1
        Pulse: the host has taken a completion.
    ``o`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
    ``stale`` : Out, 1
        The write on ``o`` was accepted before its queue pair was connected anew.
    ``accepted``, ``refused`` : Out, 1
        Pulse, for every write one of them.
    ``refusal`` : Out, Refusal
        Why the last write was refused; NONE if it was accepted.
    ``full`` : Out, 1
        One more would be refused.

    Parameters
    ----------
    ``config`` : RdmaConfig
    ``completions`` : int, at least 1

    Latency
    -------
    ``accepted`` or ``refused`` 3 cycles after ``post``, ``o`` 1 cycle later.

    Source
    ------
    docs/systems/rdma.md, "Registers".
    """

    def __init__(self, *, config: RdmaConfig, completions: int):
        if completions < 1:
            raise ValueError(f"completions must be at least 1, not {completions!r}")
        self.config = config
        self.completions = completions
        super().__init__(
            {
                "post": In(1),
                "write": In(write_layout(config)),
                "local": In(REMOTE_BITS),
                "foreign": In(1),
                "connecting": In(1),
                "connected": In(1),
                "connected_index": In(index_bits(config)),
                "completed": In(1),
                "o": Out(stream.Signature(write_layout(config))),
                "stale": Out(1),
                "accepted": Out(1),
                "refused": Out(1),
                "refusal": Out(Refusal),
                "full": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Two cycles of looking at a write; in the third it is accepted or refused.

        A credit stands for a write that may be unfinished: an accepted write takes it, and the host gives it
        back when it takes the completion.
        """
        m = Module()
        width = self.config.address_width
        m.submodules.queue = queue = StreamFIFO(shape=write_layout(self.config), depth=_QUEUE)
        connect_typed(m, queue.o, flipped(self.o))
        self._mark(m)
        m.submodules.credits = credits = Credits(limit=self.completions, full=True)
        # a cycle after ``post``
        added = Signal()
        end = Signal(max(width, LENGTH_BITS) + 1)  # the first byte after the write's source
        start_outside = Signal()
        too_long = Signal()
        not_now = Signal()
        # two cycles after it
        checked = Signal()
        cause = Signal(Refusal)  # but for FULL
        accept = Signal()
        end_outside = end[width:].any() & (end[:width].any() | end[width + 1 :].any())
        m.d.comb += [
            accept.eq(checked & (cause == Refusal.NONE) & ~self.full),
            credits.take.eq(accept),
            credits.give.eq(self.completed),
            queue.i.valid.eq(self.accepted),
            queue.i.payload.eq(self.write),
        ]
        m.d.sync += [
            added.eq(self.post),
            end.eq(self.local[:width] + self.write.length),
            start_outside.eq(self.local[width:].any()),
            too_long.eq(self.write.length > MAX_MESSAGE_BYTES),
            not_now.eq(self.connecting),
            checked.eq(added),
            cause.eq(Mux(end_outside | start_outside, Refusal.RANGE, Refusal.NONE)),
            self.full.eq(~credits.ok | (queue.level == _QUEUE)),
            self.accepted.eq(accept),
            self.refused.eq(checked & ~accept),
        ]
        for condition, first in (
            (too_long, Refusal.LENGTH),
            (not_now, Refusal.BUSY),
            (self.foreign, Refusal.PLACE),
        ):
            with m.If(condition):
                m.d.sync += cause.eq(first)
        with m.If(checked):
            m.d.sync += self.refusal.eq(Mux((cause == Refusal.NONE) & self.full, Refusal.FULL, cause))
        return m

    def _mark(self, m: Module) -> None:
        """Mark the writes in the queue whose queue pair is connected anew."""
        produce = Signal(range(_QUEUE))
        consume = Signal(range(_QUEUE))
        indices = Array(Signal(index_bits(self.config), name=f"index{n}") for n in range(_QUEUE))
        stale = Signal(_QUEUE)
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += consume.eq(consume + 1)
        with m.If(self.accepted):
            m.d.sync += [
                produce.eq(produce + 1),
                indices[produce].eq(self.write.index),
                stale.bit_select(produce, 1).eq(self.connected & (self.write.index == self.connected_index)),
            ]
        with m.If(self.connected):
            for n, index in enumerate(indices):
                with m.If((index == self.connected_index) & ~(self.accepted & (produce == n))):
                    m.d.sync += stale[n].eq(1)
        m.d.comb += self.stale.eq(stale.bit_select(consume, 1))
