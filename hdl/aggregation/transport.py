"""Transport of the aggregation protocol, on the worker's side."""

from typing import Any

from amaranth import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.aggregation.headers import check_framing, packet_fields, values_layout
from fanin.hdl.aggregation.job import (
    ROUND_BITS,
    FailureCause,
    FrameFaults,
    JobConfig,
    TransportCounters,
    TransportEvents,
    TransportStatus,
    slot_mask,
)
from fanin.hdl.aggregation.receive import FrameReceiver
from fanin.hdl.aggregation.reorder import ReorderStore
from fanin.hdl.aggregation.retry import RetryScanner
from fanin.hdl.aggregation.slots import (
    OperationWindow,
    SlotStates,
    check_first_round,
    check_slots,
    clear_layout,
    index_bits,
    use_layout,
)
from fanin.hdl.aggregation.transmit import FrameTransmitter
from fanin.hdl.net.round_trip import RoundTripTimer
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.aggregation import DEFAULT_VALUES, Encap, Kind, Protocol

SETTLE_CYCLES = 8  # cycles after which masks and checksums that depend on the job are valid


class AggTransport(wiring.Component):
    """Reliable transport: partial activations to the switch, full ones back, exactly once and in order.

    Operation n uses slot ``base`` + n mod S in round n div S + 1, where S is the job's slots. Its PA is stored
    and sent (AGG) until the RESULT arrives, then acknowledged (ACK) until the CONFIRM arrives; then the slot is
    free. Without acknowledgements (``protocol``) half of the slots are in flight, and operation n starts after
    the FA of n − S / 2 was handed over. Packets that do not match job, slot, round and state are dropped and
    counted.

    With ``job.adaptive`` the timeouts follow the measured round trips; else a packet is sent again every
    ``job.timeout`` cycles.

    Causes of a stop:

    - TIMEOUT: a packet stays unanswered after ``job.retries`` retransmissions.
    - ROUND_WRAP: the rounds are used up; outstanding operations finish, and the next PA stops the transport.

    While the transport is stopped, or ``job.enable`` is low, it sends no packet and accepts no frame and no PA.
    It hands over no FA except one that already waits on ``fa``. Frames then count as those of another job.

    After a reset, and after ``reset``, the slots are cleared for ``slots`` cycles before the first PA is
    accepted. In the cycles of ``reset`` a PA that waits on ``pa`` is taken and dropped. ``fa.ready`` must be
    high then, since an FA on ``fa`` belongs to the old job. A frame whose first beats came before ``reset`` is
    dropped and not counted.

    Members
    -------
    ``pa`` : In, stream of ``values`` signed 32-bit numbers
        Partial activations. ``ready`` depends on registers and ``reset`` alone.
    ``fa`` : Out, stream of ``values`` signed 32-bit numbers
        Full activations.
    ``tx`` : Out, packet stream of ``mac_width`` bits
        Frames to the MAC; no pauses within a frame.
    ``rx`` : In, packet stream of ``mac_width`` bits with ``error``
        Frames from the MAC. Always ready, since a MAC does not wait.
    ``job`` : In, JobConfig
        Current job.
    ``reset`` : In, 1
        Drop all state for a new job, which starts with operation 0. A frame on ``tx`` is finished.
    ``status`` : Out, TransportStatus
        Idle, failure and its cause.
    ``counters`` : Out, TransportCounters
        Pulses for counters.
    ``events`` : Out, TransportEvents
        Pulses for measurement.

    Parameters
    ----------
    ``mac_width`` : int, a power of two, 8 to 512
        Bits of a beat; 512 by default.
    ``encap`` : Encap
        Encapsulation: raw Ethernet (the default) or UDP.
    ``values`` : int, 1 to 256
        Values of a packet.
    ``slots`` : int, a power of two, 2 to 65536
        Maximum number of slots of a job; 64 by default.
    ``protocol`` : Protocol
        Protocol: with acknowledgements (P4SGD, the default) or without.
    ``first_round`` : int, 1 to 2^32 − 1
        Round of operation 0; 1 except in tests.
    ``block_ram`` : bool
        Keep FAs that wait for their turn in block RAM, even for few slots. False by default.

    Latency
    -------
    - PA accepted to first beat transferred on ``tx``: 2 cycles.
    - Last beat of RESULT transferred on ``rx`` to FA valid: registered 2 edges later for L2, 5 for UDP;
      transferred 3 and 6 cycles after the RESULT.
    - At one beat a frame: one PA, one RESULT, one FA a cycle. AGG goes before ACK, ACK before retransmissions.
      If an operation takes an AGG and an ACK, ``tx`` sustains one operation every two frames, else one every
      frame.
    - A retransmission is selected at most N + 9 cycles after its timeout if ``tx`` is free and no other is due,
      where N is the number of operations in flight.

    Source
    ------
    docs/systems/aggregation.md; P4SGD, section III.
    """

    def __init__(
        self,
        *,
        mac_width: int = 512,
        encap: Encap = Encap.L2,
        values: int = DEFAULT_VALUES,
        slots: int = 64,
        protocol: Protocol = Protocol.P4SGD,
        first_round: int = 1,
        block_ram: bool = False,
    ):
        check_framing(mac_width=mac_width, values=values)
        check_slots(slots)
        check_first_round(first_round)
        self.mac_width = mac_width
        self.encap = encap
        self.values = values
        self.slots = slots
        self.protocol = protocol
        self.first_round = first_round
        self.block_ram = block_ram
        super().__init__(
            {
                "pa": In(stream.Signature(values_layout(values))),
                "fa": Out(stream.Signature(values_layout(values))),
                "tx": Out(packet_stream(mac_width)),
                "rx": In(packet_stream(mac_width, error=True)),
                "job": In(JobConfig),
                "reset": In(1),
                "status": Out(TransportStatus),
                "counters": Out(TransportCounters),
                "events": Out(TransportEvents),
            }
        )

    def required(self) -> dict[str, Value]:
        """Return conditions on the user that simulations check, keyed by the description of a violation."""
        return {"an FA waits while the transport is reset": ~self.reset | ~self.fa.valid | self.fa.ready}

    def elaborate(self, platform: Any) -> Module:
        """Reset all parts with ``reset`` except the transmitter, which may be within a frame."""
        m = Module()
        framing: dict[str, Any] = {"mac_width": self.mac_width, "encap": self.encap, "values": self.values}
        m.submodules.transmitter = transmitter = FrameTransmitter(**framing)
        packet = data.StructLayout({"packet": packet_fields(self.values), "first": 1})
        outgoing = RegisterSlice(shape=packet)  # keeps the MAC's stalls out of the arbitration
        receiver = FrameReceiver(**framing, protocol=self.protocol)
        numbering: dict[str, Any] = {"slots": self.slots, "first_round": self.first_round}
        window = OperationWindow(**numbering, protocol=self.protocol)
        states = SlotStates(**numbering, protocol=self.protocol)
        reorder = ReorderStore(**numbering, values=self.values, block_ram=self.block_ram)
        scanner = RetryScanner(slots=self.slots, values=self.values)
        timer = RoundTripTimer(slots=self.slots)
        for name, part in {
            "receiver": receiver,
            "window": window,
            "states": states,
            "reorder": reorder,
            "scanner": scanner,
            "timer": timer,
            "outgoing": outgoing,
        }.items():
            m.submodules[name] = ResetInserter(self.reset)(part)

        self._whole_frames(m, receiver.i)
        connect_typed(m, wiring.flipped(self.tx), transmitter.o)
        connect_typed(m, wiring.flipped(self.fa), reorder.o)
        mask = Signal(index_bits(self.slots))  # registered: the job is constant long before ``run``
        m.d.sync += mask.eq(slot_mask(self.job))
        m.d.comb += [
            part.eq(value)
            for part, value in (
                (transmitter.job, self.job),
                (transmitter.drop, self.reset),
                (receiver.job, self.job),
                # The later assignment wins: no frame is accepted while slots are cleared, or after a failure.
                (receiver.job.enable, self.job.enable & ~states.clear.en & ~self.status.failed),
                (window.mask, mask),
                (states.mask, mask),
                (reorder.mask, mask),
                (scanner.mask, mask),
            )
        ]
        run = self._run(m, window, states, reorder, scanner)
        acks = self._acknowledge(m, states)
        self._send(m, run, window, scanner, acks, outgoing.i)
        self._transmit(m, outgoing.o, transmitter)
        self._receive(m, window, states, reorder, receiver)
        self._track(m, window, states, acks, scanner)
        self._time(m, states, scanner, timer)
        return m

    def _run(self, m: Module, window: Any, states: Any, reorder: Any, scanner: Any) -> Signal:
        """Clear the slots, wait for the job to settle, run until a failure.

        Return ``window.enable``, delayed by a cycle, since the window also opens a cycle after ``enable``.
        """
        clear = Signal(clear_layout(self.slots), init={"en": 1})
        enabled_cycles = Signal(SETTLE_CYCLES)  # bit n: the job has been enabled for more than n cycles
        run = Signal()
        status = Signal(TransportStatus)
        was_exhausted = Signal()  # one cycle old, as ``window.idle`` is
        is_finished = Signal()  # the rounds are used up, and no operation is in flight
        m.d.sync += [
            enabled_cycles.eq(
                Cat(self.job.enable, enabled_cycles[:-1]) & self.job.enable.replicate(SETTLE_CYCLES)
            ),
            run.eq(window.enable),
            was_exhausted.eq(window.exhausted),
            is_finished.eq(was_exhausted & window.idle),
        ]
        m.d.comb += window.enable.eq(enabled_cycles[-1] & ~clear.en & ~status.failed & ~scanner.failed)
        with m.If(clear.en):
            m.d.sync += [
                clear.index.eq(clear.index + 1),
                clear.en.eq(clear.index != self.slots - 1),
            ]
        with m.If(run & scanner.failed):
            m.d.sync += [status.failed.eq(1), status.cause.eq(FailureCause.TIMEOUT)]
        with m.Elif(run & is_finished & self.pa.valid):
            m.d.sync += [status.failed.eq(1), status.cause.eq(FailureCause.ROUND_WRAP)]
        with m.If(self.reset):
            m.d.sync += [clear.en.eq(1), clear.index.eq(0), status.eq(0), run.eq(0)]
        m.d.comb += [
            states.clear.eq(clear),
            reorder.clear.eq(clear),
            reorder.enable.eq(window.enable),
            self.status.eq(status),
            self.status.idle.eq(window.idle),
        ]
        return run

    def _acknowledge(self, m: Module, states: Any) -> Any:
        """Return a stream of slots whose RESULT must be acknowledged; empty without acknowledgements."""
        use = use_layout(self.slots)
        if not self.protocol.acknowledges:
            return stream.Signature(use).create()
        # A slot needs one acknowledgement at a time, so the queue cannot overflow.
        queue = StreamFIFO(shape=use, depth=self.slots)
        # Keeps the sender's stalls out of the queue, and delays an ACK to at least 3 cycles after its RESULT,
        # as ``RetryScanner.sent`` requires.
        next_ack = RegisterSlice(shape=use)
        m.submodules.acks = ResetInserter(self.reset)(queue)
        m.submodules.next_ack = ResetInserter(self.reset)(next_ack)
        connect_typed(m, queue.o, next_ack.i)
        m.d.comb += [queue.i.valid.eq(states.result), queue.i.payload.eq(states.use)]
        return next_ack.o

    def _send(self, m: Module, run: Signal, window: Any, scanner: Any, acks: Any, outgoing: Any) -> None:
        """Select the next packet: AGG, else ACK, else a retransmission.

        The fields default to those of an ACK or retransmission; an AGG overrides them.
        """
        packet = outgoing.payload.packet
        agg = Signal()
        retransmit = Signal()
        use = Signal(use_layout(self.slots))
        sent = scanner.sent

        def round_of(use: Any) -> Value:
            """Return the round of a use in flight: the current or the previous one, by its parity."""
            return Mux(use.parity == window.round[0], window.round, window.previous)

        m.d.comb += [
            self.pa.ready.eq(window.open & outgoing.ready | self.reset),
            agg.eq(self.pa.valid & window.open),
            retransmit.eq(scanner.offer.valid & run & ~agg & ~acks.valid),
            acks.ready.eq(run & ~agg & outgoing.ready),
            scanner.take.eq(retransmit & outgoing.ready),
            window.accept.eq(agg & outgoing.ready),
            outgoing.valid.eq(agg | (run & (acks.valid | scanner.offer.valid))),
        ]
        m.d.comb += [
            use.eq(Mux(retransmit, scanner.offer.use, acks.payload)),
            packet.round.eq(Mux(retransmit, round_of(scanner.offer.use), round_of(acks.payload))),
            packet.kind.eq(Mux(retransmit & ~scanner.offer.ack, Kind.AGG, Kind.ACK)),
            sent.ack.eq(~retransmit | scanner.offer.ack),
            sent.retries.eq(Mux(retransmit, scanner.offer.retries, 0)),
        ]
        with m.If(retransmit & ~scanner.offer.ack):
            m.d.comb += packet.values.eq(scanner.offer.values)
        with m.If(agg):
            m.d.comb += [
                use.index.eq(window.index),
                packet.round.eq(window.round),
                packet.kind.eq(Kind.AGG),
                packet.values.eq(self.pa.payload),
                sent.ack.eq(0),
            ]
        m.d.comb += [
            packet.slot.eq(self.job.base | use.index),
            sent.en.eq(outgoing.valid & outgoing.ready),
            sent.index.eq(use.index),
            outgoing.payload.first.eq(agg),
            scanner.keep.eq(window.accept),
            scanner.pa.eq(self.pa.payload),
        ]

    def _transmit(self, m: Module, outgoing: Any, transmitter: Any) -> None:
        """Send the selected packet as a frame; pulse an event at the last beat of an operation's first AGG."""
        sends_first = Signal()  # the frame on ``tx`` is an operation's first AGG
        m.d.comb += [
            transmitter.i.valid.eq(outgoing.valid),
            transmitter.i.payload.eq(outgoing.payload.packet),
            outgoing.ready.eq(transmitter.i.ready),
            self.events.agg.eq(sends_first & self.tx.valid & self.tx.ready & self.tx.payload.last),
        ]
        with m.If(self.reset):
            m.d.sync += sends_first.eq(0)
        with m.Elif(outgoing.valid & outgoing.ready):
            m.d.sync += sends_first.eq(outgoing.payload.first)

    def _whole_frames(self, m: Module, frames: Any) -> None:
        """Pass on the frames of ``rx``, except the rest of a frame that started before a reset."""
        rx = self.rx
        is_inside = Signal()  # the last beat did not end its frame
        will_be_inside = Mux(rx.valid, ~rx.payload.last, is_inside)
        is_old = Signal()  # the frame began before the reset
        m.d.sync += is_inside.eq(will_be_inside)
        with m.If(self.reset | (rx.valid & rx.payload.last)):
            m.d.sync += is_old.eq(self.reset & will_be_inside)
        m.d.comb += [
            frames.valid.eq(rx.valid & ~is_old),
            frames.payload.eq(rx.payload),
            rx.ready.eq(frames.ready),
        ]

    def _receive(self, m: Module, window: Any, states: Any, reorder: Any, receiver: Any) -> None:
        """Match packets with their slots; a RESULT goes to the reorder store."""
        received = receiver.o.payload
        next_packet = receiver.ahead
        slot_is_below = Signal()  # high: the slot's last use is in the current round; low: in the previous one
        is_current_round = Signal()
        is_previous_round = Signal()
        # The next operation's slot and rounds, a cycle ago, since no answer arrives that fast. A job's slots
        # have ``base`` in common, so they compare as their indices do.
        boundary = Signal.like(window.index)
        current_round = Signal(ROUND_BITS)
        previous_round = Signal(ROUND_BITS)
        m.d.comb += [
            states.ahead.index.eq(next_packet.slot & window.mask),
            states.ahead.parity.eq(next_packet.round[0]),
        ]
        m.d.sync += [
            boundary.eq(self.job.base | window.index),
            current_round.eq(window.round),
            previous_round.eq(window.previous),
            slot_is_below.eq(next_packet.slot[: len(boundary)] < boundary),
            is_current_round.eq(next_packet.round == current_round),
            is_previous_round.eq(next_packet.round == previous_round),
            reorder.ahead.eq(states.ahead),
            reorder.write.values.eq(received.packet.values),
            states.delivered.eq(self.fa.valid & self.fa.ready & ~self.reset),
            window.free.eq(states.free & ~self.reset),
        ]
        m.d.comb += [
            states.packet.valid.eq(receiver.o.valid & received.good),
            states.packet.confirm.eq(received.packet.kind[1]),  # good: RESULT, or CONFIRM where there is one
            states.packet.current.eq(Mux(slot_is_below, is_current_round, is_previous_round)),
            reorder.write.en.eq(states.result),
        ]
        for name in FrameFaults.as_shape().members:
            m.d.sync += self.counters.faults[name].eq(receiver.o.valid & received.fault[name])

    def _track(self, m: Module, window: Any, states: Any, acks: Any, scanner: Any) -> None:
        """Connect the scanner with the slots, and drive counters and events."""
        m.d.comb += [
            scanner.next_index.eq(window.index),
            scanner.round.eq(window.round),
            scanner.previous.eq(window.previous),
            scanner.oldest.eq(states.oldest),
            scanner.limit.eq(self.job.retries),
            states.scan.eq(scanner.scan),
            scanner.scanned.eq(states.scanned),
        ]
        m.d.sync += [
            self.counters.agg_sent.eq(window.accept & ~self.reset),
            self.counters.ack_sent.eq(acks.valid & acks.ready & ~self.reset),
            self.counters.retransmissions.eq(scanner.take & ~self.reset),
        ]
        m.d.comb += [
            self.counters.results.eq(states.result),
            self.counters.confirms.eq(states.confirm),
            self.counters.duplicates.eq(states.duplicate),
            self.counters.stale.eq(states.stale),
        ]
        m.d.comb += self.events.fa.eq(self.fa.valid & self.fa.ready & ~self.reset)

    def _time(self, m: Module, states: Any, scanner: Any, timer: Any) -> None:
        """Connect the timer with what is sent and answered. ACKs wait as long as AGGs.

        The round trip of an ACK is not longer: AGG also waits for the slowest worker's PA.
        """
        sent = scanner.sent
        m.d.comb += [
            timer.adaptive.eq(self.job.adaptive),
            timer.floor.eq(self.job.floor),
            timer.ceiling.eq(self.job.timeout),
            timer.sent.en.eq(sent.en),
            timer.sent.index.eq(sent.index),
            timer.sent.again.eq(sent.retries != 0),
            timer.answer.en.eq(states.result),
            timer.answer.index.eq(states.use.index),
            scanner.ceiling.eq(self.job.timeout),
            scanner.timeout.eq(timer.timeout),
            self.status.round_trip.eq(timer.mean),
            self.status.round_trip_deviation.eq(timer.deviation),
        ]
