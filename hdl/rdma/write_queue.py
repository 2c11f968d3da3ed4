"""The writes that the host posts: looked at, counted, and queued."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.rdma.queue_pair import LENGTH_BITS, REMOTE_BITS, write_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import RdmaConfig
from fanin.wire.rdma import MAX_MESSAGE_BYTES

_QUEUE = 16  # writes that may wait for their queue pair's ring


class WriteQueue(wiring.Component):
    """Take the host's writes, and refuse what cannot be done or could not be told of.

    Refused is a length above 2^31, what lies or ends beyond the memory's addresses, and one write too many: 16
    may wait for their queue pair, and ``completions`` may be unfinished or not taken by the host.

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
        """Add; look; decide."""
        m = Module()
        width = self.config.address_width
        m.submodules.queue = queue = StreamFIFO(shape=write_layout(self.config), depth=_QUEUE)
        connect_typed(m, queue.o, flipped(self.o))
        end = Signal(max(width, LENGTH_BITS) + 1)
        outside, beyond, too_long, added, looked = (
            Signal(name=name) for name in ("outside", "beyond", "too_long", "added", "looked")
        )
        unfinished = Signal(range(self.completions + 1))
        m.d.sync += [
            end.eq(self.local[:width] + self.write.length),
            outside.eq(self.local[width:].any()),
            too_long.eq(self.write.length > MAX_MESSAGE_BYTES),
            added.eq(self.post),
            beyond.eq(end[width:].any() & (end[:width].any() | end[width + 1 :].any()) | outside | too_long),
            looked.eq(added),
            self.full.eq((unfinished == self.completions) | (queue.level == _QUEUE)),
            self.accepted.eq(looked & ~beyond & ~self.full),
            self.refused.eq(looked & (beyond | self.full)),
        ]
        with m.If(looked & ~beyond & ~self.full & ~self.completed):
            m.d.sync += unfinished.eq(unfinished + 1)
        with m.Elif(self.completed & ~(looked & ~beyond & ~self.full)):
            m.d.sync += unfinished.eq(unfinished - 1)
        m.d.comb += [queue.i.valid.eq(self.accepted), queue.i.payload.eq(self.write)]
        return m
