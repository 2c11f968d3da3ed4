"""The receiving half of the queue pairs."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.carry import any_by_carry
from fanin.hdl.rdma.answers import Answers
from fanin.hdl.rdma.queue_pair import (
    LENGTH_BITS,
    MSN_BITS,
    MTU_BITS,
    SMALLEST_MTU_BITS,
    arrival_layout,
    connect_layout,
    index_bits,
    received_layout,
)
from fanin.hdl.rdma.shapes import SIZE_BITS, Headers, lane_bits, opcode_is, store_layout
from fanin.hdl.rdma.tally import Tally
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import RdmaConfig
from fanin.wire.rdma import ACK_SYNDROME, MAX_MESSAGE_BYTES, PATH_MTUS, PSN_BITS, Nak

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


def _is_over(value: Value, power: int) -> Value:
    """Whether it is more than a power of two."""
    low = power.bit_length() - 1
    return value[low + 1 :].any() | value[low] & value[:low].any()


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
    ``store`` 3 cycles after ``i``, and a packet every 4 cycles; ``answer`` 6 cycles after ``store``.

    Source
    ------
    docs/systems/rdma.md, "Responder"; InfiniBand Architecture Specification, volume 1, section 9.7.
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
        """Read the queue pair's row; look; judge; act and write it back."""
        m = Module()
        layout = _row_layout(self.config.address_width)
        m.submodules.rows = rows = Memory(shape=layout, depth=self.config.queue_pairs, init=[])
        m.submodules.answers = self.answers = Answers(config=self.config)
        connect_typed(m, self.answers.headers, wiring.flipped(self.answer))
        read, self.write = rows.read_port(domain="comb"), rows.write_port()
        self.index = Signal(index_bits(self.config))
        self.row = Signal(layout)
        self.acting = Signal()  # the state, without its decoder
        connect = self.connect
        m.d.comb += [read.addr.eq(self.i.payload.index), self.write.addr.eq(self.index)]
        m.d.comb += [self.write.data.eq(self.row), self.answers.index.eq(self.index)]
        room = self._arrivals(m)
        found = self._look(m)
        done = self._act(m, found, self._judge(m, found))
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
                m.next = "JUDGE"
            with m.State("JUDGE"):
                m.d.sync += self.acting.eq(1)
                m.next = "ACT"
            with m.State("ACT"), m.If(done):
                m.d.sync += self.acting.eq(0)
                m.next = "IDLE"
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
        minus_one_more = ~Cat(i.size, Const(0, 1)).as_signed()  # -(size + 1)
        # what needs no row, a cycle before
        plain = {
            "begins": opcode_is(i.opcode, "begins"),
            "ends": opcode_is(i.opcode, "ends"),
            "immediate": opcode_is(i.opcode, "has_immediate"),
            "whole": Cat(i.size == mtu for mtu in PATH_MTUS),
            "over": Cat(_is_over(i.size, mtu) for mtu in PATH_MTUS),
            "huge": _is_over(i.length, MAX_MESSAGE_BYTES),
            "some": i.length.any(),
            "alone": i.size == i.length,
            "less": i.length + minus_one_more,
        }
        shapes = {name: len(value) for name, value in plain.items()} | {"less": LENGTH_BITS}
        seen = Signal(data.StructLayout(shapes))
        m.d.sync += [seen[name].eq(value) for name, value in plain.items()]
        begins, ends = seen.begins, seen.ends
        found = {
            "begins": begins,
            "ends": ends,
            "immediate": seen.immediate,
            "good": i.good & row.enable,
            "expected": ~any_by_carry(i.psn ^ row.expected, 2),
            "behind": (i.psn - row.expected)[PSN_BITS - 1],
            "out_of_order": begins != ~row.open,
            "whole": seen.whole.bit_select(row.mtu, 1),
            "over": seen.over.bit_select(row.mtu, 1),
            "more": Mux(begins, i.longer.bit_select(row.mtu, 1), row.more),
            "differs": any_by_carry(
                Cat(begins & ~seen.alone, (i.size ^ row.left) & ~begins.replicate(LENGTH_BITS)), 2
            ),
            "too_long": begins & seen.huge,
            "denied": begins & seen.some & ~i.allowed,
            "address": Mux(begins, i.address, row.address),
            "left": Mux(begins, i.length, row.left),
            # behind the packet, less one: if it begins, no choice is in front of the sum
            "less": row.left + minus_one_more,
            "begun_more": self._is_more(seen.less),
            "words": i.words.any(),
            "refuses": self.answers.refuses,
            "length": Mux(begins, i.length, row.length),
            "next": row.expected + 1,
            "previous": row.expected - 1,
            "messages": row.messages + ends,
        }
        shapes = {name: Value.cast(value).shape() for name, value in found.items()}
        shapes |= {"less": LENGTH_BITS, "next": PSN_BITS, "previous": PSN_BITS, "messages": MSN_BITS}
        known = Signal(data.StructLayout(shapes))
        m.d.sync += [known[name].eq(value) for name, value in found.items()]
        return known

    def _judge(self, m: Module, found: Any) -> Any:
        """What becomes of the packet: one of these, or it is dropped."""
        fits = Mux(found.ends, ~found.differs & ~found.over, found.whole & found.more)
        bad = found.out_of_order | ~fits | found.too_long
        turn = found.good & found.expected
        take = turn & ~bad & ~found.denied
        refuse = turn & (bad | found.denied)
        repeat = found.good & ~found.expected & found.behind
        early = found.good & ~found.expected & ~found.behind
        says = take & self.i.payload.acknowledge | refuse | repeat & ~found.refuses | early & ~self.row.waits
        flags = {
            "take": take,
            "refuse": refuse,
            "repeat": repeat,
            "early": early,
            "says": says,  # an answer
            "bad": bad,
            "more": Mux(found.begins, found.begun_more, self._is_more(found.less)),
        }
        i = self.i.payload
        half = min(max(len(found.address) // 2, SIZE_BITS), len(found.address))
        numbers = {
            # behind the packet; of the address the lower part, which has all of a size, and its carry
            "left": (LENGTH_BITS, found.left - i.size),
            "low": (half + 1, found.address[:half] + i.size),
            # for the store: the packet's payload, or as many whole words as wait
            "size": (SIZE_BITS, Mux(take, i.size, Cat(Const(0, lane_bits(self.config.width)), i.words))),
            "lane": (len(i.lane), Mux(take, i.lane, 0)),
        }
        shapes = dict.fromkeys(flags, 1) | {name: bits for name, (bits, _) in numbers.items()}
        verdict = Signal(data.StructLayout(shapes))
        m.d.sync += [verdict[name].eq(value) for name, value in flags.items()]
        m.d.sync += [verdict[name].eq(value) for name, (_, value) in numbers.items()]
        return verdict

    def _is_more(self, less: Value) -> Value:
        """Whether that is left, and one byte, is more than a packet's."""
        over = Cat(less[SMALLEST_MTU_BITS + n :].any() for n in range(len(PATH_MTUS)))
        return over.bit_select(self.row.mtu, 1)

    def _act(self, m: Module, found: Any, verdict: Any) -> Signal:
        """When the store has its order, the row is written and the packet is gone."""
        row, events = self.row, self.events
        done = Signal()
        orders = verdict.take | found.words
        m.d.comb += [
            self.store.valid.eq(self.acting & orders),
            done.eq(self.acting & (~orders | self.store.ready)),
            self.i.ready.eq(done),
        ]
        m.d.comb += self._order(found, verdict)
        with m.If(done):
            m.d.comb += [
                events.taken.eq(verdict.take),
                events.refused.eq(verdict.refuse),
                events.repeated.eq(verdict.repeat),
                events.early.eq(verdict.early),
                events.dropped.eq(~found.good),
                self.records.i.valid.eq(verdict.take),
                self.write.en.eq(found.good),
                self.answers.valid.eq(verdict.says),
            ]
            with m.If(verdict.take):
                self._take(m, found, verdict)
            with m.If(verdict.refuse):
                nak = Mux(verdict.bad, Nak.INVALID_REQUEST.syndrome, Nak.REMOTE_ACCESS.syndrome)
                m.d.comb += self._reply(row.expected, nak)
                m.d.comb += self.write.data.enable.eq(0)
                m.d.sync += self.enabled.bit_select(self.index, 1).eq(0)
            with m.If(verdict.repeat):
                m.d.comb += self._reply(found.previous, ACK_SYNDROME)
            with m.If(verdict.early):
                m.d.comb += self._reply(row.expected, Nak.SEQUENCE.syndrome)
                m.d.comb += self.write.data.waits.eq(1)
        return done

    def _reply(self, psn: Value, syndrome: Any) -> list[Any]:
        reply = self.answers.reply
        return [reply.psn.eq(psn), reply.syndrome.eq(syndrome), reply.messages.eq(self.row.messages)]

    def _order(self, found: Any, verdict: Any) -> list[Any]:
        order = self.store.payload
        return [
            order.keep.eq(verdict.take),
            order.address.eq(found.address),
            order.size.eq(verdict.size),
            order.lane.eq(verdict.lane),
        ]

    def _take(self, m: Module, found: Any, verdict: Any) -> None:
        """The row behind the packet, its answer if one is asked for, and what to tell once it is stored."""
        i, row, reply, record = self.i.payload, self.write.data, self.answers.reply, self.records.i.p
        half = len(verdict.low) - 1
        m.d.comb += [
            row.expected.eq(found.next),
            row.messages.eq(found.messages),
            row.open.eq(~found.ends),
            row.address.eq(Cat(verdict.low[:half], found.address[half:] + verdict.low[half])),
            row.left.eq(verdict.left),
            row.more.eq(verdict.more),
            row.length.eq(found.length),
            row.waits.eq(0),
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
        m.submodules.stored = stored = Tally(limit=_AHEAD)  # payloads in memory whose record is still here
        room = Signal(init=1)
        m.d.comb += [
            self.arrival.valid.eq(records.o.valid & records.o.p.tell & stored.some),
            self.arrival.payload.eq(records.o.p.arrival),
            records.o.ready.eq(stored.some & (self.arrival.ready | ~records.o.p.tell)),
            stored.up.eq(self.stored),
            stored.down.eq(records.o.valid & records.o.ready),
        ]
        m.d.sync += room.eq(records.level < _AHEAD - 1)
        return room
