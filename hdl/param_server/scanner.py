"""Who has a new gradient: the trailers of all workers' next slots, looked at in turn."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import CACHE_BUFFERABLE_MODIFIABLE, AXI4ReadSignature, Burst, Resp
from fanin.hdl.param_server.shapes import VERSION_BITS, found_layout, place_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import RdmaConfig


class Scanner(wiring.Component):
    """Read the trailers of the workers' next gradients over and over, and tell of those that are new.

    A gradient is new if its GVnum is above the worker's LGVnum. A worker is asked about once more when nothing
    new was found; else when ``place`` says where its next gradient will be. All workers are asked about in
    turn, one read each at a time.

    Members
    -------
    ``enable`` : In, 1
    ``workers`` : In, range(queue_pairs + 1)
        Those of a higher index are left out.
    ``gone`` : In, one bit for each worker
        Left out, too.
    ``place`` : In, stream of :func:`place_layout`, always ready
        Only for a worker that nothing is being asked about: one that was told of, or any while not ``busy``.
    ``o`` : Out, stream of :func:`found_layout`
    ``again`` : In, 1
        What is taken from ``o`` in this cycle is not used: its worker is asked about once more.
    ``busy`` : Out, 1
        A read is under way, or what it found has not been taken.
    ``error`` : Out, 1
        Pulse: a response was not OKAY. Its data count.
    ``axi`` : Out, AXI4 read port
        Single words. What memory had taken before a trailer must be there when the trailer is read.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    A read every 3 cycles, and a cycle for each worker that is passed over; 3 cycles from its data to ``o``.

    Source
    ------
    RDMA-wild, algorithm 1, lines 10 to 13; docs/systems/param-server.md.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        count = config.queue_pairs
        super().__init__(
            {
                "enable": In(1),
                "workers": In(range(count + 1)),
                "gone": In(count),
                "place": In(stream.Signature(place_layout(config), always_ready=True)),
                "o": Out(stream.Signature(found_layout(config))),
                "again": In(1),
                "busy": Out(1),
                "error": Out(1),
                "axi": Out(AXI4ReadSignature(data_width=config.width, address_width=config.address_width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """``waiting`` has those that may be asked about; ``asked`` those that a read is under way for."""
        m = Module()
        config, count = self.config, self.config.queue_pairs
        place = place_layout(config)
        entry = data.StructLayout({name: place[name].shape for name in ("trailer", "lgvnum")})
        m.submodules.table = table = Memory(shape=entry, depth=count, init=[])
        asked_shape = data.StructLayout({name: place[name].shape for name in ("index", "lgvnum")})
        # Neither is ever full: each worker is in one of them at most.
        m.submodules.asked = asked = StreamFIFO(shape=asked_shape, depth=count)
        m.submodules.found = found = StreamFIFO(shape=self.o.payload.shape(), depth=count)
        connect_typed(m, found.o, flipped(self.o))
        waiting = Signal(count)
        self._ask(m, table.read_port(domain="comb"), asked.i, waiting)
        self._answer(m, asked.o, found.i, waiting)
        write, said = table.write_port(), self.place.payload
        m.d.comb += [
            write.addr.eq(said.index),
            write.en.eq(self.place.valid),
            write.data.trailer.eq(said.trailer),
            write.data.lgvnum.eq(said.lgvnum),
        ]
        with m.If(self.place.valid):
            m.d.sync += waiting.bit_select(said.index, 1).eq(1)
        returns = Signal()  # a cycle late: whether it is taken is known late in the cycle
        returned = Signal.like(said.index)
        m.d.sync += [returns.eq(self.o.valid & self.o.ready & self.again), returned.eq(self.o.payload.index)]
        with m.If(returns):
            m.d.sync += waiting.bit_select(returned, 1).eq(1)
        return m

    def _ask(self, m: Module, table: Any, asked: Any, waiting: Signal) -> None:
        """Go round: one worker a cycle until one waits, whose trailer is read."""
        axi = self.axi
        ahead = Signal.like(asked.payload.index)  # who is looked at
        index = Signal.like(ahead)  # who was before,
        waits = Signal()  # and whether that one waits
        moves = Signal()
        present = Signal.like(waiting)
        asking = Signal.like(waiting)
        m.d.sync += [
            present.eq(Cat(self.workers > n for n in range(len(present))) & ~self.gone),
            asking.eq(waiting & present),
        ]
        m.d.comb += [
            table.addr.eq(index),
            asked.payload.index.eq(index),
            asked.payload.lgvnum.eq(table.data.lgvnum),
            axi.arsize.eq((self.config.width // 8).bit_length() - 1),
            axi.arburst.eq(Burst.INCR),
            axi.arcache.eq(CACHE_BUFFERABLE_MODIFIABLE),
        ]
        with m.FSM():
            with m.State("LOOK"):
                with m.If(waits & self.enable):
                    m.next = "READ"
                with m.Else():
                    m.d.comb += moves.eq(1)
            with m.State("READ"):
                m.d.comb += asked.valid.eq(1)
                m.d.sync += [
                    axi.arvalid.eq(1),
                    axi.araddr.eq(table.data.trailer),
                    *(flags.bit_select(index, 1).eq(0) for flags in (waiting, asking)),
                ]
                m.next = "ASK"
            with m.State("ASK"), m.If(axi.arready):
                m.d.comb += moves.eq(1)
                m.d.sync += axi.arvalid.eq(0)
                m.next = "LOOK"
        with m.If(moves):
            m.d.sync += [
                ahead.eq(Mux(ahead + 1 == self.workers, 0, ahead + 1)),
                index.eq(ahead),
                waits.eq(asking.bit_select(ahead, 1)),
            ]

    def _answer(self, m: Module, asked: Any, found: Any, waiting: Signal) -> None:
        """Compare, then decide."""
        axi, word = self.axi, self.axi.rdata
        read = Signal(self.o.payload.shape())  # what came a cycle ago
        lgvnum = Signal(VERSION_BITS)
        told = Signal.like(read)  # and what came two cycles ago
        came = Signal()
        compared = Signal()
        is_new = Signal()
        m.d.comb += [
            axi.rready.eq(1),
            asked.ready.eq(axi.rvalid),
            found.valid.eq(compared & is_new),
            found.payload.eq(told),
            self.busy.eq(axi.arvalid | asked.valid | came | compared | self.o.valid),
        ]
        m.d.sync += [
            self.error.eq(axi.rvalid & (axi.rresp != Resp.OKAY)),
            came.eq(axi.rvalid),
            read.index.eq(asked.payload.index),
            read.version.eq(word[-VERSION_BITS:]),
            read.others.eq(word[:VERSION_BITS]),
            lgvnum.eq(asked.payload.lgvnum),
            compared.eq(came),
            told.eq(read),
            is_new.eq(read.version > lgvnum),
        ]
        with m.If(compared & ~is_new):
            m.d.sync += waiting.bit_select(told.index, 1).eq(1)
