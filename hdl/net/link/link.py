"""Reliable link between neighbours: each frame exactly once and in order."""

from typing import Any

from amaranth import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.link.acknowledger import Acknowledger
from fanin.hdl.net.link.buffer import ReceiveBuffer, ReplayBuffer
from fanin.hdl.net.link.job import (
    LinkCounters,
    LinkFailure,
    LinkHeard,
    LinkStatus,
    LinkTiming,
    check_link,
    difference_layout,
    job_layout,
    payload_beat,
    told_layout,
)
from fanin.hdl.net.link.receive import LinkReceiver
from fanin.hdl.net.link.transmit import LinkTransmitter
from fanin.hdl.net.link.window import SendWindow
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ethernet import Encap
from fanin.wire.link import LinkFormat, LinkKind


class ReliableLink(wiring.Component):
    """Reliable link: sends frames to the next end, receives from the previous one, exactly once and in order.

    On a ring these are two neighbours; between two ends both are the peer. A frame from ``tx`` is stored until
    the next end has acknowledged it, and sent while that end has room. A frame from the previous end is
    delivered on ``rx`` when it is complete and correct. Before ``start``, and after a failure, frames from the
    network are dropped and ``tx`` is not ready. A link without work continues to answer until ``reset``, since
    the previous end may have missed the last acknowledgement.

    Members
    -------
    ``tx`` : In, stream of :func:`~fanin.hdl.net.link.job.payload_beat`
        Payloads for the next end, at most ``frame_beats`` beats each. Ready within a frame. Not ready for one
        cycle between frames, which the header takes on ``mac_tx``, and while ``replay_frames`` are
        unacknowledged.
    ``rx`` : Out, stream of :func:`~fanin.hdl.net.link.job.payload_beat`
        Payloads from the previous end. Room is granted again when a frame's last beat leaves.
    ``mac_tx`` : Out, packet stream of ``data_width`` bits
        Frames to the MAC; no pauses within a frame; all beats are whole.
    ``is_control`` : Out, 1
        The frame that waits on ``mac_tx`` is an ACK, NAK or PROBE.
    ``mac_rx`` : In, packet stream of ``data_width`` bits with ``error``
        Frames from the MAC. Always ready, since a MAC does not wait.
    ``job`` : In, :func:`~fanin.hdl.net.link.job.job_layout`
        Current job.
    ``start`` : In, 1
        Pulse, after a reset: start the job. It waits for a frame of the last job that is still being sent.
    ``watch`` : In, 1
        The user waits for frames from the previous end: send a PROBE every ``timeout`` to check the next end,
        even if it owes no acknowledgement. A failed end thus ends the job of all ends.
    ``refuse`` : In, 1
        Pulse: the user rejects data from ``rx``. The job ends with MISMATCH.
    ``hold`` : In, 1
        Start no DATA frame, since other senders share the MAC; control frames are still started.
    ``told`` : In, :func:`~fanin.hdl.net.link.job.told_layout`
        Fields of the user in this end's answers.
    ``news`` : In, 1
        Pulse: send an answer for the current ``told``.
    ``peer_told`` : Out, ``valid`` and the members of ``told``
        Fields of the peer's user; ``valid``: an answer of the next end has arrived.
    ``reset`` : In, 1
        Pulse: drop all state; sequence number ``first_sequence`` is next. A beat that waits on ``rx`` is
        withdrawn, so its consumer must be reset as well. A frame being sent is finished.
    ``status`` : Out, LinkStatus
        State of the link.
    ``differs`` : Out, :func:`~fanin.hdl.net.link.job.difference_layout`
        Reasons of a MISMATCH that the link itself found; pulses with ``status.failed``.
    ``heard`` : Out, LinkHeard
        Pulses for frames of the neighbours.
    ``counters`` : Out, LinkCounters
        Pulses for counters.

    Parameters
    ----------
    ``form`` : LinkFormat
        Header format, with the roles of its fields.
    ``encap`` : Encap
        Encapsulation: raw Ethernet (the default) or UDP.
    ``data_width`` : int, bits, a power of two from 32 to 512
        Bits of a beat; 512 by default.
    ``frame_beats`` : int, 1 to 4096
        Maximum beats of a payload: the frame's words and the words that a codec may add.
    ``buffer_frames`` : int, a power of two, 2 to 256
        Received frames that ``rx`` has not taken yet; 32 by default.
    ``replay_frames`` : int, a power of two, 2 to 256
        Frames taken on ``tx`` that are not acknowledged yet; 32 by default.
    ``published`` : bool
        Send nothing again: a missing frame ends the job with LOSS. False by default.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Sequence number of the first frame, the same at all nodes; 0 except in tests.

    Latency
    -------
    - Last beat of a payload transferred on ``tx`` to the frame's first beat transferred on ``mac_tx``: 5
      cycles.
    - Last beat of a frame transferred on ``mac_rx`` to its payload's first beat on ``rx``: 4 cycles.
    - A payload of n beats becomes a frame of n beats plus those of its header. The header takes 1 beat at 512
      bits, else the beats of 32 bytes, or of 64 bytes with UDP.
    - Every stream moves a beat in every cycle, across frames, with two exceptions. ``tx`` pauses as stated.
      ``mac_tx`` at 512 bits pauses for a cycle after an ACK, NAK or PROBE, and between payloads of one beat for
      an ACK or NAK that arrives.

    Source
    ------
    docs/systems/link.md; AI Smart NIC, section IV-A.
    """

    def __init__(
        self,
        *,
        form: LinkFormat,
        frame_beats: int,
        encap: Encap = Encap.L2,
        data_width: int = 512,
        buffer_frames: int = 32,
        replay_frames: int = 32,
        published: bool = False,
        first_sequence: int = 0,
    ):
        check_link(
            data_width=data_width,
            frame_beats=frame_beats,
            buffer_frames=buffer_frames,
            replay_frames=replay_frames,
            first_sequence=first_sequence,
        )
        self.form = form
        self.encap = encap
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.buffer_frames = buffer_frames
        self.replay_frames = replay_frames
        self.published = published
        self.first_sequence = first_sequence
        beats = stream.Signature(payload_beat(form, data_width))
        super().__init__(
            {
                "tx": In(beats),
                "rx": Out(beats),
                "mac_tx": Out(packet_stream(data_width)),
                "is_control": Out(1),
                "mac_rx": In(packet_stream(data_width, error=True)),
                "job": In(job_layout(form, encap)),
                "start": In(1),
                "watch": In(1),
                "refuse": In(1),
                "hold": In(1),
                "told": In(told_layout(form)),
                "news": In(1),
                "peer_told": Out(data.StructLayout({"valid": 1, **told_layout(form).members})),
                "reset": In(1),
                "status": Out(LinkStatus),
                "differs": Out(difference_layout(form)),
                "heard": Out(LinkHeard),
                "counters": Out(LinkCounters),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Reset all parts with ``reset`` except the transmitter, which may be within a frame."""
        m = Module()
        frames: dict[str, Any] = {"form": self.form, "frame_beats": self.frame_beats}
        beats: dict[str, Any] = {**frames, "data_width": self.data_width}
        sequence: dict[str, Any] = {"first_sequence": self.first_sequence}
        kept: dict[str, Any] = {"replay_frames": self.replay_frames}
        transmitter = LinkTransmitter(**beats, **kept, encap=self.encap)
        received: dict[str, Any] = {**beats, **sequence, "buffer_frames": self.buffer_frames}
        receiver = LinkReceiver(**received, encap=self.encap, published=self.published)
        buffer = ReceiveBuffer(**received)
        replay = ReplayBuffer(**beats, **kept, **sequence)
        window = SendWindow(**frames, **kept, **sequence, published=self.published)
        acknowledger = Acknowledger(buffer_frames=self.buffer_frames, **sequence)
        m.submodules.transmitter = transmitter
        for name, part in (
            ("receiver", receiver),
            ("buffer", buffer),
            ("replay", replay),
            ("window", window),
            ("acknowledger", acknowledger),
        ):
            m.submodules[name] = ResetInserter(self.reset)(part)
        for port, inner in (self.tx, replay.i), (self.mac_rx, receiver.i):
            connect_typed(m, wiring.flipped(port), inner)
        for inner, port in (buffer.o, self.rx), (transmitter.o, self.mac_tx):
            connect_typed(m, inner, wiring.flipped(port))
        m.d.comb += [part.job.eq(self.job) for part in (transmitter, receiver)]
        times = LinkTiming.as_shape().members
        m.d.comb += [part.timing[n].eq(self.job[n]) for part in (window, acknowledger) for n in times]

        m.d.comb += self.is_control.eq(transmitter.is_control)
        running = self._run(m, transmitter.busy, window, receiver)
        m.d.comb += [window.running.eq(running), window.watch.eq(self.watch), receiver.running.eq(running)]
        self._send(m, running, transmitter, window, replay)
        self._receive(m, receiver, buffer, acknowledger, window)
        self._control(m, running, transmitter, window, acknowledger, receiver)
        return m

    def _run(self, m: Module, busy: Value, window: Any, receiver: Any) -> Signal:
        """Run from ``start`` until a failure."""
        status, verdict = self.status, receiver.verdict
        starting = Signal()
        m.d.comb += status.idle.eq(window.idle & ~busy)
        with m.If(self.start):
            m.d.sync += starting.eq(1)
        with m.If(starting & ~busy & ~status.failed):
            m.d.sync += [starting.eq(0), status.running.eq(1)]
        impossible = window.impossible & status.running
        causes = [
            (window.failed, LinkFailure.TIMEOUT),
            (verdict.mismatch | impossible | (self.refuse & status.running), LinkFailure.MISMATCH),
        ]
        of_frame = receiver.differs & verdict.mismatch.replicate(len(receiver.differs))
        m.d.sync += self.differs.eq(Cat(of_frame, impossible))
        if self.published:
            causes.append((verdict.lost, LinkFailure.LOSS))
        for event, cause in causes:
            with m.If(event):
                m.d.sync += [status.running.eq(0), status.failed.eq(1), status.cause.eq(cause)]
        with m.If(self.reset):
            m.d.sync += [starting.eq(0), status.running.eq(0), status.failed.eq(0)]
            m.d.sync += status.cause.eq(LinkFailure.NONE)
        return status.running

    def _send(self, m: Module, running: Signal, transmitter: Any, window: Any, replay: Any) -> None:
        """Send DATA from the replay buffer when the window permits."""
        m.d.comb += [
            replay.can_take.eq(window.can_take),
            replay.number.eq(window.number),
            replay.read.eq(transmitter.read),
            transmitter.data.eq(replay.data),
            window.taken.eq(replay.taken),
            window.record.eq(replay.record),
            transmitter.offer.eq(window.offer),
            transmitter.offer.valid.eq(window.offer.valid & running & ~self.hold),
            window.sent.eq(transmitter.data_taken),
        ]
        m.d.sync += [
            self.counters.sent.eq(transmitter.data_taken & ~window.sent_before),
            self.counters.retransmitted.eq(transmitter.data_taken & window.sent_before),
        ]

    def _receive(self, m: Module, receiver: Any, buffer: Any, acknowledger: Any, window: Any) -> None:
        """Pass payloads to the buffer, and answers to the window; report frames that need an answer."""
        verdict = Signal.like(receiver.verdict)
        counters = self.counters
        m.d.sync += verdict.eq(receiver.verdict)
        with m.If(self.reset):  # the acknowledger must not see frames of the last job
            m.d.sync += verdict.eq(0)
        m.d.comb += [
            acknowledger.consumed.eq(buffer.consumed),
            buffer.open.eq(receiver.open),
            buffer.write.eq(receiver.write),
            buffer.keep.eq(receiver.keep),
            buffer.advance.eq(receiver.advance),
            receiver.room.eq(buffer.room),
            window.answer.eq(receiver.answer),
            acknowledger.received.eq(verdict.received),
            acknowledger.asked.eq(verdict.probe | verdict.duplicate | verdict.urgent | self.news),
            acknowledger.gap.eq(verdict.gap),
            counters.received.eq(verdict.received),
            counters.bad_fcs.eq(verdict.bad_fcs),
            counters.foreign.eq(verdict.foreign),
            counters.duplicates.eq(verdict.duplicate),
            counters.out_of_order.eq(verdict.ahead | verdict.no_room),
        ]
        m.d.comb += self.peer_told.valid.eq(receiver.answer.valid)
        m.d.comb += [self.peer_told[name].eq(receiver.told[name]) for name in self.form.told]
        of_previous = verdict.received | verdict.duplicate | verdict.ahead | verdict.no_room | verdict.probe
        m.d.sync += self.heard.eq(Cat(of_previous, receiver.answer.valid, receiver.stranger))

    def _control(
        self, m: Module, running: Signal, transmitter: Any, window: Any, acknowledger: Any, receiver: Any
    ) -> None:
        """Send NAK before ACK before PROBE.

        All carry the next expected number and the bitmap, which a PROBE's receiver ignores. Nothing is sent
        while the expected number is ``behind``: it would be reported as missing, and sent again for nothing.

        In published mode a PROBE carries the number of the first unsent frame.
        """
        control, counters = transmitter.control, self.counters
        nak = acknowledger.nak
        answer = acknowledger.ack | nak
        chosen = transmitter.control_taken
        taken = Signal()  # a control frame was taken a cycle ago; its ``answer`` or ``probe`` falls only now
        m.d.comb += [
            control.valid.eq(running & ~taken & ~receiver.behind & (answer | window.probe)),
            control.kind.eq(Mux(nak, LinkKind.NAK, Mux(answer, LinkKind.ACK, LinkKind.PROBE))),
            control.sequence.eq(Mux(answer | (not self.published), receiver.expected, window.unsent)),
            control.limit.eq(acknowledger.limit),
            control.arrived.eq(receiver.arrived),
            transmitter.told.eq(self.told),
            acknowledger.answered.eq(counters.acks | counters.naks),
            window.probed.eq(counters.probes),
        ]
        m.d.sync += [
            taken.eq(chosen),
            counters.naks.eq(chosen & nak),
            counters.acks.eq(chosen & answer & ~nak),
            counters.probes.eq(chosen & ~answer),
        ]
        with m.If(self.reset):  # a frame of the last job is no answer and no probe of the next one
            m.d.sync += [taken.eq(0), counters.naks.eq(0), counters.acks.eq(0), counters.probes.eq(0)]
