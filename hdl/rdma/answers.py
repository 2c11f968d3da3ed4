"""The answers that are to be sent."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.queue_pair import MSN_BITS, SYNDROME_BITS, index_bits
from fanin.hdl.rdma.shapes import Headers, Peer
from fanin.hdl.rdma.turns import Turns
from fanin.rdma import RdmaConfig
from fanin.wire.rdma import PSN_BITS, Opcode


class Reply(data.Struct):
    """What to answer: an AETH, and of which packet."""

    psn: PSN_BITS
    syndrome: SYNDROME_BITS
    messages: MSN_BITS


class Answers(wiring.Component):
    """One answer for each queue pair may wait; a newer one takes its place. Queue pairs take turns.

    Members
    -------
    ``index`` : In, that of a queue pair
    ``connect`` : In, 1
        It has a new ``peer``, and nothing to say to it.
    ``peer`` : In, Peer
    ``valid`` : In, 1
        It is to answer ``reply``.
    ``reply`` : In, Reply
    ``refuses`` : Out, 1
        A NAK waits there.
    ``headers`` : Out, stream of Headers

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    6 cycles from ``valid`` to ``headers``; an answer every 5 cycles.

    Source
    ------
    docs/systems/rdma.md, "Responder".
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "index": In(index_bits(config)),
                "connect": In(1),
                "peer": In(Peer),
                "valid": In(1),
                "reply": In(Reply),
                "refuses": Out(1),
                "headers": Out(stream.Signature(Headers)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Flags say who has an answer; it is read once it is chosen."""
        m = Module()
        count, reply = self.config.queue_pairs, self.reply
        m.submodules.peers = peers = Memory(shape=Peer, depth=count, init=[])
        m.submodules.said = said = Memory(shape=Reply, depth=count, init=[])
        m.submodules.turn = turn = Turns(count=count)
        waiting = Signal(count)
        naks = Signal(count)
        index = Signal.like(turn.o)
        peer_write, said_write = peers.write_port(), said.write_port()
        peer_read, said_read = peers.read_port(domain="comb"), said.read_port(domain="comb")
        m.d.comb += [
            turn.i.eq(waiting),
            turn.last.eq(index),
            self.refuses.eq(naks.bit_select(self.index, 1)),
            peer_write.data.eq(self.peer),
            peer_write.en.eq(self.connect),
            said_write.data.eq(reply),
            said_write.en.eq(self.valid),
            *(port.addr.eq(self.index) for port in (peer_write, said_write)),
            *(port.addr.eq(index) for port in (peer_read, said_read)),
        ]
        headers = self.headers.payload
        with m.FSM():
            with m.State("CHOOSE"), m.If(turn.valid):
                m.d.sync += index.eq(turn.o)
                m.next = "READ"
            with m.State("READ"):
                m.d.sync += [
                    headers.peer.eq(peer_read.data),
                    headers.opcode.eq(Opcode.ACKNOWLEDGE),
                    headers.psn.eq(said_read.data.psn),
                    headers.syndrome.eq(said_read.data.syndrome),
                    headers.msn.eq(said_read.data.messages),
                    self.headers.valid.eq(waiting.bit_select(index, 1)),
                    waiting.bit_select(index, 1).eq(0),
                    naks.bit_select(index, 1).eq(0),
                ]
                m.next = "SAY"
            with m.State("SAY"), m.If(self.headers.ready | ~self.headers.valid):
                m.d.sync += self.headers.valid.eq(0)
                m.next = "GONE"
            with m.State("GONE"):  # which the turn knows when a choice is made again
                m.next = "NEXT"
            with m.State("NEXT"):
                m.next = "CHOOSE"
        nak = reply.syndrome[5:].any()
        with m.If(self.connect | self.valid):
            m.d.sync += waiting.bit_select(self.index, 1).eq(~self.connect)
            m.d.sync += naks.bit_select(self.index, 1).eq(nak & ~self.connect)
        return m
