"""Queue of the answers to send."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.queue_pair import MSN_BITS, SYNDROME_BITS, index_bits
from fanin.hdl.rdma.shapes import Headers, Peer
from fanin.hdl.stream.round_robin import RoundRobin
from fanin.rdma.facts import RdmaConfig
from fanin.wire.rdma import PSN_BITS, Opcode


class Reply(data.Struct):
    """Answer to a packet: its PSN, and the AETH's syndrome and message count."""

    psn: PSN_BITS
    syndrome: SYNDROME_BITS
    messages: MSN_BITS


class Answers(wiring.Component):
    """Store of at most one answer for each queue pair; a newer answer replaces it. Queue pairs take turns.

    Members
    -------
    ``index`` : In, range(queue pairs)
        Queue pair of ``connect``, ``peer``, ``valid``, ``reply`` and ``nak_pending``.
    ``connect`` : In, 1
        Store ``peer`` as the queue pair's peer and drop its waiting answer.
    ``peer`` : In, Peer
        The other end of the queue pair.
    ``valid`` : In, 1
        ``reply`` must be sent to the peer.
    ``reply`` : In, Reply
        The answer.
    ``nak_pending`` : Out, 1
        The queue pair's waiting answer is a NAK.
    ``headers`` : Out, stream of Headers
        Answers to send.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs.

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
                "nak_pending": Out(1),
                "headers": Out(stream.Signature(Headers)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep two flags for each queue pair: an answer is ``pending``, and the answer is a NAK.

        The arbiter needs three cycles from ``pending`` to its choice, so the FSM waits that long after clearing
        a flag. The answer is read from the tables when its turn comes, so the newest one is sent.
        """
        m = Module()
        count, headers = self.config.queue_pairs, self.headers.payload
        m.submodules.peers = peers = Memory(shape=Peer, depth=count, init=[])
        m.submodules.replies = replies = Memory(shape=Reply, depth=count, init=[])
        m.submodules.arbiter = arbiter = RoundRobin(count=count)
        pending = Signal(count)
        is_nak = Signal(count)
        choice = Signal.like(arbiter.index)
        peer_write, reply_write = peers.write_port(), replies.write_port()
        peer_read, reply_read = peers.read_port(domain="comb"), replies.read_port(domain="comb")
        m.d.comb += [
            arbiter.requests.eq(pending),
            arbiter.last.eq(choice),
            self.nak_pending.eq(is_nak.bit_select(self.index, 1)),
            peer_write.data.eq(self.peer),
            peer_write.en.eq(self.connect),
            reply_write.data.eq(self.reply),
            reply_write.en.eq(self.valid),
            *(port.addr.eq(self.index) for port in (peer_write, reply_write)),
            *(port.addr.eq(choice) for port in (peer_read, reply_read)),
        ]
        with m.FSM():
            with m.State("CHOOSE"), m.If(arbiter.valid):
                m.d.sync += choice.eq(arbiter.index)
                m.next = "READ"
            with m.State("READ"):
                m.d.sync += [
                    headers.peer.eq(peer_read.data),
                    headers.opcode.eq(Opcode.ACKNOWLEDGE),
                    headers.psn.eq(reply_read.data.psn),
                    headers.syndrome.eq(reply_read.data.syndrome),
                    headers.msn.eq(reply_read.data.messages),
                    self.headers.valid.eq(pending.bit_select(choice, 1)),
                    pending.bit_select(choice, 1).eq(0),
                    is_nak.bit_select(choice, 1).eq(0),
                ]
                m.next = "SEND"
            with m.State("SEND"), m.If(self.headers.ready | ~self.headers.valid):
                m.d.sync += self.headers.valid.eq(0)
                m.next = "ARBITRATE"
            with m.State("ARBITRATE"):
                m.next = "ARBITRATED"
            with m.State("ARBITRATED"):
                m.next = "CHOOSE"
        with m.If(self.connect | self.valid):
            m.d.sync += [
                pending.bit_select(self.index, 1).eq(~self.connect),
                is_nak.bit_select(self.index, 1).eq(self.reply.syndrome[5:].any() & ~self.connect),
            ]
        return m
