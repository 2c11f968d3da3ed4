"""New gradients on their way to the update: in the order in which they were found, or scan by scan."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.param_server.shapes import found_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma.facts import RdmaConfig


class ScanQueue(wiring.Component):
    """Hold the new gradients, one of each worker at most, and hand them out.

    Without ``scan`` they leave in the order in which they were found. With it they leave by *scans*: a scan
    looks at one worker after the other, by their index, and hands out what is there at that moment. A gradient
    that is found where the scan has been is the next one's. After a scan that handed out a gradient that was
    used comes an item ``ends_scan``.

    Members
    -------
    ``scan`` : In, 1
        Stable while anything is held.
    ``workers`` : In, range(queue_pairs + 1)
        A scan looks at workers with an index below this number.
    ``looks`` : In, 1
        A scan goes on: the taker of ``o`` waits for a gradient.
    ``i`` : In, stream of :func:`found_layout`
        Gradients; never two of a worker at once. Always ready then.
    ``o`` : Out, stream of :func:`found_layout`
    ``again`` : In, 1
        The gradient that is taken from ``o`` in this cycle is not used.
    ``busy`` : Out, 1
        A gradient is held, or a scan's end is to come.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    1 cycle without ``scan``. With it 2 cycles until a gradient is held; a scan takes a cycle for each worker
    that has nothing, 3 for each that has, and one for its end.

    Source
    ------
    RDMA-wild, algorithm 1, lines 10 to 18; docs/systems/param-server-hardware.md, "Behind a scan".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        found = stream.Signature(found_layout(config))
        super().__init__(
            {
                "scan": In(1),
                "workers": In(range(config.queue_pairs + 1)),
                "looks": In(1),
                "i": In(found),
                "o": Out(found),
                "again": In(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """With ``scan`` the FIFO is emptied into ``held``, which has a place for each worker."""
        m = Module()
        count = self.config.queue_pairs
        m.submodules.fifo = fifo = StreamFIFO(shape=found_layout(self.config), depth=count)
        m.submodules.held = held = Memory(shape=found_layout(self.config), depth=count, init=[])
        connect_typed(m, flipped(self.i), fifo.i)
        write = held.write_port()
        is_held = Signal(count)
        used = Signal()  # a gradient of this scan
        m.d.comb += [
            write.addr.eq(fifo.o.payload.index),
            write.data.eq(fifo.o.payload),
            self.busy.eq(fifo.o.valid | is_held.any() | used),
        ]
        with m.If(self.scan):
            m.d.comb += [fifo.o.ready.eq(1), write.en.eq(fifo.o.valid)]
        with m.Else():
            m.d.comb += [
                fifo.o.ready.eq(self.o.ready),
                self.o.valid.eq(fifo.o.valid),
                self.o.payload.eq(fifo.o.payload),
            ]
        with m.If(write.en):
            m.d.sync += is_held.bit_select(write.addr, 1).eq(1)
        self._walk(m, held.read_port(domain="comb"), is_held, used)
        return m

    def _walk(self, m: Module, read: Any, is_held: Signal, used: Signal) -> None:
        """Go round the workers, one a cycle. 1+: a state of one cycle, or as many as it must wait::

            state   cycles   what it does                               next
            LOOK    1+       goes on by a worker that has nothing       OFFER, or END where the scan comes round
            OFFER   1+       offers the worker's gradient               PASS
            PASS    1        goes on                                    LOOK, or END
            END     1+       offers the end of the scan                 LOOK

        ``finds`` says whether the current worker has a gradient, and is looked up for ``following`` as the
        scan goes on.
        """
        following = Signal.like(read.addr)
        position = Signal.like(read.addr)
        finds = Signal()
        goes_on = Signal()
        ends = Signal()
        m.d.comb += [read.addr.eq(position), ends.eq(goes_on & (following == 0) & used)]
        m.d.sync += finds.eq(is_held.bit_select(position, 1))
        with m.FSM():
            with m.State("LOOK"):
                m.d.comb += goes_on.eq(self.scan & self.looks & ~finds)
                with m.If(finds):
                    m.next = "OFFER"
                with m.If(ends):
                    m.next = "END"
            with m.State("OFFER"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(read.data)]
                with m.If(self.o.ready):
                    m.d.sync += [is_held.bit_select(position, 1).eq(0), used.eq(used | ~self.again)]
                    m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += goes_on.eq(1)
                m.next = "LOOK"
                with m.If(ends):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.ends_scan.eq(1)]
                with m.If(self.o.ready):
                    m.d.sync += used.eq(0)
                    m.next = "LOOK"
        with m.If(goes_on):
            m.d.sync += [
                position.eq(following),
                following.eq(Mux(following + 1 == self.workers, 0, following + 1)),
                finds.eq(is_held.bit_select(following, 1)),
            ]
