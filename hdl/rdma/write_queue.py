"""The writes that the host posts: checked, counted and queued."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, write_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import RdmaConfig
from fanin.wire.rdma import MAX_MESSAGE_BYTES

_QUEUE = 16  # writes that may wait for their queue pair's ring


class WriteQueue(wiring.Component):
    """Accept the host's writes, or refuse those that cannot be carried out or whose completion has no place.

    Three kinds are refused: a length above 2^31; a source that begins or ends beyond the memory's addresses;
    one write too many. 16 may wait for their queue pair's ring, and ``completions`` may be unfinished or have a
    completion that the host has not taken.

    Members
    -------
    ``post`` : In, 1
        At most one in 4 cycles.
    ``write`` : In, :func:`~fanin.hdl.rdma.queue_pair.write_layout`
    ``local`` : In, 64
        The whole of the local address.
    ``completed`` : In, 1
        Pulse: the host has taken a completion.
    ``o`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.write_layout`
    ``accepted``, ``refused`` : Out, 1
        Pulse, for every write one of them.
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
                "completed": In(1),
                "o": Out(stream.Signature(write_layout(config))),
                "accepted": Out(1),
                "refused": Out(1),
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
        m.submodules.credits = credits = Credits(limit=self.completions, full=True)
        # a cycle after ``post``
        added = Signal()
        end = Signal(max(width, LENGTH_BITS) + 1)  # the first byte after the write's source
        start_outside = Signal()
        too_long = Signal()
        # two cycles after it
        checked = Signal()
        impossible = Signal()
        accept = Signal()
        end_outside = end[width:].any() & (end[:width].any() | end[width + 1 :].any())
        m.d.comb += [
            accept.eq(checked & ~impossible & ~self.full),
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
            checked.eq(added),
            impossible.eq(end_outside | start_outside | too_long),
            self.full.eq(~credits.ok | (queue.level == _QUEUE)),
            self.accepted.eq(accept),
            self.refused.eq(checked & ~accept),
        ]
        return m
