"""Responder: the receiving half of the queue pairs."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.answers import Answers
from fanin.hdl.rdma.queue_pair import (
    LENGTH_BITS,
    MSN_BITS,
    MTU_BITS,
    arrival_layout,
    connect_layout,
    index_bits,
    received_layout,
)
from fanin.hdl.rdma.shapes import Headers, lane_bits, opcode_is, store_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma.facts import DROPPED, RdmaConfig
from fanin.wire.rdma import ACK_SYNDROME, MAX_MESSAGE_BYTES, PATH_MTUS, PSN_BITS, REFUSED_OPCODES, Fault, Nak

_MAX_UNSTORED = 64  # payloads given to the store and not yet in memory


class ResponderEvents(data.Struct):
    """Outcomes of packets, one pulse each, for counters."""

    taken: 1  #: the expected packet
    repeated: 1  #: a packet that had been taken before
    early: 1  #: a packet before it is missing
    refused: 1  #: the packet ended its queue pair
    dropped_foreign: 1  #: not an RDMA packet, or for another node
    dropped_damaged: 1  #: a length, a checksum or the ICRC is wrong
    dropped_congestion: 1  #: a congestion notice
    dropped_opcode: 1  #: an opcode of another service, a reserved one, or an answer to no request
    dropped_unconnected: 1  #: for a queue pair that is not connected, or of another partition or version


class Outcome(enum.Enum, shape=3):
    """Outcome of a packet."""

    DROP = 0  # it has a fault, or its queue pair is not enabled
    TAKE = 1  # it is the expected packet, and valid
    REFUSE = 2  # it is the expected packet, and ends its queue pair
    REPEAT = 3  # it was taken before
    EARLY = 4  # a packet before it is missing


def _row_layout(address_width: int) -> data.StructLayout:
    """Return the layout of a queue pair's state."""
    return data.StructLayout(
        {
            "mtu": MTU_BITS,
            "expected": PSN_BITS,
            "messages": MSN_BITS,  # complete messages
            "open": 1,  # a message has begun and not ended
            "address": address_width,  # address of that message's next byte
            "bytes_left": LENGTH_BITS,  # bytes of that message that have not arrived
            "length": LENGTH_BITS,  # bytes of the whole message
            "nak_sent": 1,  # a NAK has requested the expected packet; it is requested only once
        }
    )


class _Packet:
    """Packet on ``i``, and its position in its message.

    The position comes from the packet's own header if the packet begins the message, else from the row.
    """

    def __init__(self, m: Module, i: Any, row: Any):
        self.row = row
        self.size, self.lane, self.words = i.size, i.lane, i.words
        names = ("begins", "ends", "has_immediate")
        kind = Signal(data.StructLayout(dict.fromkeys((*names, "unsupported"), 1)))
        m.d.sync += [kind[name].eq(opcode_is(i.opcode, name)) for name in names]
        m.d.sync += kind.unsupported.eq(i.opcode.matches(*REFUSED_OPCODES))
        self.unsupported = kind.unsupported
        self.begins, self.ends, self.has_immediate = kind.begins, kind.ends, kind.has_immediate
        self.address = Mux(kind.begins, i.address, row.address)
        self.bytes_left = Mux(kind.begins, i.length, row.bytes_left)  # bytes of the message from this packet on
        self.length = Mux(kind.begins, i.length, row.length)  # bytes of the whole message


