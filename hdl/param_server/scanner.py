"""Which workers have a new gradient: the trailers of all workers' next slots are read in turn."""

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
    """Poll the trailers of the workers' next gradients, and report each gradient that is new.

    A gradient is new if its GVnum is above the worker's LGVnum. Workers are polled in turn, with at most one
    read of each in flight. A worker whose gradient was not new is polled again. One whose gradient was reported
    is polled again when ``place`` says where its next gradient will be. New gradients are reported as
    :class:`~fanin.hdl.param_server.scan_queue.ScanQueue` has it.

    Members
    -------
    ``enable`` : In, 1
        Reads may begin.
    ``workers`` : In, range(queue_pairs + 1)
        Workers with an index below this number are polled.
    ``excluded`` : In, one bit for each worker
        The worker is not polled.
    ``place`` : In, stream of :func:`place_layout`, always ready
        Where a worker's next gradient will be, and its LGVnum: after its gradient was reported, or for any
        worker while not ``busy``.
    ``scan`` : In, 1
        Gradients are reported scan by scan, each with its end. Stable while ``busy``.
    ``looks`` : In, 1
        A scan goes on: the taker of ``o`` waits for a gradient.
    ``o`` : Out, stream of :func:`found_layout`
        A new gradient, or the end of a scan.
    ``again`` : In, 1
        The gradient that is taken from ``o`` in this cycle is not used: its worker is polled again.
    ``busy`` : Out, 1
        A read is in flight, or what it found has not been taken.
    ``idle`` : Out, one bit for each worker
        Its trailer is not being read, and no gradient that was reported awaits its ``place``. Stays high from 8
        cycles after the worker was excluded on.
    ``error`` : Out, 1
        Pulse: a response was not OKAY. Its data are used all the same.
    ``axi`` : Out, AXI4 read port
        Reads of single words. When a trailer is read, all that was written before it must be in memory.

    Parameters
    ----------
    ``config`` : RdmaConfig

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
        """A worker is *idle* until its trailer is read, then *in flight*, then reported or idle again.

        ``idle`` has a bit for each worker; the FIFO ``in_flight`` has those that are read, in the order of the
        reads, the queue ``found`` those that have something new. Each worker is in one of them at most, so
        neither is ever full.
        """
        m = Module()
        config, count = self.config, self.config.queue_pairs
        place = place_layout(config)
        entry = data.StructLayout({name: place[name].shape for name in ("trailer", "lgvnum")})
        m.submodules.table = table = Memory(shape=entry, depth=count, init=[])
        read_shape = data.StructLayout({name: place[name].shape for name in ("index", "lgvnum")})
        m.submodules.in_flight = in_flight = StreamFIFO(shape=read_shape, depth=count)
        m.submodules.found = found = ScanQueue(config=config)
        connect_typed(m, found.o, flipped(self.o))
        m.d.comb += [
            getattr(found, name).eq(getattr(self, name)) for name in ("scan", "workers", "looks", "again")
        ]
        idle = self.idle
        self._poll(m, table.read_port(domain="comb"), in_flight.i, idle)
        self._compare(m, in_flight.o, found, idle)
        write, new_place = table.write_port(), self.place.payload
        m.d.comb += [
            write.addr.eq(new_place.index),
            write.en.eq(self.place.valid),
            write.data.trailer.eq(new_place.trailer),
            write.data.lgvnum.eq(new_place.lgvnum),
        ]
        with m.If(self.place.valid):
            m.d.sync += idle.bit_select(new_place.index, 1).eq(1)
        # A gradient that is not used makes its worker idle a cycle later: the handshake comes late.
        returns = Signal()
        returned = Signal.like(new_place.index)
        m.d.sync += [returns.eq(self.o.valid & self.o.ready & self.again), returned.eq(self.o.payload.index)]
        with m.If(returns):
            m.d.sync += idle.bit_select(returned, 1).eq(1)
        return m

    def _poll(self, m: Module, table: Any, in_flight: Any, idle: Signal) -> None:
        """Go round the workers, one a cycle, until one is to be polled; then read its trailer.

        ``index`` is the current worker, and the register ``polls`` says whether it is to be polled. The same
        is looked up for ``next_index`` as the round advances.
        """
        axi = self.axi
        next_index = Signal.like(in_flight.payload.index)
        index = Signal.like(next_index)
        polls = Signal()
        advance = Signal()
        present = Signal.like(idle)  # workers that take part
        candidates = Signal.like(idle)  # those of them that were idle a cycle ago
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

    def _compare(self, m: Module, in_flight: Any, found: Any, idle: Signal) -> None:
        """Two steps after the read data: the trailer in a register, then whether it is new in another."""
        axi, word = self.axi, self.axi.rdata
        arrived = Signal()  # ``trailer`` is one
        trailer = Signal(self.o.payload.shape())
        lgvnum = Signal(VERSION_BITS)
        compared = Signal()  # ``compared_trailer`` is one, and ``is_new`` is about it
        compared_trailer = Signal.like(trailer)
        is_new = Signal()
        m.d.comb += [
            axi.rready.eq(1),
            in_flight.ready.eq(axi.rvalid),
            found.i.valid.eq(compared & is_new),
            found.i.payload.eq(compared_trailer),
            self.busy.eq(axi.arvalid | in_flight.valid | arrived | compared | found.busy),
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
