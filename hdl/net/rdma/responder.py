"""The receiving half of the queue pairs."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.rdma.answers import Answers
from fanin.hdl.net.rdma.queue_pair import (
    LENGTH_BITS,
    MSN_BITS,
    MTU_BITS,
    SMALLEST_MTU_BITS,
    arrival_layout,
    connect_layout,
    index_bits,
    received_layout,
)
from fanin.hdl.net.rdma.shapes import Headers, lane_bits, opcode_is, store_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import RdmaConfig
from fanin.roce import ACK_SYNDROME, MAX_MESSAGE_BYTES, PATH_MTUS, PSN_BITS, Nak

_AHEAD = 64  # payloads that may be on their way to memory


class ResponderEvents(data.Struct):
    """What became of a packet, a pulse each, for counters."""

    taken: 1  #: it was the expected one
    repeated: 1  #: it had been taken before
    early: 1  #: one before it is missing
    refused: 1  #: it ended its queue pair
    dropped: 1  #: damaged, or for nobody here


def _row_layout(address_width: int) -> data.StructLayout:
    """State of a queue pair."""
    return data.StructLayout(
        {
            "enable": 1,
            "mtu": MTU_BITS,
            "expected": PSN_BITS,
            "messages": MSN_BITS,  # complete
            "open": 1,  # a message has begun, and not ended
            "address": address_width,  # where its next byte goes
            "left": LENGTH_BITS,  # bytes of it
            "more": 1,  # and that is more than one packet
            "length": LENGTH_BITS,  # of the whole message
            "waits": 1,  # a NAK for the expected packet has gone
        }
    )


class Responder(wiring.Component):
    """Check packets one after the other, have their payload written or thrown away, and answer.

    An answer that has not gone yet is replaced by the next one of its queue pair: it says all that the older
    one said.

    Members
    -------
    ``connect`` : In, stream of :func:`connect_layout`
    ``i`` : In, stream of :func:`received_layout`
        Parts of WRITEs, and whatever was damaged.
    ``store`` : Out, stream of :func:`store_layout`
        What to do with the words that wait.
    ``stored`` : In, 1
        Pulse: the next payload that was to be kept is in memory.
    ``answer`` : Out, stream of Headers
    ``arrival`` : Out, stream of :func:`arrival_layout`
        A message with immediate data is in memory, and all before it.
    ``enabled`` : Out, one bit for each queue pair
    ``events`` : Out, ResponderEvents

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    ``store`` 2 cycles after ``i``, and a packet every 3 cycles; ``answer`` 6 cycles after ``store``.

    Source
    ------
    docs/rdma.md, "Responder"; InfiniBand Architecture Specification, volume 1, section 9.7.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        payload = store_layout(width=config.width, address_width=config.address_width)
        super().__init__(
            {
                "connect": In(stream.Signature(connect_layout(config))),
                "i": In(stream.Signature(received_layout(config))),
                "store": Out(stream.Signature(payload)),
                "stored": In(1),
                "answer": Out(stream.Signature(Headers)),
                "arrival": Out(stream.Signature(arrival_layout(config))),
                "enabled": Out(config.queue_pairs),
                "events": Out(ResponderEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Read the queue pair's row; look; act and write it back."""
        m = Module()
        layout = _row_layout(self.config.address_width)
        m.submodules.rows = rows = Memory(shape=layout, depth=self.config.queue_pairs, init=[])
        m.submodules.answers = self.answers = Answers(config=self.config)
        connect_typed(m, self.answers.headers, wiring.flipped(self.answer))
        read, self.write = rows.read_port(domain="comb"), rows.write_port()
        self.index = Signal(index_bits(self.config))
        self.row = Signal(layout)
        connect = self.connect
        m.d.comb += [read.addr.eq(self.i.payload.index), self.write.addr.eq(self.index)]
        m.d.comb += [self.write.data.eq(self.row), self.answers.index.eq(self.index)]
        room = self._arrivals(m)
        found = self._look(m)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [self.row.eq(read.data), self.index.eq(self.i.payload.index)]
                with m.If(connect.valid):
                    m.d.sync += self.index.eq(connect.payload.index)
                    m.next = "CONNECT"
                with m.Elif(self.i.valid & room):
                    m.next = "LOOK"
            with m.State("CONNECT"):
                self._connect(m)
                m.next = "IDLE"
            with m.State("LOOK"):
                m.next = "ACT"
            with m.State("ACT"):
                self._act(m, found)
        return m

    def _connect(self, m: Module) -> None:
        """A queue pair begins with a new row."""
        settings = self.connect.payload.settings
        row = self.write.data
        m.d.comb += [row.eq(0), row.enable.eq(settings.enable), row.mtu.eq(settings.mtu)]
        m.d.comb += [row.expected.eq(settings.receive_psn), self.write.en.eq(1), self.connect.ready.eq(1)]
        m.d.comb += [self.answers.connect.eq(1), self.answers.peer.eq(settings.peer)]
        m.d.sync += self.enabled.bit_select(self.index, 1).eq(settings.enable)

    def _look(self, m: Module) -> Any:
        """What there is to say of a packet, each for itself; it stays until the packet is taken."""
        i, row = self.i.payload, self.row
        begins, ends = (opcode_is(i.opcode, what) for what in ("begins", "ends"))
        sizes = Cat(i.size == mtu for mtu in PATH_MTUS)
        over = Cat(i.size > mtu for mtu in PATH_MTUS)
        left = Signal(LENGTH_BITS)
        m.d.comb += left.eq(Mux(begins, i.length, row.left))
        found = {
            "begins": begins,
            "ends": ends,
            "immediate": opcode_is(i.opcode, "has_immediate"),
            "good": i.good & row.enable,
            "expected": i.psn == row.expected,
            "behind": (i.psn - row.expected)[PSN_BITS - 1],
            "out_of_order": begins != ~row.open,
            "whole": sizes.bit_select(row.mtu, 1),
            "over": over.bit_select(row.mtu, 1),
            "more": Mux(begins, i.longer.bit_select(row.mtu, 1), row.more),
            "rest": i.size == left,
            "too_long": begins & (i.length > MAX_MESSAGE_BYTES),
            "denied": begins & i.length.any() & ~i.allowed,
            "address": Mux(begins, i.address, row.address),
            "left": left - i.size,
            "length": Mux(begins, i.length, row.length),
            "next": row.expected + 1,
            "previous": row.expected - 1,
            "messages": row.messages + ends,
        }
        shapes = {name: Value.cast(value).shape() for name, value in found.items()}
        shapes |= {"left": LENGTH_BITS, "next": PSN_BITS, "previous": PSN_BITS, "messages": MSN_BITS}
        known = Signal(data.StructLayout(shapes))
        m.d.sync += [known[name].eq(value) for name, value in found.items()]
        return known

    def _act(self, m: Module, found: Any) -> None:
        """Decide; when the store has its order, the row is written and the packet is gone."""
        i, row, events = self.i.payload, self.row, self.events
        fits = Mux(found.ends, found.rest & ~found.over, found.whole & found.more)
        bad = Signal()
        turn = Signal()
        take = Signal()
        done = Signal()
        m.d.comb += [
            turn.eq(found.good & found.expected),
            bad.eq(found.out_of_order | ~fits | found.too_long),
            take.eq(turn & ~bad & ~found.denied),
            self.store.valid.eq(take | i.words.any()),
            done.eq(~self.store.valid | self.store.ready),
            self.i.ready.eq(done),
        ]
        m.d.comb += self._order(take, found)
        with m.If(done):
            m.d.comb += [events.taken.eq(take), events.dropped.eq(~found.good)]
            m.d.comb += [self.records.i.valid.eq(take), self.write.en.eq(found.good)]
            m.next = "IDLE"
            with m.If(take):
                self._take(m, found)
            with m.Elif(turn):
                nak = Mux(bad, Nak.INVALID_REQUEST.syndrome, Nak.REMOTE_ACCESS.syndrome)
                m.d.comb += [self._reply(row.expected, nak), self.answers.valid.eq(1), events.refused.eq(1)]
                m.d.comb += self.write.data.enable.eq(0)
                m.d.sync += self.enabled.bit_select(self.index, 1).eq(0)
            with m.Elif(found.good & found.behind):
                m.d.comb += [self._reply(found.previous, ACK_SYNDROME), events.repeated.eq(1)]
                m.d.comb += self.answers.valid.eq(~self.answers.refuses)
            with m.Elif(found.good):
                m.d.comb += [self._reply(row.expected, Nak.SEQUENCE.syndrome), events.early.eq(1)]
                m.d.comb += [self.answers.valid.eq(~row.waits), self.write.data.waits.eq(1)]

    def _reply(self, psn: Value, syndrome: Any) -> list[Any]:
        reply = self.answers.reply
        return [reply.psn.eq(psn), reply.syndrome.eq(syndrome), reply.messages.eq(self.row.messages)]

    def _order(self, take: Any, found: Any) -> list[Any]:
        """For the store: the packet's payload, or as many whole words as wait."""
        i, order = self.i.payload, self.store.payload
        whole = Cat(Const(0, lane_bits(self.config.width)), i.words)
        return [
            order.keep.eq(take),
            order.address.eq(found.address),
            order.size.eq(Mux(take, i.size, whole)),
            order.lane.eq(Mux(take, i.lane, 0)),
        ]

    def _take(self, m: Module, found: Any) -> None:
        """The row behind the packet, its answer if one is asked for, and what to tell once it is stored."""
        i, row, reply, record = self.i.payload, self.write.data, self.answers.reply, self.records.i.p
        over = Cat((found.left - 1)[SMALLEST_MTU_BITS + n :].any() for n in range(len(PATH_MTUS)))
        m.d.comb += [
            row.expected.eq(found.next),
            row.messages.eq(found.messages),
            row.open.eq(~found.ends),
            row.address.eq(found.address + i.size),
            row.left.eq(found.left),
            row.more.eq(over.bit_select(self.row.mtu, 1)),
            row.length.eq(found.length),
            row.waits.eq(0),
            self.answers.valid.eq(i.acknowledge),
            reply.psn.eq(i.psn),
            reply.syndrome.eq(ACK_SYNDROME),
            reply.messages.eq(found.messages),
            record.tell.eq(found.immediate),
            record.arrival.index.eq(self.index),
            record.arrival.immediate.eq(i.immediate),
            record.arrival.length.eq(found.length),
        ]

    def _arrivals(self, m: Module) -> Any:
        """Records of payloads on their way to memory: whether to tell of them. Says whether there is room."""
        arrival = self.arrival.payload.shape()
        layout = data.StructLayout({"tell": 1, "arrival": arrival})
        m.submodules.records = self.records = records = StreamFIFO(shape=layout, depth=_AHEAD)
        stored = Signal(range(_AHEAD + 1))  # payloads in memory whose record is still here
        any_stored = Signal()
        room = Signal(init=1)
        m.d.comb += [
            self.arrival.valid.eq(records.o.valid & records.o.p.tell & any_stored),
            self.arrival.payload.eq(records.o.p.arrival),
            records.o.ready.eq(any_stored & (self.arrival.ready | ~records.o.p.tell)),
            any_stored.eq(stored != 0),
        ]
        m.d.sync += [
            stored.eq(stored + self.stored - (records.o.valid & records.o.ready)),
            room.eq(records.level < _AHEAD - 1),
        ]
        return room
