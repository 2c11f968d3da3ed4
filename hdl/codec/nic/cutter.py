"""Cutter of a frame's payload."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import MAX_FRAME
from fanin.hdl.codec.nic.shapes import (
    BEAT_BITS,
    BEAT_BYTES,
    LANE_BITS,
    LENGTH_BYTES,
    TRANSPORT_START,
    WORD_BYTES,
    Header,
    Record,
    beats_of,
    check_max_frame,
)
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.lanes import ones_through, rotated, select_lanes
from fanin.hdl.stream.packet import kept_bytes, packet_stream

LENGTH_STREAM_BITS = 32
MAX_START = 3  # index of the last beat in which a payload can begin


class PayloadCutter(wiring.Component):
    """Cutter that sends the payload of compressible frames to the codec, and a record of every frame.

    A receiver's payload begins with the stated length, which is removed and given to the decompressor on
    ``length``. The stated length is valid if it exceeds the received payload and the restored frame fits
    ``max_frame``. If it is invalid, or no data follow it, the payload is not cut out. A frame that ends before
    its payload does yields the part that it has. Bytes outside ``keep`` are undefined.

    Members
    -------
    ``i`` : In, packet stream of 256 bits with ``error``
        Frames.
    ``header`` : In, stream of Header
        Headers of the same frames, in order.
    ``payload`` : Out, packet stream of 256 bits
        Payloads for the codec, at least one byte each.
    ``length`` : Out, stream of 32 bits
        Receiver only: decompressed bytes of each frame on ``payload``.
    ``record`` : Out, stream of Record
        Record of each frame, after its ``payload``.

    Parameters
    ----------
    ``receive`` : bool
        True in the receiver.
    ``max_frame`` : int
        Bytes of the longest frame, 128 to 16384.

    Latency
    -------
    2 cycles from a beat to the payload's beat that it completes. One beat a cycle, and 4 cycles more a frame;
    in the receiver 6, two of them to judge the stated length.

    Source
    ------
    INCEPTIONN, section VI-A; docs/systems/inceptionn-nic.md.
    """

    def __init__(self, *, receive: bool, max_frame: int = MAX_FRAME):
        check_max_frame(max_frame)
        self.receive = receive
        self.max_frame = max_frame
        # Offset of the codec's first byte in the frame, not counting the TCP or UDP header (``words``).
        self._place = TRANSPORT_START + (LENGTH_BYTES if receive else 0)
        members: dict[str, Any] = {
            "i": In(packet_stream(BEAT_BITS, error=True)),
            "header": In(stream.Signature(Header)),
            "payload": Out(packet_stream(BEAT_BITS)),
            "record": Out(stream.Signature(Record)),
        }
        if receive:
            members["length"] = Out(stream.Signature(LENGTH_STREAM_BITS))
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """PREPARE a frame, TAKE its beats, FLUSH the last through the registers, FINISH with its record.

        The payload begins within a beat. Each beat is therefore rotated, the first payload byte to lane 0, into
        ``current``, and moves to ``previous`` with the next one. A beat of the payload takes its low lanes from
        ``previous`` and its high lanes from ``current``. ``step`` moves both. ``due``: they hold a beat of the
        payload, which must be ``sent`` before it is overwritten.
        """
        m = Module()
        m.submodules.slice = register = RegisterSlice(shape=self.payload.p.shape())
        connect_typed(m, register.o, wiring.flipped(self.payload))
        state = _FrameState()
        self._sequence(m, state)
        current = self._send(m, state, register.i)
        if self.receive:
            self._state_length(m, state, current)
        self._record(m, state)
        m.d.comb += [
            state.start.eq(self.header.p.words + self._place // WORD_BYTES),
            # Also if no beat is due, so that it depends only on registers.
            state.may_step.eq(register.i.ready & ~state.checking),
            state.transfer.eq(self.i.valid & self.i.ready),
            state.sent.eq(state.due & register.i.ready),
        ]
        return m

    def _sequence(self, m: Module, state: _FrameState) -> None:
        """Build the states, and track whether ``current`` and ``previous`` hold a beat of the payload."""
        with m.FSM():
            with m.State("PREPARE"):
                m.d.comb += state.prepare.eq(self.header.valid & (~self.length.valid if self.receive else 1))
                with m.If(state.prepare):
                    m.d.sync += [state.steps.eq(0), state.due.eq(0), state.flushed.eq(0)]
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += [self.i.ready.eq(state.may_step), state.step.eq(state.transfer)]
                with m.If(state.transfer & self.i.p.last):
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.comb += state.step.eq(state.may_step)
                with m.If(state.may_step):
                    m.d.sync += state.flushed.eq(1)
                    m.next = "FINISH"
            with m.State("FINISH"):
                m.d.comb += [
                    self.record.valid.eq(~state.due),
                    self.header.ready.eq(self.record.valid & self.record.ready),
                ]
                with m.If(self.header.ready):
                    m.next = "PREPARE"
        with m.If(state.step):
            m.d.sync += [
                state.due.eq(state.steps.bit_select(state.first, 1)),
                state.steps.eq(Cat(1, state.steps)),
            ]
        with m.Elif(state.sent):
            m.d.sync += state.due.eq(0)
        with m.If(~state.remaining | state.sent & state.final):
            m.d.sync += state.due.eq(0)

    def _send(self, m: Module, state: _FrameState, o: Any) -> Signal:
        """Build the payload's beats, each from two of the frame; return ``current``."""
        current, previous = (Signal(BEAT_BITS, name=name, reset_less=True) for name in ("current", "previous"))
        previous_lanes = Signal(BEAT_BYTES, reset_less=True)  # lanes of a payload beat from ``previous``
        rotation = Signal(3, reset_less=True)
        beats_left = Signal(16 - LANE_BITS, reset_less=True)  # beats of the payload after the next one
        at_last = Signal(reset_less=True)  # ``beats_left`` is 0
        tail = Signal(BEAT_BYTES, reset_less=True)  # ``keep`` of the last beat
        byte_offset = self._place % WORD_BYTES
        m.d.comb += state.final.eq(at_last | state.flushed)
        with m.If(state.step):
            lowered = self.i.p.data.rotate_right(8 * byte_offset)
            m.d.sync += [current.eq(rotated(lowered, rotation, unit=8 * WORD_BYTES)), previous.eq(current)]
        m.d.comb += [
            o.valid.eq(state.due),
            o.p.data.eq(select_lanes(previous_lanes, previous, current)),
            o.p.keep.eq(Mux(state.final, tail, -1)),
            o.p.last.eq(state.final),
        ]
        with m.If(state.sent):
            m.d.sync += [beats_left.eq(beats_left - 1), at_last.eq(beats_left == 1), state.record.cut.eq(1)]
            with m.If(state.final):
                m.d.sync += state.remaining.eq(0)
        with m.If(state.prepare):
            m.d.sync += [
                state.first.eq(state.start[3:]),
                rotation.eq(-state.start[:3]),
                previous_lanes.eq(
                    ones_through(Cat(Const(WORD_BYTES - 1 - byte_offset, 2), ~state.start[:3]), BEAT_BYTES)
                ),
                tail.eq(ones_through(self.header.p.span[:LANE_BITS], BEAT_BYTES)),
                beats_left.eq(self.header.p.span[LANE_BITS:]),
                at_last.eq(self.header.p.span[LANE_BITS:] == 0),
                state.remaining.eq(self.header.p.compressible & ~self.header.p.empty),
                state.record.cut.eq(0),
            ]
        return current

    def _state_length(self, m: Module, state: _FrameState, current: Signal) -> None:
        """Take the stated length from the end of the rotated beat before the payload, and check it.

        The check takes two cycles without a step: the length is first in ``current``, then in ``stated``, and
        compared.
        """
        header, stated = self.header.p, state.record.stated
        stage = Signal(2)  # one bit each: the length is in ``current``, in ``stated``
        longest = Signal(16, reset_less=True)  # longest payload whose frame fits
        length = swap_bytes(current[-8 * LENGTH_BYTES :])
        fits = Signal(reset_less=True)
        has_length = Signal()  # the beat on ``i`` has the length
        in_third = Signal(reset_less=True)  # the length is in the frame's third beat; else in the second
        m.d.sync += [
            in_third.eq(state.start > 2 * BEAT_BYTES // WORD_BYTES),
            stage.eq(Cat(state.transfer & has_length, stage[0])),
            state.checking.eq(state.transfer & has_length | stage[0]),
            fits.eq((length > header.payload) & (length <= longest)),
            longest.eq(self.max_frame - TRANSPORT_START - WORD_BYTES * header.words),
        ]
        with m.If(stage[0]):
            m.d.sync += stated.eq(length)
        with m.If(stage[1] & ~fits):
            m.d.sync += state.remaining.eq(0)
        m.d.comb += [
            has_length.eq(
                state.remaining
                & Mux(in_third, state.steps[1] & ~state.steps[2], state.steps[0] & ~state.steps[1])
            ),
            self.length.p.eq(stated),
        ]
        with m.If(self.length.ready):
            m.d.sync += self.length.valid.eq(0)
        with m.If(state.sent & ~state.record.cut):
            m.d.sync += self.length.valid.eq(1)

    def _record(self, m: Module, state: _FrameState) -> None:
        """Record the frame's length and its end."""
        beat, record, end = self.i.p, state.record, self.header.p.end
        beats = Signal(range(beats_of(self.max_frame) + 1))
        keep = Signal(BEAT_BYTES, reset_less=True)
        count = Signal(range(BEAT_BYTES + 1), reset_less=True)
        with m.If(state.transfer):
            m.d.sync += [
                beats.eq(beats + 1),
                keep.eq(beat.keep),
                record.bad.eq(beat.error & beat.last),
            ]
            with m.If(beats == end[LANE_BITS:]):
                m.d.sync += record.whole.eq(beat.keep.bit_select(end[:LANE_BITS], 1))
        with m.If(state.prepare):
            m.d.sync += [beats.eq(0), record.whole.eq(0)]
        m.d.sync += count.eq(kept_bytes(keep))
        full = count[LANE_BITS]
        m.d.comb += [
            self.record.p.eq(record),
            self.record.p.header.eq(self.header.p),
            self.record.p.bytes.eq(Cat(count[:LANE_BITS], (beats - ~full)[: len(beats)])),
        ]


class _FrameState:
    """State of the cutter within a frame."""

    def __init__(self) -> None:
        self.start = Signal(5)  # whole words before the codec's first byte
        self.first = Signal(2)  # index of the beat with that byte
        self.steps = Signal(MAX_START + 1)  # a one for every step so far, up to four
        self.remaining = Signal()  # a part of the payload has not been sent
        self.due = Signal()  # ``current`` and ``previous`` hold a beat of the payload to send
        self.final = Signal()  # that beat is the payload's last
        self.flushed = Signal()  # the frame's last beat has passed ``current``
        self.checking = Signal()  # receiver: the stated length is being checked
        self.may_step = Signal()  # ``current`` and ``previous`` may be overwritten
        self.prepare = Signal()  # a frame begins
        self.transfer = Signal()  # a beat of the frame is taken
        self.step = Signal()  # ``current`` and ``previous`` advance
        self.sent = Signal()  # a beat of the payload leaves them
        self.record = Signal(Record)  # without its header and bytes
