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
from fanin.hdl.stream.lanes import chosen, ones_through, rotated
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
        # Offset of the codec's first byte in the frame, without the header's ``words``.
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

        The payload begins within a beat. Each beat is therefore rotated, its first payload byte to lane 0, into
        ``newer``, and moves to ``older`` with the next one. A beat of the payload takes its low lanes from
        ``older`` and its high lanes from ``newer``. ``step`` moves both. ``due``: they hold a beat of the
        payload, which must be ``sent`` before it is overwritten.
        """
        m = Module()
        m.submodules.slice = register = RegisterSlice(shape=self.payload.p.shape())
        connect_typed(m, register.o, wiring.flipped(self.payload))
        w = _Work()
        self._sequence(m, w)
        newer = self._send(m, w, register.i)
        if self.receive:
            self._state_length(m, w, newer)
        self._record(m, w)
        m.d.comb += [
            w.start.eq(self.header.p.words + self._place // WORD_BYTES),
            # Also if no beat is due, so that it depends only on registers.
            w.may_step.eq(register.i.ready & ~w.judging),
            w.taken.eq(self.i.valid & self.i.ready),
            w.sent.eq(w.due & register.i.ready),
        ]
        return m

    def _sequence(self, m: Module, w: _Work) -> None:
        """Build the states, and track whether ``newer`` and ``older`` hold a beat of the payload."""
        with m.FSM():
            with m.State("PREPARE"):
                m.d.comb += w.prepare.eq(self.header.valid & (~self.length.valid if self.receive else 1))
                with m.If(w.prepare):
                    m.d.sync += [w.steps.eq(0), w.due.eq(0), w.flushed.eq(0)]
                    m.next = "TAKE"
            with m.State("TAKE"):
                m.d.comb += [self.i.ready.eq(w.may_step), w.step.eq(w.taken)]
                with m.If(w.taken & self.i.p.last):
                    m.next = "FLUSH"
            with m.State("FLUSH"):
                m.d.comb += w.step.eq(w.may_step)
                with m.If(w.may_step):
                    m.d.sync += w.flushed.eq(1)
                    m.next = "FINISH"
            with m.State("FINISH"):
                m.d.comb += [
                    self.record.valid.eq(~w.due),
                    self.header.ready.eq(self.record.valid & self.record.ready),
                ]
                with m.If(self.header.ready):
                    m.next = "PREPARE"
        with m.If(w.step):
            m.d.sync += [w.due.eq(w.steps.bit_select(w.first, 1)), w.steps.eq(Cat(1, w.steps))]
        with m.Elif(w.sent):
            m.d.sync += w.due.eq(0)
        with m.If(~w.remaining | w.sent & w.final):
            m.d.sync += w.due.eq(0)

    def _send(self, m: Module, w: _Work, o: Any) -> Signal:
        """Build the payload's beats, each from two of the frame; return ``newer``."""
        newer, older = (Signal(BEAT_BITS, name=name, reset_less=True) for name in ("newer", "older"))
        older_lanes = Signal(BEAT_BYTES, reset_less=True)  # lanes of a payload beat that come from ``older``
        rotation = Signal(3, reset_less=True)
        rest = Signal(16 - LANE_BITS, reset_less=True)  # beats of the payload after the next one
        at_last = Signal(reset_less=True)  # ``rest`` is 0
        tail = Signal(BEAT_BYTES, reset_less=True)  # ``keep`` of the last beat
        odd = self._place % WORD_BYTES
        m.d.comb += w.final.eq(at_last | w.flushed)
        with m.If(w.step):
            lowered = self.i.p.data.rotate_right(8 * odd)
            m.d.sync += [newer.eq(rotated(lowered, rotation, unit=8 * WORD_BYTES)), older.eq(newer)]
        m.d.comb += [
            o.valid.eq(w.due),
            o.p.data.eq(chosen(older_lanes, older, newer)),
            o.p.keep.eq(Mux(w.final, tail, -1)),
            o.p.last.eq(w.final),
        ]
        with m.If(w.sent):
            m.d.sync += [rest.eq(rest - 1), at_last.eq(rest == 1), w.record.cut.eq(1)]
            with m.If(w.final):
                m.d.sync += w.remaining.eq(0)
        with m.If(w.prepare):
            m.d.sync += [
                w.first.eq(w.start[3:]),
                rotation.eq(-w.start[:3]),
                older_lanes.eq(ones_through(Cat(Const(WORD_BYTES - 1 - odd, 2), ~w.start[:3]), BEAT_BYTES)),
                tail.eq(ones_through(self.header.p.span[:LANE_BITS], BEAT_BYTES)),
                rest.eq(self.header.p.span[LANE_BITS:]),
                at_last.eq(self.header.p.span[LANE_BITS:] == 0),
                w.remaining.eq(self.header.p.compressible & ~self.header.p.nothing),
                w.record.cut.eq(0),
            ]
        return newer

    def _state_length(self, m: Module, w: _Work, newer: Signal) -> None:
        """Take the stated length from the end of the rotated beat before the payload, and judge it.

        Judging takes two cycles without a step: the length is first in ``newer``, then in ``stated``, and
        compared.
        """
        header, stated = self.header.p, w.record.stated
        stage = Signal(2)  # one bit each: the length is in ``newer``, in ``stated``
        longest = Signal(16, reset_less=True)  # longest payload whose frame fits
        length = swap_bytes(newer[-8 * LENGTH_BYTES :])
        fits = Signal(reset_less=True)
        has_length = Signal()  # the beat on ``i`` has the length
        in_third = Signal(reset_less=True)  # the length is in the frame's third beat; else in the second
        m.d.sync += [
            in_third.eq(w.start > 2 * BEAT_BYTES // WORD_BYTES),
            stage.eq(Cat(w.taken & has_length, stage[0])),
            w.judging.eq(w.taken & has_length | stage[0]),
            fits.eq((length > header.payload) & (length <= longest)),
            longest.eq(self.max_frame - TRANSPORT_START - WORD_BYTES * header.words),
        ]
        with m.If(stage[0]):
            m.d.sync += stated.eq(length)
        with m.If(stage[1] & ~fits):
            m.d.sync += w.remaining.eq(0)
        m.d.comb += [
            has_length.eq(w.remaining & Mux(in_third, w.steps[1] & ~w.steps[2], w.steps[0] & ~w.steps[1])),
            self.length.p.eq(stated),
        ]
        with m.If(self.length.ready):
            m.d.sync += self.length.valid.eq(0)
        with m.If(w.sent & ~w.record.cut):
            m.d.sync += self.length.valid.eq(1)

    def _record(self, m: Module, w: _Work) -> None:
        """Record the frame's length and its end."""
        beat, record, end = self.i.p, w.record, self.header.p.end
        beats = Signal(range(beats_of(self.max_frame) + 1))
        keep = Signal(BEAT_BYTES, reset_less=True)
        count = Signal(range(BEAT_BYTES + 1), reset_less=True)
        with m.If(w.taken):
            m.d.sync += [
                beats.eq(beats + 1),
                keep.eq(beat.keep),
                record.bad.eq(beat.error & beat.last),
            ]
            with m.If(beats == end[LANE_BITS:]):
                m.d.sync += record.whole.eq(beat.keep.bit_select(end[:LANE_BITS], 1))
        with m.If(w.prepare):
            m.d.sync += [beats.eq(0), record.whole.eq(0)]
        m.d.sync += count.eq(kept_bytes(keep))
        full = count[LANE_BITS]
        m.d.comb += [
            self.record.p.eq(record),
            self.record.p.header.eq(self.header.p),
            self.record.p.bytes.eq(Cat(count[:LANE_BITS], (beats - ~full)[: len(beats)])),
        ]


class _Work:
    """State of the cutter within a frame."""

    def __init__(self) -> None:
        self.start = Signal(5)  # whole words before the codec's first byte
        self.first = Signal(2)  # index of the beat with that byte
        self.steps = Signal(MAX_START + 1)  # a one for every step so far, up to four
        self.remaining = Signal()  # a part of the payload has not been sent
        self.due = Signal()  # ``newer`` and ``older`` hold a beat of the payload to send
        self.final = Signal()  # that beat is the payload's last
        self.flushed = Signal()  # the frame's last beat has passed ``newer``
        self.judging = Signal()  # receiver: the stated length is being judged
        self.may_step = Signal()  # ``newer`` and ``older`` may be overwritten
        self.prepare = Signal()  # a frame begins
        self.taken = Signal()  # a beat of the frame is taken
        self.step = Signal()  # ``newer`` and ``older`` advance
        self.sent = Signal()  # a beat of the payload leaves them
        self.record = Signal(Record)  # without its header and bytes
