"""Queue of the host's writes: checks, counts and stores them."""

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
    """Queue that accepts the host's writes, or refuses writes that are invalid or have no room.

    A write is refused in these cases: its queue pair does not exist; its queue pair is being connected; its
    length is above 2^31; its source begins or ends beyond the memory's addresses; there is no room. 16 writes
    may wait for their queue pairs' rings. ``completions`` writes may be unfinished or have a completion that
    the host has not taken.

    A write that waits while its queue pair is connected anew becomes ``stale``: it belongs to the old
    connection.

    Members
    -------
    ``post`` : In, 1
        Pulse: check and queue ``write``. At most one in 4 cycles.
    ``write`` : In, :func:`~fanin.hdl.rdma.queue_pair.write_layout`
        The write.
    ``local`` : In, 64
        Local address of the write, all 64 bits.
    ``foreign`` : In, 1
        The write's queue pair does not exist.
    ``connecting`` : In, 1
        The write's queue pair is being connected.
    ``connected`` : In, 1
        Pulse: the queue pair at ``connected_index`` is connected anew, or disconnected.
    ``connected_index`` : In, range(queue pairs)
        Queue pair of ``connected``.
    ``completed`` : In, 1
        Pulse: the host has taken a completion.
    ``o`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
        Accepted writes, in order.
    ``stale`` : Out, 1
        The write on ``o`` was accepted before its queue pair was connected anew.
    ``accepted``, ``refused`` : Out, 1
        Pulses; each write causes one of the two.
    ``refusal`` : Out, Refusal
        Cause of refusing the last write; NONE if it was accepted.
    ``full`` : Out, 1
        Another write would be refused.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.
    ``completions`` : int
        Writes that may be unfinished or whose completion the host has not taken; at least 1.

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
        """Check a write in two cycles; accept or refuse it in the third.

        An accepted write takes a credit; the host returns the credit by taking the completion.
        """
        m = Module()
        width = self.config.address_width
        m.submodules.queue = queue = StreamFIFO(shape=write_layout(self.config), depth=_QUEUE)
        connect_typed(m, queue.o, flipped(self.o))
        self._mark(m)
        m.submodules.credits = credits = Credits(limit=self.completions, full=True)
        # Valid one cycle after ``post``:
        added = Signal()
        end = Signal(max(width, LENGTH_BITS) + 1)  # the first byte after the write's source
        start_outside = Signal()
        too_long = Signal()
        not_now = Signal()
        # Valid two cycles after ``post``:
        checked = Signal()
        cause = Signal(Refusal)  # except FULL
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
        for condition, refusal in (  # the last condition that holds wins
            (too_long, Refusal.LENGTH),
            (not_now, Refusal.BUSY),
            (self.foreign, Refusal.PLACE),
        ):
            with m.If(condition):
                m.d.sync += cause.eq(refusal)
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
