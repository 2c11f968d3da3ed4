"""The sending half of the queue pairs."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.event_choice import Event, EventChoice
from fanin.hdl.rdma.packet_cut import PacketCut
from fanin.hdl.rdma.queue_pair import (
    LENGTH_BITS,
    Settings,
    answer_layout,
    bytes_of,
    completion_layout,
    connect_layout,
    index_bits,
    packets_of,
    write_layout,
)
from fanin.hdl.rdma.sender_tables import FLIGHT_BITS, SenderTables, row_layout
from fanin.hdl.rdma.shapes import Headers, fetch_layout
from fanin.hdl.rdma.timers import TIMEOUT_BITS, Timers
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.rdma import Ending, RdmaConfig
from fanin.wire.rdma import PSN_BITS, Nak

_FATAL = {  # how the oldest write ends when a NAK ends its queue pair
    Nak.INVALID_REQUEST: Ending.REQUEST,
    Nak.REMOTE_ACCESS: Ending.ACCESS,
    Nak.REMOTE_OPERATION: Ending.OPERATION,
}
_QUEUE = 32  # packets that may wait for payload and MAC: short ones must hide the memory's latency


class Verdict(enum.Enum, shape=2):
    """What an answer says of the packet with its PSN."""

    IGNORED = 0  # nothing: its syndrome is none of these
    ACK = 1  # it has arrived, as have all before it
    SEQUENCE = 2  # all before it have arrived; go back to it
    FATAL = 3  # all before it have arrived; it ends the queue pair


class RequesterEvents(data.Struct):
    """Pulses for counters."""

    sent: 1  #: a packet was handed on
    went_back: 1  #: a queue pair goes back to its oldest packet
    timed_out: 1  #: it does so because no answer came
    failed: 1  #: a queue pair ended with an error


class _InHand:
    """Registers of the queue pair whose event is carried out; READ loads them."""

    def __init__(self, config: RdmaConfig):
        self.event = Signal(Event)
        self.index = Signal(index_bits(config))
        self.row = Signal(row_layout(config))
        self.settings = Signal(Settings)
        self.window_mask = Signal(FLIGHT_BITS)  # the window, a power of two of packets, less one
        self.offset = Signal(LENGTH_BITS)  # bytes of the message before the next packet
        self.verdict = Signal(Verdict)  # of the answer
        self.due = Signal()  # a SEND has a packet to send; a TIMEOUT, or an answer, may go back
        self.ending = Signal(Ending)  # of the oldest write, should the queue pair fail now
        self.progress = Signal()  # WRITE restarts the timer

    @property
    def window_full(self) -> Value:
        """As many packets are in flight as may be."""
        return (self.row.flight & ~self.window_mask).any()


class Requester(wiring.Component):
    """Cut the writes of all queue pairs into packets, and send them until they are acknowledged: go-back-N.

    It carries out one event at a time, the most urgent first: a queue pair is connected, an answer taken, a
    descriptor posted, a timeout handled, a packet sent. Queue pairs take turns with their packets. Each
    descriptor completes once, in the order in which its queue pair got them. A queue pair that fails or is
    connected anew completes all of its descriptors at once; one that is not enabled completes what is posted to
    it as flushed.

    Members
    -------
    ``connect`` : In, stream of :func:`connect_layout`
    ``timeout`` : In, 32
        Cycles without progress, until a queue pair goes back.
    ``post`` : In, stream of :func:`write_layout`
        Waits while the queue pair's ring is full. ``length`` at most 2^31, and within the memory's addresses.
    ``answer`` : In, stream of :func:`answer_layout`
    ``headers`` : Out, stream of Headers
        The packets; the payload of one with a ``size`` is what ``fetch`` asks for, in order.
    ``fetch`` : Out, stream of :func:`fetch_layout`
    ``completion`` : Out, stream of :func:`completion_layout`
        All waits until it is taken.
    ``enabled`` : Out, one bit for each queue pair
    ``events`` : Out, RequesterEvents

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    From ``post`` to ``fetch`` 8 cycles when nothing else is to be done; a packet every 5 cycles; an answer
    takes 8 cycles, and 2 more for each write that it completes.

    Source
    ------
    docs/systems/rdma.md, "Requester"; InfiniBand Architecture Specification, volume 1, section 9.7.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        layout = fetch_layout(width=config.width, address_width=config.address_width)
        super().__init__(
            {
                "connect": In(stream.Signature(connect_layout(config))),
                "timeout": In(TIMEOUT_BITS),
                "post": In(stream.Signature(write_layout(config))),
                "answer": In(stream.Signature(answer_layout(config))),
                "headers": Out(stream.Signature(Headers)),
                "fetch": Out(stream.Signature(layout)),
                "completion": Out(stream.Signature(completion_layout(config))),
                "enabled": Out(config.queue_pairs),
                "events": Out(RequesterEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Load a queue pair's row of state, let the states of one event change it, and write it back.

        IDLE takes the event that :class:`EventChoice` offers. READ copies the queue pair's row and settings
        from their tables into the registers *in hand*. The states of the event change the row in hand;
        whichever ends them writes the row back, and with it three flags of the queue pair from which the next
        event is chosen: it is sendable, has room for a descriptor, has packets in flight (its timer runs)::

            CONNECT  FLUSH ... SETTLE
            ANSWER   CHECK, ACCEPT, ADVANCE, (COUNT, COMPLETE) for each write that ends; then as below, or FLUSH
            TIMEOUT  CHECK, GO BACK, SETTLE
            POST     POST, POSTED; then SEND or, where the queue pair is not enabled, FLUSH
            SEND     SEND, CUT, HAND ON

        Packets in flight are numbered ``oldest`` to ``oldest + flight - 1``. No packet is stored: to go back is
        to point ``send`` and ``number`` at the oldest packet again, and to have none in flight.
        """
        m = Module()
        hand = _InHand(self.config)
        m.submodules.tables = tables = SenderTables(config=self.config)
        queue_free = self._make_queues(m)
        choice = self._make_choice(m, hand, queue_free)
        m.d.comb += [
            tables.index.eq(hand.index),
            tables.new_row.eq(hand.row),
            tables.new_settings.eq(self.connect.payload.settings),
            tables.pointer.eq(hand.row.head + 1),  # unless a state reads another descriptor
        ]
        with m.FSM():
            self._read(m, hand, tables, choice)
            self._post(m, hand, tables, queue_free)
            self._send(m, hand, tables)
            self._answer(m, hand, tables)
            self._go_back(m, hand)
            self._flush(m, hand, tables)
            with m.State("WRITE"):
                self._write_row(m, hand, tables)
                m.next = "IDLE"
        return m

    def _make_queues(self, m: Module) -> Signal:
        """Headers and fetches of packets that were cut; whether both queues have a place, for one more packet.

        That is some cycles old where it is looked at, so it leaves a place for the packet that may be on its
        way.
        """
        m.submodules.headers = self._packets = StreamFIFO(shape=Headers, depth=_QUEUE)
        m.submodules.fetches = self._fetches = StreamFIFO(shape=self.fetch.payload.shape(), depth=_QUEUE)
        connect_typed(m, self._packets.o, wiring.flipped(self.headers))
        connect_typed(m, self._fetches.o, wiring.flipped(self.fetch))
        queue_free = Signal()
        m.d.sync += queue_free.eq((self._packets.level < _QUEUE - 1) & (self._fetches.level < _QUEUE - 1))
        return queue_free

    def _make_choice(self, m: Module, hand: _InHand, queue_free: Signal) -> EventChoice:
        """The flags of all queue pairs, and what chooses the next event from them."""
        count = self.config.queue_pairs
        m.submodules.choice = choice = EventChoice(config=self.config)
        m.submodules.timers = self._timers = timers = Timers(count=count)
        self._flags = {name: Signal(count, name=name) for name in ("sendable", "in_flight")}
        self._flags["has_room"] = Signal(count, name="has_room", init=-1)
        last_sent = Signal.like(hand.index)
        for name in ("connect", "answer", "post"):
            port, candidate = getattr(self, name), getattr(choice, name)
            m.d.comb += [candidate.valid.eq(port.valid), candidate.index.eq(port.payload.index)]
        m.d.comb += [
            timers.timeout.eq(self.timeout),
            timers.waiting.eq(self._flags["in_flight"]),
            choice.sendable.eq(self._flags["sendable"]),
            choice.has_room.eq(self._flags["has_room"]),
            choice.expired.eq(timers.expired),
            choice.queue_free.eq(queue_free),
            choice.last_sent.eq(last_sent),
        ]
        m.d.sync += timers.restart.eq(0)
        self._last_sent = last_sent
        return choice

    def _write_row(self, m: Module, hand: _InHand, tables: SenderTables) -> None:
        """Put the row back, and say what can be done with its queue pair now."""
        row = hand.row
        ring_bits = len(row.head) - 1
        ring_full = (row.head ^ row.tail) == 1 << ring_bits
        flags = [
            (self._flags["sendable"], row.enable & (row.send != row.tail) & ~hand.window_full),
            (self._flags["has_room"], ~ring_full),
            (self._flags["in_flight"], row.flight != 0),
            (self.enabled, row.enable),
        ]
        m.d.comb += tables.write_row.eq(1)
        m.d.sync += [flag.bit_select(hand.index, 1).eq(value) for flag, value in flags]
        m.d.sync += self._timers.restart.eq(hand.progress << hand.index)

    def _read(self, m: Module, hand: _InHand, tables: SenderTables, choice: EventChoice) -> None:
        """IDLE and READ: choose an event, and load its queue pair with the first descriptor that it needs."""
        row, settings = tables.row, tables.settings
        with m.State("IDLE"):
            m.d.sync += [hand.progress.eq(0), hand.event.eq(choice.event), hand.index.eq(choice.index)]
            with m.If(choice.valid):
                m.next = "READ"
        with m.State("READ"):
            m.d.comb += [
                tables.read.eq(1),
                tables.pointer.eq(Mux(hand.event == Event.SEND, row.send, row.head)),
            ]
            m.d.sync += [
                hand.row.eq(row),
                hand.settings.eq(settings),
                hand.offset.eq(bytes_of(row.number, settings.mtu)),
                hand.window_mask.eq(~(Const(-1, FLIGHT_BITS) << settings.window)),
                hand.ending.eq(Ending.FLUSHED),
            ]
            with m.Switch(hand.event):
                with m.Case(Event.CONNECT):
                    m.next = "FLUSH"
                with m.Case(Event.ANSWER):
                    self._judge(m, hand)
                    m.d.sync += hand.due.eq(1)
                    m.next = "CHECK"
                with m.Case(Event.POST):
                    m.next = "POST"
                with m.Case(Event.TIMEOUT):
                    expired = self._timers.expired.bit_select(hand.index, 1)
                    m.d.sync += [hand.ending.eq(Ending.RETRIES), hand.due.eq(expired)]
                    m.next = "CHECK"
                with m.Case(Event.SEND):
                    sendable = self._flags["sendable"].bit_select(hand.index, 1)
                    m.d.sync += [self._last_sent.eq(hand.index), hand.due.eq(sendable)]
                    m.next = "SEND"

    def _post(self, m: Module, hand: _InHand, tables: SenderTables, queue_free: Signal) -> None:
        """Put a descriptor into the ring; if its queue pair may send, a packet follows at once."""
        post, row, descriptor = self.post.payload, hand.row, tables.new_descriptor
        last_byte = Signal(signed(LENGTH_BITS + 1))  # of the message, from 0; -1 if it is empty
        m.d.sync += last_byte.eq(post.length - 1)
        last_number = packets_of(last_byte[:LENGTH_BITS], hand.settings.mtu)
        copied = [name for name in descriptor.shape().members if name != "last_number"]
        m.d.comb += [
            tables.new_pointer.eq(row.tail),
            *(descriptor[name].eq(post[name]) for name in copied),
            descriptor.last_number.eq(Mux(last_byte < 0, 0, last_number)),
        ]
        with m.State("POST"):
            m.d.comb += [tables.write_descriptor.eq(1), self.post.ready.eq(1)]
            m.d.sync += [row.tail.eq(row.tail + 1), hand.due.eq(1)]
            m.next = "POSTED"
        with m.State("POSTED"):
            self._write_row(m, hand, tables)
            # FLUSH needs the head's descriptor: in a queue pair that is not enabled both pointers are equal.
            m.d.comb += [tables.read.eq(1), tables.pointer.eq(row.send)]
            with m.If(~row.enable):
                m.next = "FLUSH"
            with m.Elif(queue_free & ~hand.window_full):
                m.next = "SEND"
            with m.Else():
                m.next = "WRITE"

    def _send(self, m: Module, hand: _InHand, tables: SenderTables) -> None:
        """Cut the next packet, and hand it to the queues."""
        m.submodules.cut = cut = PacketCut(config=self.config)
        row, packets, fetches = hand.row, self._packets.i, self._fetches.i
        m.d.comb += [
            cut.row.eq(row),
            cut.offset.eq(hand.offset),
            cut.write.eq(tables.descriptor),
            cut.settings.eq(hand.settings),
            cut.window_mask.eq(hand.window_mask),
            packets.payload.eq(cut.headers),
            fetches.payload.eq(cut.fetch),
        ]
        with m.State("SEND"):
            m.next = "IDLE"
            with m.If(hand.due):
                m.next = "CUT"
        with m.State("CUT"):
            m.d.sync += [row[name].eq(cut.next_row[name]) for name in cut.next_row.shape().members]
            m.d.sync += hand.progress.eq(row.flight == 0)  # the timer counts from the oldest packet in flight
            m.next = "HAND ON"
        with m.State("HAND ON"):
            m.d.comb += [packets.valid.eq(1), fetches.valid.eq(cut.has_payload), self.events.sent.eq(1)]
            self._write_row(m, hand, tables)
            m.next = "IDLE"

    def _answer(self, m: Module, hand: _InHand, tables: SenderTables) -> None:
        """Advance past the packets that are acknowledged, and complete the writes that end with them.

        A sum a state, each into a register that the next state uses: READ takes the distance from the oldest
        packet to the answer's, CHECK how many packets are acknowledged, ACCEPT what the row becomes by them,
        COUNT whether the head ends.
        """
        row, verdict, answer = hand.row, hand.verdict, self.answer.payload
        distance = Signal(PSN_BITS)  # from the oldest packet to the answer's
        in_flight = Signal()
        acknowledged = Signal(FLIGHT_BITS)  # packets
        surplus = Signal(signed(PSN_BITS + 1))  # packets acknowledged from the head's last one on
        advanced = Signal(
            data.StructLayout({name: row.shape()[name].shape for name in ("oldest", "flight", "done")})
        )
        m.d.sync += [
            distance.eq(answer.psn - tables.row.oldest),
            in_flight.eq(distance < row.flight),
            acknowledged.eq(distance[:FLIGHT_BITS] + (verdict == Verdict.ACK)),
            advanced.oldest.eq(row.oldest + acknowledged),
            advanced.flight.eq(row.flight - acknowledged),
            advanced.done.eq(row.done + acknowledged),
            surplus.eq(row.done - tables.descriptor.last_number),
        ]
        with m.State("CHECK"):
            m.next = "ACCEPT"
            with m.If(hand.event == Event.TIMEOUT):
                m.next = "GO BACK"
        with m.State("ACCEPT"):
            m.d.comb += self.answer.ready.eq(1)
            m.next = "IDLE"
            with m.If(in_flight & (verdict != Verdict.IGNORED)):
                m.next = "ADVANCE"
        with m.State("ADVANCE"):
            m.d.sync += [row[name].eq(advanced[name]) for name in advanced.shape().members]
            with m.If(acknowledged != 0):
                m.d.sync += [row.attempts.eq(0), hand.progress.eq(1)]
            m.next = "COUNT"
        with m.State("COUNT"):
            m.next = "COMPLETE"
        with m.State("COMPLETE"):
            with m.If(surplus > 0):
                self._complete(m, hand, tables, Ending.DONE)
                with m.If(self.completion.ready):
                    m.d.sync += row.done.eq(surplus - 1)
                    m.next = "COUNT"
            with m.Elif(verdict == Verdict.FATAL):
                self._fail(m, hand)
            with m.Elif(verdict == Verdict.SEQUENCE):
                m.next = "GO BACK"
            with m.Else():
                m.next = "WRITE"

    def _judge(self, m: Module, hand: _InHand) -> None:
        """What the answer's syndrome says, and how the oldest write ends if the queue pair fails by it."""
        syndrome = self.answer.payload.syndrome
        m.d.sync += hand.verdict.eq(Verdict.IGNORED)
        with m.If(syndrome[5:] == 0):
            m.d.sync += hand.verdict.eq(Verdict.ACK)
        with m.If(syndrome == Nak.SEQUENCE.syndrome):
            m.d.sync += [hand.verdict.eq(Verdict.SEQUENCE), hand.ending.eq(Ending.RETRIES)]
        for nak, ending in _FATAL.items():
            with m.If(syndrome == nak.syndrome):
                m.d.sync += [hand.verdict.eq(Verdict.FATAL), hand.ending.eq(ending)]

    def _complete(self, m: Module, hand: _InHand, tables: SenderTables, ending: Any) -> None:
        """Offer the head's completion; once it is taken, the next descriptor becomes the head."""
        completion, row = self.completion, hand.row
        m.d.comb += [
            completion.valid.eq(1),
            completion.p.index.eq(hand.index),
            completion.p.tag.eq(tables.descriptor.tag),
            completion.p.ending.eq(ending),
        ]
        with m.If(completion.ready):
            m.d.comb += tables.read.eq(1)
            m.d.sync += row.head.eq(row.head + 1)

    def _fail(self, m: Module, hand: _InHand) -> None:
        """The queue pair ends; its oldest write completes with ``ending``, all others as flushed."""
        m.d.comb += self.events.failed.eq(1)
        m.d.sync += hand.row.enable.eq(0)
        m.next = "FLUSH"

    def _go_back(self, m: Module, hand: _InHand) -> None:
        """Go-back-N: the oldest packet is the next to send, unless that was tried too often."""
        row = hand.row
        with m.State("GO BACK"):
            m.d.sync += hand.progress.eq(1)
            with m.If(~hand.due | (row.flight == 0)):
                m.next = "WRITE"  # the packet that the timer waited for has been acknowledged meanwhile
            with m.Elif(row.attempts == hand.settings.retries):
                self._fail(m, hand)
            with m.Else():
                m.d.comb += [
                    self.events.went_back.eq(1),
                    self.events.timed_out.eq(hand.event == Event.TIMEOUT),
                ]
                m.d.sync += [
                    row.attempts.eq(row.attempts + 1),
                    row.flight.eq(0),
                    row.send.eq(row.head),
                    row.number.eq(row.done),
                ]
                m.next = "SETTLE"

    def _flush(self, m: Module, hand: _InHand, tables: SenderTables) -> None:
        """Complete all descriptors; a CONNECT then gives the queue pair its new settings."""
        row, settings = hand.row, self.connect.payload.settings
        with m.State("FLUSH"):
            m.d.sync += [row[name].eq(0) for name in ("done", "flight", "number", "attempts")]
            m.d.sync += [row.send.eq(row.tail), hand.progress.eq(1)]
            with m.If(hand.event == Event.CONNECT):
                m.d.sync += [row.enable.eq(settings.enable), row.oldest.eq(settings.send_psn)]
            with m.If(row.head != row.tail):
                self._complete(m, hand, tables, hand.ending)
                with m.If(self.completion.ready):
                    m.d.sync += hand.ending.eq(Ending.FLUSHED)
            with m.Else():
                m.next = "SETTLE"
        with m.State("SETTLE"):
            with m.If(hand.event == Event.CONNECT):
                m.d.comb += [tables.write_settings.eq(1), self.connect.ready.eq(1)]
            m.next = "WRITE"
