"""Requester: the sending half of the queue pairs."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from typing import Any

from amaranth import Const, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.rdma.event_choice import Event
from fanin.hdl.rdma.in_hand import QUEUE, InHand, Parts, Verdict
from fanin.hdl.rdma.packet_cut import PacketCut
from fanin.hdl.rdma.queue_pair import (
    LENGTH_BITS,
    answer_layout,
    bytes_of,
    completion_layout,
    connect_layout,
    packets_of,
    write_layout,
)
from fanin.hdl.rdma.sender_tables import FLIGHT_BITS, SenderTables
from fanin.hdl.rdma.shapes import Headers, fetch_layout
from fanin.hdl.rdma.timers import TIMEOUT_BITS
from fanin.hdl.stream.connect import connect_typed
from fanin.rdma.facts import Ending, RdmaConfig
from fanin.wire.rdma import NOT_READY, PSN_BITS, Nak

# Ending of the oldest write when this NAK ends its queue pair.
_FATAL = {
    Nak.INVALID_REQUEST: Ending.REQUEST,
    Nak.REMOTE_ACCESS: Ending.ACCESS,
    Nak.REMOTE_OPERATION: Ending.OPERATION,
}


class RequesterEvents(data.Struct):
    """Events of the requester, one pulse each, for counters."""

    sent: 1  #: a packet was handed on
    went_back: 1  #: a queue pair goes back to its oldest packet
    timed_out: 1  #: a queue pair goes back because no answer arrived
    failed: 1  #: a queue pair ended with an error
    not_ready: 1  #: the receiver had no buffer for a message yet


class Requester(wiring.Component):
    """Go-back-N sender: cuts the writes of all queue pairs into packets and sends them until acknowledged.

    The requester executes one event at a time, the most urgent first: connecting a queue pair, an answer, a
    timeout, posting a descriptor, sending a packet. To send a packet, the requester *hands it on*: its headers
    enter the queue to the transmitter, and the request for its payload enters the queue to the memory reader.
    Queue pairs take turns with their packets. One whose packet cannot be handed on keeps its turn.

    Each descriptor completes once, in the order of posting to its queue pair. A queue pair that fails or is
    connected anew completes all its descriptors immediately. A disabled queue pair completes each as flushed.

    Memory is never read for a completed descriptor. A packet is handed on only if its payload can be read
    immediately, no matter what the MAC does. Completions of a queue pair that fails or is connected anew, and
    completions of retransmitted packets, wait until all payloads have arrived from memory.

    Members
    -------
    ``connect`` : In, stream of :func:`connect_layout`
        Connect a queue pair anew, or disconnect it. Taken when no memory is read for its old connection.
    ``timeout`` : In, 32
        Cycles without progress before a queue pair goes back.
    ``post`` : In, stream of :func:`write_layout`
        Descriptors; each waits while its queue pair's ring is full. ``length`` at most 2^31, and within the
        memory's addresses.
    ``stale`` : In, 1
        The write on ``post`` was posted before its queue pair was connected anew: it completes as flushed.
    ``answer`` : In, stream of :func:`answer_layout`
        Received ACKs and NAKs.
    ``headers`` : Out, stream of Headers
        Packets. Those with a ``size`` use the payloads of ``fetch``, in order.
    ``fetch`` : Out, stream of :func:`fetch_layout`
        Payloads to read.
    ``room`` : In, 1
        The reader's buffer has room for a payload; payloads of the last 4 cycles may not be counted yet.
    ``free`` : In, 1
        A payload requested on ``fetch`` is read immediately.
    ``reading`` : In, 1
        A payload requested on ``fetch`` has not arrived completely.
    ``completion`` : Out, stream of :func:`completion_layout`
        Endings of descriptors. The requester stalls until a completion is taken.
    ``ended_psn`` : Out, 24
        Oldest unacknowledged number of the old connection, for the queue pair of the last CONNECT. That
        connection has sent fewer than 1024 numbers from there on.
    ``enabled`` : Out, one bit for each queue pair
        The queue pair is connected and has not failed.
    ``events`` : Out, RequesterEvents
        Pulses for counters.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Numbers of queue pairs and descriptors, and widths.

    Latency
    -------
    From ``post`` to ``fetch`` 8 cycles if no other event waits; a packet every 5 cycles; an answer takes 8
    cycles, and 2 more for each write that it completes.

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
                "stale": In(1),
                "answer": In(stream.Signature(answer_layout(config))),
                "headers": Out(stream.Signature(Headers)),
                "fetch": Out(stream.Signature(layout)),
                "room": In(1),
                "free": In(1),
                "reading": In(1),
                "completion": Out(stream.Signature(completion_layout(config))),
                "ended_psn": Out(PSN_BITS),
                "enabled": Out(config.queue_pairs),
                "events": Out(RequesterEvents),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Load a queue pair's row of state, change it in the states of one event, and write it back.

        READ copies the row and the settings of the event's queue pair from their tables to the registers of
        :class:`InHand`. The states of the event change that row. Each state that writes the row back also sets
        the queue pair's flags for the choice of the next event (:class:`Parts`). States, actions and
        successors::

            CLEAR      after a reset: writes an empty row        IDLE after the last row
            IDLE       takes the event that EventChoice offers       READ
            READ       loads row and settings                        CONNECT: DRAIN; POST: POST; SEND: SEND;
                                                                     ANSWER and TIMEOUT: CHECK
            POST       takes the descriptor                          POSTED
            POSTED     writes the row                                SEND; WRITE if window or queues are full;
                                                                     FLUSH if the queue pair is not enabled,
                                                                     or the descriptor is stale
            SEND       waits for PacketCut's sums                    CUT; IDLE if no packet may be sent now
            CUT        moves on to the next packet                   HAND ON
            HAND ON    queues the packet and writes the row; does    IDLE
                       neither if memory cannot be read immediately:
                       then the queue pair keeps its turn
            CHECK      counts the packets acknowledged               ANSWER: ACCEPT; TIMEOUT: GO BACK
            ACCEPT     takes the answer                              ADVANCE; IDLE if it is ignored
            ADVANCE    moves past the packets acknowledged           COUNT
            COUNT      compares their number with the oldest write   COMPLETE
            COMPLETE   completes the oldest write, if it ended       COUNT if it did; else ACK: WRITE,
                                                                     sequence NAK: GO BACK, fatal NAK: DRAIN
            GO BACK    points at the oldest packet in flight         CONFIGURE; WRITE if none is in flight;
                                                                     DRAIN if retries are exhausted
            DRAIN      waits until no payload is being read          FLUSH
            FLUSH      completes all descriptors                     CONFIGURE
            CONFIGURE  takes a CONNECT, writes its settings          WRITE
            WRITE      writes the row                                IDLE

        Packets in flight are numbered ``oldest`` to ``oldest + flight - 1``. Packets are not stored: going back
        points ``send`` and ``packet_number`` at the oldest packet again and sets ``flight`` to 0.

        A reset does not clear the tables, which are memories: CLEAR does.
        """
        m = Module()
        hand = InHand(self.config)
        parts = Parts(self.config, self.fetch.payload.shape())
        self._connect_tables(m, hand, parts)
        self._connect_queues(m, parts)
        self._connect_choice(m, parts)
        with m.FSM(init="CLEAR"):
            with m.State("CLEAR"):
                self._write_row(m, hand, parts)
                m.d.sync += hand.index.eq(hand.index + 1)
                with m.If(hand.index == self.config.queue_pairs - 1):
                    m.next = "IDLE"
            self._read(m, hand, parts)
            self._post(m, hand, parts)
            self._send(m, hand, parts)
            self._answer(m, hand, parts)
            self._go_back(m, hand)
            self._flush(m, hand, parts)
            with m.State("WRITE"):
                self._write_row(m, hand, parts)
                m.next = "IDLE"
        return m

    def _connect_tables(self, m: Module, hand: InHand, parts: Parts) -> None:
        """Connect the tables to the current queue pair."""
        m.submodules.tables = tables = parts.tables
        m.d.comb += [
            tables.index.eq(hand.index),
            tables.new_row.eq(hand.row),
            tables.new_settings.eq(self.connect.payload.settings),
            tables.pointer.eq(hand.row.head + 1),  # default; some states read another descriptor
        ]

    def _connect_queues(self, m: Module, parts: Parts) -> None:
        """Connect the queues of packets and payloads; compute whether a packet may be handed on."""
        m.submodules.headers, m.submodules.fetches = packets, fetches = parts.packets, parts.fetches
        connect_typed(m, packets.o, wiring.flipped(self.headers))
        connect_typed(m, fetches.o, wiring.flipped(self.fetch))
        m.d.sync += parts.queue_free.eq((packets.level < QUEUE - 1) & self.room)
        m.d.comb += [
            parts.may_hand_on.eq(packets.i.ready & self.free & ~fetches.o.valid),
            parts.drained.eq(~fetches.o.valid & ~self.reading),
        ]

    def _connect_choice(self, m: Module, parts: Parts) -> None:
        """Connect the choice of the next event to the ports and to the flags of all queue pairs."""
        m.submodules.choice, m.submodules.timers = choice, timers = parts.choice, parts.timers
        for name in ("connect", "answer", "post"):
            port, candidate = getattr(self, name), getattr(choice, name)
            m.d.comb += [candidate.valid.eq(port.valid), candidate.index.eq(port.payload.index)]
        m.d.comb += [
            timers.timeout.eq(self.timeout),
            timers.waiting.eq(parts.in_flight),
            choice.sendable.eq(parts.sendable),
            choice.has_room.eq(parts.has_room),
            choice.expired.eq(timers.expired),
            choice.queue_free.eq(parts.queue_free),
            choice.last_sent.eq(parts.last_sent),
            choice.kept_turn.eq(parts.kept_turn),
        ]
        m.d.sync += timers.restart.eq(0)

    def _write_row(self, m: Module, hand: InHand, parts: Parts) -> None:
        """Write the current row back, and update the flags of its queue pair."""
        row = hand.row
        ring_bits = len(row.head) - 1
        ring_full = (row.head ^ row.tail) == 1 << ring_bits
        flags = [
            (parts.sendable, row.enable & (row.send != row.tail) & ~hand.window_full),
            (parts.has_room, ~ring_full),
            (parts.in_flight, row.flight != 0),
            (self.enabled, row.enable),
        ]
        m.d.comb += parts.tables.write_row.eq(1)
        m.d.sync += [flag.bit_select(hand.index, 1).eq(value) for flag, value in flags]
        m.d.sync += parts.timers.restart.eq(hand.progress << hand.index)

    def _read(self, m: Module, hand: InHand, parts: Parts) -> None:
        """Build IDLE and READ: choose an event, and load its queue pair and the first descriptor it needs."""
        tables, choice = parts.tables, parts.choice
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
                hand.offset.eq(bytes_of(row.packet_number, settings.mtu)),
                hand.window_mask.eq(~(Const(-1, FLIGHT_BITS) << settings.window)),
                hand.ending.eq(Ending.FLUSHED),
            ]
            with m.Switch(hand.event):
                with m.Case(Event.CONNECT):
                    m.next = "DRAIN"
                with m.Case(Event.ANSWER):
                    self._decode(m, hand)
                    m.d.sync += hand.still_valid.eq(1)
                    m.next = "CHECK"
                with m.Case(Event.POST):
                    m.next = "POST"
                with m.Case(Event.TIMEOUT):
                    expired = parts.timers.expired.bit_select(hand.index, 1)
                    m.d.sync += [hand.ending.eq(Ending.RETRIES), hand.still_valid.eq(expired)]
                    m.next = "CHECK"
                with m.Case(Event.SEND):
                    sendable = parts.sendable.bit_select(hand.index, 1)
                    m.d.sync += [parts.kept_turn.valid.eq(0), hand.still_valid.eq(sendable)]
                    # A kept turn is not counted again; the first packet after a post takes no turn.
                    with m.If(~parts.kept_turn.valid):
                        m.d.sync += parts.last_sent.eq(hand.index)
                    m.next = "SEND"

    def _post(self, m: Module, hand: InHand, parts: Parts) -> None:
        """Put a descriptor into the ring; a packet follows immediately if its queue pair may send."""
        tables, post, row = parts.tables, self.post.payload, hand.row
        descriptor = tables.new_descriptor
        last_byte = Signal(signed(LENGTH_BITS + 1))  # index of the message's last byte; -1 if it is empty
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
            m.d.sync += [row.tail.eq(row.tail + 1), hand.still_valid.eq(1), hand.stale.eq(self.stale)]
            m.next = "POSTED"
        with m.State("POSTED"):
            # Write the row here, not only in WRITE. The choice sees ``has_room`` a cycle late, and must not
            # take another post for a ring that this post has filled.
            self._write_row(m, hand, parts)
            # Read the descriptor at ``send`` for SEND. FLUSH needs the one at ``head``, which is the same here:
            # the ring was empty if the queue pair is not enabled or if the descriptor is stale.
            m.d.comb += [tables.read.eq(1), tables.pointer.eq(row.send)]
            with m.If(~row.enable | hand.stale):
                m.next = "FLUSH"
            with m.Elif(parts.queue_free & ~hand.window_full):
                m.next = "SEND"
            with m.Else():
                m.next = "WRITE"

    def _send(self, m: Module, hand: InHand, parts: Parts) -> None:
        """Build SEND, CUT and HAND ON: cut the next packet and hand it to the queues."""
        m.submodules.packet_cut = packet_cut = PacketCut(config=self.config)
        row, packets, fetches = hand.row, parts.packets.i, parts.fetches.i
        m.d.comb += [
            packet_cut.row.eq(row),
            packet_cut.offset.eq(hand.offset),
            packet_cut.descriptor.eq(parts.tables.descriptor),
            packet_cut.settings.eq(hand.settings),
            packet_cut.window_mask.eq(hand.window_mask),
            packets.payload.eq(packet_cut.headers),
            fetches.payload.eq(packet_cut.fetch),
        ]
        with m.State("SEND"):
            m.next = "IDLE"
            with m.If(hand.still_valid):
                m.next = "CUT"
        with m.State("CUT"):
            m.d.sync += [
                row[name].eq(packet_cut.next_row[name]) for name in packet_cut.next_row.shape().members
            ]
            m.d.sync += hand.progress.eq(row.flight == 0)  # the timer counts from the oldest packet in flight
            m.next = "HAND ON"
        with m.State("HAND ON"):
            with m.If(parts.may_hand_on):
                m.d.comb += [
                    packets.valid.eq(1),
                    fetches.valid.eq(packet_cut.has_payload),
                    self.events.sent.eq(1),
                ]
                self._write_row(m, hand, parts)
            with m.Elif(~parts.kept_turn.valid):
                m.d.sync += [parts.kept_turn.valid.eq(1), parts.kept_turn.index.eq(hand.index)]
            m.next = "IDLE"

    def _answer(self, m: Module, hand: InHand, parts: Parts) -> None:
        """Advance past the acknowledged packets, and complete the writes that end with them.

        Each state computes one sum for the next. READ computes the distance from the oldest packet to the
        answer's, CHECK the number of acknowledged packets, ACCEPT the new row, and COUNT whether the head ends.
        """
        row, verdict, answer = hand.row, hand.verdict, self.answer.payload
        distance = Signal(PSN_BITS)  # from the oldest packet to the answer's packet
        in_flight = Signal()
        acknowledged = Signal(FLIGHT_BITS)  # packets acknowledged by the answer
        # Acknowledged packets from the head's last one on; the head ends if this is above 0.
        surplus = Signal(signed(PSN_BITS + 1))
        advanced = Signal(
            data.StructLayout(
                {name: row.shape()[name].shape for name in ("oldest", "flight", "done", "sent_before")}
            )
        )
        next_sent_before = Signal(signed(FLIGHT_BITS + 1))  # as ``advanced.sent_before``, before limiting to 0
        m.d.sync += [
            distance.eq(answer.psn - parts.tables.row.oldest),
            in_flight.eq(distance < row.flight),
            acknowledged.eq(distance[:FLIGHT_BITS] + (verdict == Verdict.ACK)),
            advanced.oldest.eq(row.oldest + acknowledged),
            advanced.flight.eq(row.flight - acknowledged),
            advanced.done.eq(row.done + acknowledged),
            next_sent_before.eq(row.sent_before - acknowledged),
            surplus.eq(row.done - parts.tables.descriptor.last_number),
        ]
        m.d.comb += advanced.sent_before.eq(Mux(next_sent_before < 0, 0, next_sent_before))
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
            m.d.sync += hand.repeated.eq(row.sent_before != 0)
            with m.If(acknowledged != 0):
                m.d.sync += [row.attempts.eq(0), row.not_ready.eq(0), hand.progress.eq(1)]
            with m.If(verdict == Verdict.NOT_READY):
                m.d.sync += [row.not_ready.eq(1), hand.progress.eq(1)]
                m.d.comb += self.events.not_ready.eq(1)
            m.next = "COUNT"
        with m.State("COUNT"):
            m.next = "COMPLETE"
        with m.State("COMPLETE"):
            with m.If(surplus > 0), m.If(~hand.repeated | parts.drained):
                self._complete(m, hand, parts.tables, Ending.DONE)
                with m.If(self.completion.ready):
                    m.d.sync += row.done.eq(surplus - 1)
                    m.next = "COUNT"
            with m.Elif(verdict == Verdict.FATAL):
                self._fail(m, hand)
            with m.Elif((verdict == Verdict.SEQUENCE) & ~row.not_ready):
                m.next = "GO BACK"
            with m.Else():
                m.next = "WRITE"

    def _decode(self, m: Module, hand: InHand) -> None:
        """Decode the answer's syndrome, and choose the oldest write's ending if the queue pair fails by it."""
        syndrome = self.answer.payload.syndrome
        m.d.sync += hand.verdict.eq(Verdict.IGNORED)
        with m.If(syndrome[5:] == 0):
            m.d.sync += hand.verdict.eq(Verdict.ACK)
        with m.If(syndrome[5:] == NOT_READY):
            m.d.sync += hand.verdict.eq(Verdict.NOT_READY)
        with m.If(syndrome == Nak.SEQUENCE.syndrome):
            m.d.sync += [hand.verdict.eq(Verdict.SEQUENCE), hand.ending.eq(Ending.RETRIES)]
        for nak, ending in _FATAL.items():
            with m.If(syndrome == nak.syndrome):
                m.d.sync += [hand.verdict.eq(Verdict.FATAL), hand.ending.eq(ending)]

    def _complete(self, m: Module, hand: InHand, tables: SenderTables, ending: Any) -> None:
        """Offer the head's completion; when it is taken, the next descriptor becomes the head."""
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

    def _fail(self, m: Module, hand: InHand) -> None:
        """End the queue pair: its oldest write completes with ``ending``, all others as flushed."""
        m.d.comb += self.events.failed.eq(1)
        m.d.sync += hand.row.enable.eq(0)
        m.next = "DRAIN"

    def _go_back(self, m: Module, hand: InHand) -> None:
        """Go back: the oldest packet is the next to send, unless retries are exhausted."""
        row = hand.row
        reaches_further = Signal()  # more packets are in flight than before the last going back
        m.d.sync += reaches_further.eq(row.flight > row.sent_before)
        with m.State("GO BACK"):
            m.d.sync += hand.progress.eq(1)
            with m.If(~hand.still_valid | (row.flight == 0)):
                m.next = "WRITE"  # the packet of the timer has been acknowledged meanwhile
            with m.Elif(row.attempts == hand.settings.retries):
                self._fail(m, hand)
            with m.Else():
                m.d.comb += [
                    self.events.went_back.eq(1),
                    self.events.timed_out.eq(hand.event == Event.TIMEOUT),
                ]
                m.d.sync += [
                    row.attempts.eq(row.attempts + 1),
                    row.sent_before.eq(Mux(reaches_further, row.flight, row.sent_before)),
                    row.not_ready.eq(0),
                    row.flight.eq(0),
                    row.send.eq(row.head),
                    row.packet_number.eq(row.done),
                ]
                m.next = "CONFIGURE"

    def _flush(self, m: Module, hand: InHand, parts: Parts) -> None:
        """Complete all descriptors; after a CONNECT, take the queue pair's new settings."""
        row, settings = hand.row, self.connect.payload.settings
        with m.State("DRAIN"):
            with m.If(hand.event == Event.CONNECT):
                m.d.sync += self.ended_psn.eq(row.oldest)
            with m.If(parts.drained):
                m.next = "FLUSH"
        with m.State("FLUSH"):
            cleared = ("done", "flight", "packet_number", "sent_before", "attempts", "not_ready")
            m.d.sync += [row[name].eq(0) for name in cleared]
            m.d.sync += [row.send.eq(row.tail), hand.progress.eq(1)]
            with m.If(hand.event == Event.CONNECT):
                m.d.sync += [row.enable.eq(settings.enable), row.oldest.eq(settings.send_psn)]
            with m.If(row.head != row.tail):
                self._complete(m, hand, parts.tables, hand.ending)
                with m.If(self.completion.ready):
                    m.d.sync += hand.ending.eq(Ending.FLUSHED)
            with m.Else():
                m.next = "CONFIGURE"
        with m.State("CONFIGURE"):  # does nothing after GO BACK
            with m.If(hand.event == Event.CONNECT):
                m.d.comb += [parts.tables.write_settings.eq(1), self.connect.ready.eq(1)]
            m.next = "WRITE"
