"""Scanner for new gradients: polls the trailers of all workers' next slots in turn.

A worker writes each gradient into its next slot, and a *trailer* with the gradient's version number (GVnum)
after it. *LGVnum* is the version of the worker's gradient that the server applied last.
"""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import CACHE_BUFFERABLE_MODIFIABLE, AXI4ReadSignature, Burst, Resp
from fanin.hdl.param_server.scan_queue import ScanQueue
from fanin.hdl.param_server.shapes import VERSION_BITS, found_layout, place_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma.facts import RdmaConfig


class Scanner(wiring.Component):
    """Poller of the trailers of the workers' next gradients; reports each new gradient.

    A gradient is new if its GVnum is above the worker's LGVnum. Workers are polled in turn, each with at most
    one read in flight. A worker without a new gradient is polled again. A worker whose gradient was reported is
    polled again after ``place`` has given the location of its next gradient. New gradients leave in the order
    of :class:`~fanin.hdl.param_server.scan_queue.ScanQueue`.

    Members
    -------
    ``enable`` : In, 1
        Reads may begin.
    ``workers`` : In, range(queue_pairs + 1)
        Number of workers; those with a lower index are polled.
    ``excluded`` : In, one bit for each worker
        The worker is not polled.
    ``place`` : In, stream of :func:`place_layout`, always ready
        Location of a worker's next gradient, and the worker's LGVnum. Allowed after the worker's gradient was
        reported, and for any worker while not ``busy``.
    ``scan`` : In, 1
        Gradients are reported scan by scan, each scan with its end. Stable while ``busy``.
    ``looks`` : In, 1
        The scan may advance: the consumer of ``o`` waits for a gradient.
    ``o`` : Out, stream of :func:`found_layout`
        New gradients and ends of scans.
    ``again`` : In, 1
        The gradient that is taken from ``o`` in this cycle is not used: its worker is polled again.
    ``busy`` : Out, 1
        A read is in flight, or its result has not been taken.
    ``idle`` : Out, one bit for each worker
        The worker's trailer is not being read, and none of its reported gradients waits for ``place``. From the
        8th cycle after a worker's exclusion, its bit cannot fall: a poll that was selected before clears it
        within 4 cycles, and the rest is margin.
    ``error`` : Out, 1
        Pulse: a read response was not OKAY. Its data are used nevertheless.
    ``axi`` : Out, AXI4 read port
        Reads of single words. All data written before a trailer must be in memory when the trailer is read.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.

    Latency
    -------
    A read every 3 cycles, and a cycle for each worker that is not polled; 3 cycles from its data to ``o``.

    Source
    ------
    RDMA-wild, algorithm 1, lines 10 to 13; docs/systems/param-server-hardware.md.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        count = config.queue_pairs
        super().__init__(
            {
                "enable": In(1),
                "workers": In(range(count + 1)),
                "excluded": In(count),
                "place": In(stream.Signature(place_layout(config), always_ready=True)),
                "scan": In(1),
                "looks": In(1),
                "o": Out(stream.Signature(found_layout(config))),
                "again": In(1),
                "busy": Out(1),
                "idle": Out(count),
                "error": Out(1),
                "axi": Out(AXI4ReadSignature(data_width=config.width, address_width=config.address_width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Move each worker through these states: idle, trailer read in flight, then reported or idle again.

        ``idle`` has one bit for each worker. The FIFO ``in_flight`` holds the workers whose trailers are being
        read, in order. ``queue`` holds the workers with a new gradient. Each worker is in at most one
        of them, so neither overflows.
        """
        m = Module()
        config, count = self.config, self.config.queue_pairs
        place = place_layout(config)
        entry = data.StructLayout({name: place[name].shape for name in ("trailer", "lgvnum")})
        m.submodules.table = table = Memory(shape=entry, depth=count, init=[])
        read_shape = data.StructLayout({name: place[name].shape for name in ("index", "lgvnum")})
        m.submodules.in_flight = in_flight = StreamFIFO(shape=read_shape, depth=count)
        m.submodules.queue = queue = ScanQueue(config=config)
        connect_typed(m, queue.o, flipped(self.o))
        m.d.comb += [
            getattr(queue, name).eq(getattr(self, name)) for name in ("scan", "workers", "looks", "again")
        ]
        idle = self.idle
        self._poll(m, table.read_port(domain="comb"), in_flight.i, idle)
        self._compare(m, in_flight.o, queue, idle)
        write, new_place = table.write_port(), self.place.payload
        m.d.comb += [
            write.addr.eq(new_place.index),
            write.en.eq(self.place.valid),
            write.data.trailer.eq(new_place.trailer),
            write.data.lgvnum.eq(new_place.lgvnum),
        ]
        with m.If(self.place.valid):
            m.d.sync += idle.bit_select(new_place.index, 1).eq(1)
        # A gradient that is not used makes its worker idle a cycle later, to shorten the path of the handshake.
        returns = Signal()
        returned = Signal.like(new_place.index)
        m.d.sync += [returns.eq(self.o.valid & self.o.ready & self.again), returned.eq(self.o.payload.index)]
        with m.If(returns):
            m.d.sync += idle.bit_select(returned, 1).eq(1)
        return m

    def _poll(self, m: Module, table: Any, in_flight: Any, idle: Signal) -> None:
        """Visit the workers cyclically, one a cycle; read the trailer of each worker that must be polled.

        ``polls``: the current worker ``index`` must be polled; looked up for ``next_index`` when the round
        advances.
        """
        axi = self.axi
        next_index = Signal.like(in_flight.payload.index)
        index = Signal.like(next_index)
        polls = Signal()
        advance = Signal()
        present = Signal.like(idle)  # workers of the job that are not excluded
        candidates = Signal.like(idle)  # workers that were ``present`` and idle in the previous cycle
        m.d.sync += [
            present.eq(Cat(self.workers > n for n in range(len(present))) & ~self.excluded),
            candidates.eq(idle & present),
        ]
        m.d.comb += [
            table.addr.eq(index),
            in_flight.payload.index.eq(index),
            in_flight.payload.lgvnum.eq(table.data.lgvnum),
            axi.arsize.eq((self.config.width // 8).bit_length() - 1),
            axi.arburst.eq(Burst.INCR),
            axi.arcache.eq(CACHE_BUFFERABLE_MODIFIABLE),
        ]
        with m.FSM():
            with m.State("LOOK"):
                with m.If(polls & self.enable):
                    m.next = "READ"
                with m.Else():
                    m.d.comb += advance.eq(1)
            with m.State("READ"):
                m.d.comb += in_flight.valid.eq(1)
                m.d.sync += [
                    axi.arvalid.eq(1),
                    axi.araddr.eq(table.data.trailer),
                    *(flags.bit_select(index, 1).eq(0) for flags in (idle, candidates)),
                ]
                m.next = "ADDRESS"
            with m.State("ADDRESS"), m.If(axi.arready):
                m.d.comb += advance.eq(1)
                m.d.sync += axi.arvalid.eq(0)
                m.next = "LOOK"
        with m.If(advance):
            m.d.sync += [
                index.eq(next_index),
                polls.eq(candidates.bit_select(next_index, 1)),
                next_index.eq(Mux(next_index + 1 == self.workers, 0, next_index + 1)),
            ]

    def _compare(self, m: Module, in_flight: Any, queue: Any, idle: Signal) -> None:
        """Register an arriving trailer in one cycle and compare its version with LGVnum in the next."""
        axi, word = self.axi, self.axi.rdata
        arrived = Signal()  # ``trailer`` is valid
        trailer = Signal(self.o.payload.shape())
        lgvnum = Signal(VERSION_BITS)
        compared = Signal()  # ``compared_trailer`` and ``is_new`` are valid
        compared_trailer = Signal.like(trailer)
        is_new = Signal()
        m.d.comb += [
            axi.rready.eq(1),
            in_flight.ready.eq(axi.rvalid),
            queue.i.valid.eq(compared & is_new),
            queue.i.payload.eq(compared_trailer),
            self.busy.eq(axi.arvalid | in_flight.valid | arrived | compared | queue.busy),
        ]
        m.d.sync += [
            self.error.eq(axi.rvalid & (axi.rresp != Resp.OKAY)),
            arrived.eq(axi.rvalid),
            trailer.index.eq(in_flight.payload.index),
            trailer.version.eq(word[-VERSION_BITS:]),
            trailer.others.eq(word[:VERSION_BITS]),
            lgvnum.eq(in_flight.payload.lgvnum),
            compared.eq(arrived),
            compared_trailer.eq(trailer),
            is_new.eq(trailer.version > lgvnum),
        ]
        with m.If(compared & ~is_new):
            m.d.sync += idle.bit_select(compared_trailer.index, 1).eq(1)
