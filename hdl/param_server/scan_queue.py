"""Queue of new gradients for the update: in the order in which they were found, or scan by scan."""

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
    """Queue of new gradients, at most one of each worker.

    Without ``scan`` gradients leave in the order in which they were found. With ``scan`` they leave in *scans*.
    A scan visits the workers by index and hands out the gradient that each has at that moment. A gradient found
    after its worker was visited waits for the next scan. After a scan with at least one used gradient follows
    an item with ``ends_scan``.

    Members
    -------
    ``scan`` : In, 1
        Mode; stable while anything is held.
    ``workers`` : In, range(queue_pairs + 1)
        Number of workers; a scan visits those with a lower index.
    ``looks`` : In, 1
        The scan may advance: the consumer of ``o`` waits for a gradient.
    ``i`` : In, stream of :func:`found_layout`
        New gradients, never two of one worker at once; under this condition always ready.
    ``o`` : Out, stream of :func:`found_layout`
        Gradients and ends of scans.
    ``again`` : In, 1
        The gradient that is taken from ``o`` in this cycle is not used.
    ``busy`` : Out, 1
        A gradient is held, or the end of a scan has yet to be handed out.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs.

    Latency
    -------
    1 cycle without ``scan``. With ``scan`` 2 cycles until a gradient is held. A scan takes 1 cycle for each
    worker without a gradient, 3 for each worker with one, and 1 for its end.

    Source
    ------
    RDMA-wild, algorithm 1, lines 10 to 18; docs/systems/param-server-hardware.md, "After a scan".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        items = stream.Signature(found_layout(config))
        super().__init__(
            {
                "scan": In(1),
                "workers": In(range(config.queue_pairs + 1)),
                "looks": In(1),
                "i": In(items),
                "o": Out(items),
                "again": In(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Store gradients in a FIFO; with ``scan``, move them to ``gradients``, one place for each worker."""
        m = Module()
        count = self.config.queue_pairs
        m.submodules.fifo = fifo = StreamFIFO(shape=found_layout(self.config), depth=count)
        m.submodules.gradients = gradients = Memory(shape=found_layout(self.config), depth=count, init=[])
        connect_typed(m, flipped(self.i), fifo.i)
        write = gradients.write_port()
        has_gradient = Signal(count)
        used = Signal()  # a gradient of this scan was used
        m.d.comb += [
            write.addr.eq(fifo.o.payload.index),
            write.data.eq(fifo.o.payload),
            self.busy.eq(fifo.o.valid | has_gradient.any() | used),
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
            m.d.sync += has_gradient.bit_select(write.addr, 1).eq(1)
        self._walk(m, gradients.read_port(domain="comb"), has_gradient, used)
        return m

    def _walk(self, m: Module, read: Any, has_gradient: Signal, used: Signal) -> None:
        """Visit the workers cyclically, one a cycle. 1+: one cycle, or longer while waiting::

            state   cycles   what it does                               next
            LOOK    1+       passes workers without a gradient          OFFER, or END after the last worker
            OFFER   1+       offers the worker's gradient               PASS
            PASS    1        passes this worker                         LOOK, or END
            END     1+       offers the end of the scan                 LOOK

        ``finds``: the current worker has a gradient; looked up for ``next_position`` when the scan advances.
        """
        next_position = Signal.like(read.addr)
        position = Signal.like(read.addr)
        finds = Signal()
        advance = Signal()
        ends = Signal()
        m.d.comb += [read.addr.eq(position), ends.eq(advance & (next_position == 0) & used)]
        m.d.sync += finds.eq(has_gradient.bit_select(position, 1))
        with m.FSM():
            with m.State("LOOK"):
                m.d.comb += advance.eq(self.scan & self.looks & ~finds)
                with m.If(finds):
                    m.next = "OFFER"
                with m.If(ends):
                    m.next = "END"
            with m.State("OFFER"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.eq(read.data)]
                with m.If(self.o.ready):
                    m.d.sync += [has_gradient.bit_select(position, 1).eq(0), used.eq(used | ~self.again)]
                    m.next = "PASS"
            with m.State("PASS"):
                m.d.comb += advance.eq(1)
                m.next = "LOOK"
                with m.If(ends):
                    m.next = "END"
            with m.State("END"):
                m.d.comb += [self.o.valid.eq(1), self.o.payload.ends_scan.eq(1)]
                with m.If(self.o.ready):
                    m.d.sync += used.eq(0)
                    m.next = "LOOK"
        with m.If(advance):
            m.d.sync += [
                position.eq(next_position),
                next_position.eq(Mux(next_position + 1 == self.workers, 0, next_position + 1)),
                finds.eq(has_gradient.bit_select(next_position, 1)),
            ]