class Responder(wiring.Component):
    """Responder that checks packets in order, stores or discards their payloads, and answers.

    A waiting answer is replaced by the next answer of its queue pair, which includes its meaning.

    Members
    -------
    ``connect`` : In, stream of :func:`connect_layout`
        Connect a queue pair anew, or disconnect it. Precedes packets, and is taken when all payloads to be
        stored are in memory.
    ``i`` : In, stream of :func:`received_layout`
        Packets of writes, and all damaged packets. A packet stays on ``i`` until it is finished.
    ``store`` : Out, stream of :func:`store_layout`
        Instruction for the packet's words in the receive buffer.
    ``stored`` : In, 1
        Pulse: another payload that ``store`` keeps is in memory; payloads finish in order.
    ``answer`` : Out, stream of Headers
        ACKs and NAKs.
    ``arrival`` : Out, stream of :func:`arrival_layout`
        Messages with immediate data; a message and all before it are in memory.
    ``enabled`` : Out, one bit for each queue pair
        The queue pair is connected, and none of its packets was refused.
    ``events`` : Out, ResponderEvents
        Pulses for counters.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Number of queue pairs, and widths.

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
        """Process the packet on ``i`` in four states.

        IDLE reads its queue pair's row. COMPARE compares the packet with the row. DECIDE derives the outcome
        from the comparisons. ACT writes the row back, stores or discards the payload, and answers.

        Each step has registers that load in every cycle: ``kind`` is valid in COMPARE, ``checks`` in DECIDE,
        ``decision`` in ACT. COMPARE and DECIDE therefore only wait a cycle each, while packet and row are
        constant.
        """
        m = Module()
        layout = _row_layout(self.config.address_width)
        m.submodules.rows = rows = Memory(shape=layout, depth=self.config.queue_pairs, init=[])
        m.submodules.answers = answers = Answers(config=self.config)
        connect_typed(m, answers.headers, wiring.flipped(self.answer))
        read, write = rows.read_port(domain="comb"), rows.write_port()
        index = Signal(index_bits(self.config))
        row = Signal(layout)
        m.d.comb += [
            read.addr.eq(self.i.payload.index),
            write.addr.eq(index),
            write.data.eq(row),
            answers.index.eq(index),
        ]
        records, record_free, all_stored = self._arrivals(m)
        packet = _Packet(m, self.i.payload, row)
        checks = self._compare(m, packet, self.enabled.bit_select(index, 1), answers.nak_pending)
        decision = self._decide(m, packet, checks)
        with m.FSM():
            with m.State("IDLE"):
                m.d.sync += [row.eq(read.data), index.eq(self.i.payload.index)]
                with m.If(self.connect.valid):
                    m.d.sync += index.eq(self.connect.payload.index)
                    m.next = "CONNECT"
                with m.Elif(self.i.valid & record_free):
                    m.next = "COMPARE"
            with m.State("CONNECT"), m.If(all_stored):
                self._connect(m, write, answers)
                m.next = "IDLE"
            with m.State("COMPARE"):
                m.next = "DECIDE"
            with m.State("DECIDE"):
                m.next = "ACT"
            with m.State("ACT"):
                has_store = (decision.outcome == Outcome.TAKE) | (self.i.payload.words != 0)
                m.d.comb += self.store.valid.eq(has_store)
                with m.If(self.store.ready | ~has_store):
                    m.d.comb += self.i.ready.eq(1)
                    self._act(m, packet, decision, write, answers, records)
                    m.next = "IDLE"
        is_taken = decision.outcome == Outcome.TAKE
        discarded = Cat(Const(0, lane_bits(self.config.width)), packet.words)  # bytes of these whole words
        m.d.comb += [
            self.store.payload.keep.eq(is_taken),
            self.store.payload.address.eq(packet.address),
            self.store.payload.size.eq(Mux(is_taken, packet.size, discarded)),
            self.store.payload.lane.eq(Mux(is_taken, packet.lane, 0)),
        ]
        return m

    def _connect(self, m: Module, write: Any, answers: Answers) -> None:
        """Write a new row for a queue pair."""
        settings = self.connect.payload.settings
        row = write.data
        m.d.comb += [
            row.eq(0),
            row.mtu.eq(settings.mtu),
            row.expected.eq(settings.receive_psn),
            write.en.eq(1),
            self.connect.ready.eq(1),
            answers.connect.eq(1),
            answers.peer.eq(settings.peer),
        ]
        m.d.sync += self.enabled.bit_select(write.addr, 1).eq(settings.enable)

    def _compare(self, m: Module, packet: _Packet, enabled: Value, nak_pending: Value) -> Any:
        """Compare the packet with its queue pair's row; return one registered flag for each comparison.

        ``enabled`` is not part of the row, since a reset does not clear the rows.
        """
        i, row = self.i.payload, packet.row
        mtu = Const(min(PATH_MTUS)) << row.mtu
        checks = {
            "enabled": (i.fault == Fault.NONE) & enabled,
            "expected": i.psn == row.expected,
            "before": (i.psn - row.expected)[PSN_BITS - 1],  # modulo 2^24: the sign of the shorter distance
            "out_of_order": packet.unsupported | (packet.begins == row.open),
            "is_mtu": i.size == mtu,
            "above_mtu": i.size > mtu,
            "is_rest": i.size == packet.bytes_left,
            "rest_above_mtu": packet.bytes_left > mtu,
            "too_long": packet.begins & (i.length > MAX_MESSAGE_BYTES),
            "denied": packet.begins & (i.length != 0) & ~i.allowed,
            "nak_pending": nak_pending,
        }
        register = Signal(data.StructLayout(dict.fromkeys(checks, 1)))
        m.d.sync += [register[name].eq(value) for name, value in checks.items()]
        return register

    def _decide(self, m: Module, packet: _Packet, checks: Any) -> Any:
        """Decide the packet's outcome, whether it is answered, and the message's position after it."""
        i, row = self.i.payload, packet.row
        decision = Signal(
            data.StructLayout(
                {
                    "outcome": Outcome,
                    "answers": 1,
                    "invalid": 1,  # reason of a refusal: 1 invalid, 0 denied by its region
                    "address": packet.address.shape(),  # address after the packet's bytes
                    "bytes_left": LENGTH_BITS,  # bytes of the message that follow the packet
                }
            )
        )
        size_fits = Mux(packet.ends, checks.is_rest & ~checks.above_mtu, checks.is_mtu & checks.rest_above_mtu)
        invalid = checks.out_of_order | ~size_fits | checks.too_long
        m.d.sync += [
            decision.outcome.eq(Outcome.DROP),
            decision.answers.eq(0),
            decision.invalid.eq(invalid),
            decision.address.eq(packet.address + i.size),
            decision.bytes_left.eq(packet.bytes_left - i.size),
        ]
        with m.If(~checks.enabled):
            pass  # dropped without an answer
        with m.Elif(checks.expected & (invalid | checks.denied)):
            m.d.sync += [decision.outcome.eq(Outcome.REFUSE), decision.answers.eq(1)]
        with m.Elif(checks.expected):
            m.d.sync += [decision.outcome.eq(Outcome.TAKE), decision.answers.eq(i.acknowledge)]
        with m.Elif(checks.before):
            # An ACK must not replace a NAK that waits in Answers, since ``nak_sent`` prevents a second NAK.
            m.d.sync += [decision.outcome.eq(Outcome.REPEAT), decision.answers.eq(~checks.nak_pending)]
        with m.Else():
            m.d.sync += [decision.outcome.eq(Outcome.EARLY), decision.answers.eq(~row.nak_sent)]
        return decision

    def _act(
        self, m: Module, packet: _Packet, decision: Any, write: Any, answers: Answers, records: Any
    ) -> None:
        """Write the row, answer, record the payload, and count, in a packet's last cycle.

        Members of the row that are not assigned here keep their value.
        """
        row, new_row, reply, record = packet.row, write.data, answers.reply, records.payload
        outcome, events = decision.outcome, self.events
        m.d.comb += [
            write.en.eq(outcome != Outcome.DROP),
            answers.valid.eq(decision.answers),
            reply.messages.eq(row.messages),
            records.valid.eq(outcome == Outcome.TAKE),
            record.notify.eq(packet.has_immediate),
            record.arrival.index.eq(write.addr),
            record.arrival.immediate.eq(self.i.payload.immediate),
            record.arrival.length.eq(packet.length),
        ]
        with m.Switch(outcome):
            with m.Case(Outcome.DROP), m.Switch(self.i.payload.fault):
                for fault, event in DROPPED.items():
                    with m.Case(fault):
                        m.d.comb += events[event].eq(1)
                with m.Default():  # no fault: the queue pair is not enabled
                    m.d.comb += events.dropped_unconnected.eq(1)
            with m.Case(Outcome.TAKE):
                m.d.comb += [
                    events.taken.eq(1),
                    new_row.expected.eq(row.expected + 1),
                    new_row.messages.eq(row.messages + packet.ends),
                    new_row.open.eq(~packet.ends),
                    new_row.address.eq(decision.address),
                    new_row.bytes_left.eq(decision.bytes_left),
                    new_row.length.eq(packet.length),
                    new_row.nak_sent.eq(0),
                    reply.psn.eq(self.i.payload.psn),
                    reply.syndrome.eq(ACK_SYNDROME),
                    reply.messages.eq(row.messages + packet.ends),
                ]
            with m.Case(Outcome.REFUSE):
                nak = Mux(decision.invalid, Nak.INVALID_REQUEST.syndrome, Nak.REMOTE_ACCESS.syndrome)
                m.d.comb += [
                    events.refused.eq(1),
                    reply.psn.eq(row.expected),
                    reply.syndrome.eq(nak),
                ]
                m.d.sync += self.enabled.bit_select(write.addr, 1).eq(0)
            with m.Case(Outcome.REPEAT):
                m.d.comb += [
                    events.repeated.eq(1),
                    reply.psn.eq(row.expected - 1),
                    reply.syndrome.eq(ACK_SYNDROME),
                ]
            with m.Case(Outcome.EARLY):
                m.d.comb += [
                    events.early.eq(1),
                    new_row.nak_sent.eq(1),
                    reply.psn.eq(row.expected),
                    reply.syndrome.eq(Nak.SEQUENCE.syndrome),
                ]

    def _arrivals(self, m: Module) -> tuple[Any, Signal, Signal]:
        """Report messages with immediate data to the host after their payload is in memory.

        A record of each payload waits in ``records`` until that payload is stored. It then leaves as an arrival
        if its message had immediate data, else it is dropped. Return the input of ``records``, and two signals:
        another record has room; all payloads have been stored.
        """
        layout = data.StructLayout({"notify": 1, "arrival": self.arrival.payload.shape()})
        m.submodules.records = records = StreamFIFO(shape=layout, depth=_MAX_UNSTORED)
        # Counts the payloads that are in memory and whose record has not left.
        m.submodules.stored = stored = Credits(limit=_MAX_UNSTORED)
        record_free = Signal(init=1)
        all_stored = Signal(init=1)
        oldest = records.o
        m.d.comb += [
            self.arrival.valid.eq(oldest.valid & oldest.p.notify & stored.ok),
            self.arrival.payload.eq(oldest.p.arrival),
            oldest.ready.eq(stored.ok & (self.arrival.ready | ~oldest.p.notify)),
            stored.give.eq(self.stored),
            stored.take.eq(oldest.valid & oldest.ready),
        ]
        m.d.sync += [
            record_free.eq(records.level < _MAX_UNSTORED - 1),
            all_stored.eq(records.level == stored.count),
        ]
        return records.i, record_free, all_stored
