"""Responder of a board: answers ARP and echo, and executes control requests on the board's bus."""

from __future__ import annotations

from typing import Any

from amaranth import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, flipped

from fanin.hdl.bus.axi4 import AXI4LiteSignature
from fanin.hdl.bus.axi_lite_master import TIMEOUT, AxiLiteMaster, check_timeout
from fanin.hdl.net.control.executor import Executor
from fanin.hdl.net.control.header_sum import HeaderSum
from fanin.hdl.net.control.headers import (
    IP_BITS,
    MAC_BITS,
    PLACE_BITS,
    WIDTH,
    AboutWords,
    ResponderEvents,
)
from fanin.hdl.net.control.lease import LeaseKeeper, Verdict, check_lease
from fanin.hdl.net.control.reply_sender import Reply, ReplySender
from fanin.hdl.net.control.request_reader import Form, RequestReader
from fanin.hdl.net.control.request_store import RequestStore
from fanin.hdl.net.control.trivium import Trivium
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.control import ABOUT_WORDS, Kind, Status


class Responder(wiring.Component):
    """Responder for ARP, echo and control, one frame at a time; one more frame waits, and others are dropped.

    A control request is executed on the bus once. Its reply is stored and sent again if the request is
    repeated. No frame and no slave can block the responder for ever: an access without an answer within
    ``bus_timeout`` cycles fails and ends its request.

    Members
    -------
    ``i`` : In, packet stream of 32 bits; always ready
        Frames selected by :class:`~fanin.hdl.net.control.demultiplexer.Demultiplexer`.
    ``o`` : Out, packet stream of 32 bits
        Replies, without padding to Ethernet's minimum.
    ``axil`` : Out, :class:`AXI4LiteSignature` of 32 bits
        Bus of the board.
    ``own_mac`` : In, 48
        MAC address of the board's services.
    ``own_ip`` : In, 32
        IPv4 address of the board's services.
    ``about`` : In, AboutWords
        Description of the board, for the reply to hello.
    ``holder`` : Out, 32
        IPv4 address of the host that holds the board; 0 for none.
    ``holder_mac`` : Out, 48
        MAC address of the current or last holder.
    ``events`` : Out, ResponderEvents
        Pulses for counters.

    Parameters
    ----------
    ``lease_cycles`` : int, cycles, 2 to 2^36
        Time of silence after which a lease ends.
    ``bus_timeout`` : int, cycles, at least 2
        Time for the answer to an access; 1024 by default.

    Latency
    -------
    From a request's last beat to its reply's first one: 29 cycles for ARP, echo, hello and repeats; for other
    requests 5 more, plus the cycles of the accesses.

    Source
    ------
    docs/systems/boards.md, "Control".
    """

    def __init__(self, *, lease_cycles: int, bus_timeout: int = TIMEOUT):
        self.lease_cycles = lease_cycles
        self.bus_timeout = bus_timeout
        check_lease(lease_cycles)
        check_timeout(bus_timeout)
        frames = packet_stream(WIDTH)
        super().__init__(
            {
                "i": In(frames),
                "o": Out(frames),
                "axil": Out(AXI4LiteSignature(address_width=WIDTH)),
                "own_mac": In(MAC_BITS),
                "own_ip": In(IP_BITS),
                "about": In(AboutWords),
                "holder": Out(IP_BITS),
                "holder_mac": Out(MAC_BITS),
                "events": Out(ResponderEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect the parts in sequence: store, reader, lease, executor, sender; each starts the next."""
        m = Module()
        m.submodules.store = store = RequestStore()
        m.submodules.reader = reader = RequestReader()
        m.submodules.keeper = keeper = LeaseKeeper(lease_cycles=self.lease_cycles)
        m.submodules.numbers = numbers = Trivium()
        m.submodules.executor = executor = Executor()
        m.submodules.master = master = AxiLiteMaster(address_width=WIDTH, timeout=self.bus_timeout)
        m.submodules.sender = sender = ReplySender()
        connect_typed(m, flipped(self.i), store.i)
        connect_typed(m, sender.o, flipped(self.o))
        connect_typed(m, master.axil, flipped(self.axil))
        connect_typed(m, executor.request, master.request)
        connect_typed(m, master.result, executor.result)
        request = reader.request
        m.d.comb += [
            reader.size.eq(store.size),
            reader.word.eq(store.word),
            reader.own_ip.eq(self.own_ip),
            keeper.lease.eq(request.lease),
            keeper.sequence.eq(request.sequence),
            keeper.host.eq(request.ip),
            keeper.mac.eq(request.mac),
            keeper.releases.eq(request.kind == Kind.RELEASE),
            keeper.number.eq(numbers.word),
            numbers.stir.eq(self.i.valid & self.i.p.last),
            executor.kind.eq(request.kind),
            executor.count.eq(request.count),
            executor.address.eq(request.address),
            executor.number.eq(request.number),
            executor.word.eq(store.word),
            sender.request.eq(request),
            sender.own_mac.eq(self.own_mac),
            sender.own_ip.eq(self.own_ip),
            sender.holder.eq(keeper.holder),
            sender.about.eq(self.about),
            sender.offer.eq(keeper.offer),
            sender.word.eq(store.word),
            self.holder.eq(keeper.holder),
            self.holder_mac.eq(keeper.holder_mac),
        ]
        self._sum(m, reader, sender)
        self._reply_store(m, executor, sender)
        self._run(m, store, reader, keeper, executor, sender)
        m.d.sync += self.events.dropped.eq(store.dropped)
        return m

    def _sum(self, m: Module, reader: Any, sender: Any) -> None:
        """Share one adder between the header of the request and that of the reply."""
        m.submodules.sum = total = HeaderSum()
        m.d.comb += [
            total.word.eq(Mux(sender.sums, sender.summand, reader.word)),
            total.low.eq(reader.low | sender.sums),
            total.high.eq(reader.high | sender.sums),
            total.clear.eq(reader.start | sender.clear),
            reader.sum.eq(total.o),
            sender.sum.eq(total.o),
        ]

    def _reply_store(self, m: Module, executor: Any, sender: Any) -> None:
        """Store the words of the last reply, at their beats in its frame."""
        m.submodules.replies = storage = Memory(shape=WIDTH, depth=1 << PLACE_BITS, init=[])
        write, read = storage.write_port(), storage.read_port()
        stored = Signal(WIDTH)
        m.d.comb += [
            write.addr.eq(executor.at),
            write.data.eq(executor.data),
            write.en.eq(executor.write),
            read.addr.eq(sender.place),
            read.en.eq(sender.enable & ~write.en),  # never both; saying so saves logic
            sender.stored.eq(stored),
        ]
        with m.If(sender.enable):
            m.d.sync += stored.eq(read.data)

    def _run(self, m: Module, store: Any, reader: Any, keeper: Any, executor: Any, sender: Any) -> None:
        """Build the states: read, decide, execute, answer."""
        reply = Signal(Reply)
        last_reply = Signal(Reply)  # reply of the last request executed
        m.d.comb += [sender.reply.eq(reply), store.enable.eq(1), store.place.eq(sender.place)]
        m.d.sync += [self.events[name].eq(0) for name in ResponderEvents.members]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += reader.start.eq(store.valid)
                with m.If(store.valid):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += store.place.eq(reader.place)
                with m.If(reader.done):
                    self._decide(m, reader, keeper, executor, reply, last_reply)
            with m.State("EXECUTE"):
                m.d.comb += store.place.eq(executor.place)
                status = Mux(executor.failed, Status.BUS, Status.DONE)
                m.d.sync += [reply.status.eq(status), reply.count.eq(executor.words)]
                with m.If(executor.done):
                    m.next = "KEEP"
            with m.State("KEEP"):
                m.d.sync += last_reply.eq(reply)
                m.next = "ANSWER"
            with m.State("ANSWER"):
                m.d.comb += sender.start.eq(1)
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += store.enable.eq(sender.enable)
                with m.If(sender.done):
                    m.next = "FREE"
            with m.State("FREE"):
                m.d.comb += store.done.eq(1)
                m.next = "PAUSE"
            with m.State("PAUSE"):
                m.next = "IDLE"

    def _decide(self, m: Module, reader: Any, keeper: Any, executor: Any, reply: Any, last_reply: Any) -> None:
        """Select the answer from the frame's form and, for a control request, from the lease's verdict."""
        m.d.sync += reply.eq(0)
        m.next = "ANSWER"
        with m.Switch(reader.form):
            with m.Case(Form.OTHER):
                m.next = "FREE"
            with m.Case(Form.MALFORMED):
                m.d.sync += self.events.malformed.eq(1)
                m.next = "FREE"
            with m.Case(Form.ARP):
                m.d.sync += [reply.arp.eq(1), self.events.arps.eq(1)]
            with m.Case(Form.ECHO):
                m.d.sync += [reply.echo.eq(1), self.events.echoes.eq(1)]
            with m.Case(Form.MISFIT):
                m.d.sync += [reply.status.eq(Status.MALFORMED), self.events.malformed.eq(1)]
            with m.Case(Form.CONTROL):
                with m.If(reader.request.kind == Kind.HELLO):
                    m.d.comb += keeper.hello.eq(1)
                    about = [reply.about.eq(1), reply.count.eq(ABOUT_WORDS)]
                    m.d.sync += [reply.status.eq(Status.DONE), *about, self.events.requests.eq(1)]
                with m.Else():
                    m.d.comb += keeper.accept.eq(1)
                    with m.Switch(keeper.verdict):
                        with m.Case(Verdict.CARRY_OUT):
                            m.d.comb += executor.start.eq(1)
                            m.d.sync += self.events.requests.eq(1)
                            m.next = "EXECUTE"
                        with m.Case(Verdict.REPEAT):
                            m.d.sync += [reply.eq(last_reply), self.events.repeats.eq(1)]
                        with m.Case(Verdict.STALE):
                            m.d.sync += self.events.stale.eq(1)
                            m.next = "FREE"
                        with m.Case(Verdict.HELD):
                            m.d.sync += [reply.status.eq(Status.HELD), self.events.refused.eq(1)]
                        with m.Case(Verdict.UNKNOWN):
                            m.d.sync += [reply.status.eq(Status.UNKNOWN), self.events.refused.eq(1)]
                        with m.Case(Verdict.FOREIGN):
                            m.d.sync += self.events.refused.eq(1)
                            m.next = "FREE"
