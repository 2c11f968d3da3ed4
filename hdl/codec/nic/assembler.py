"""Assembler that joins headers and payload of a frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import TOS_COMPRESSIBLE, TOS_RAW
from fanin.hdl.codec.nic.shapes import (
    BEAT,
    BEAT_BITS,
    BEAT_BYTES,
    IP_START,
    LANE_BITS,
    LENGTH_BYTES,
    TRANSPORT_START,
    WORD_BYTES,
    Assembly,
    Kind,
)
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.lanes import ones_through, rotated, select_lanes
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ethernet import IPV4, TCP, UDP
from fanin.wire.fields import Field


class FrameAssembler(wiring.Component):
    """Assembler of frames according to jobs, from the original frame and the codec's payload.

    Frame and payload must be completely present when their job arrives, so that no beat pauses within a frame.
    Unused beats are discarded meanwhile. A payload's beats are zero after its last byte; these zeros become the
    padding of a short frame.

    Members
    -------
    ``job`` : In, stream of Assembly
        Jobs, one for each frame.
    ``frame`` : In, stream of beats
        Original frames.
    ``payload`` : In, stream of beats
        Payloads of the codec, for jobs with ``cut``.
    ``o`` : Out, packet stream of 256 bits
        Assembled frames.

    Parameters
    ----------
    ``receive`` : bool
        True in the receiver, whose output frames have no stated length before the payload.

    Latency
    -------
    4 cycles from ``job`` to the first beat on ``o``; then one beat a cycle, 3 cycles more a frame. A frame
    takes at least as many cycles as the longer of ``frame`` and ``payload`` has beats.

    Source
    ------
    INCEPTIONN, section VI-A; docs/systems/inceptionn-nic.md.
    """

    def __init__(self, *, receive: bool):
        self.receive = receive
        # Offset of the codec's first byte in the frame, not counting the TCP or UDP header (``words``).
        self._place = TRANSPORT_START + (0 if receive else LENGTH_BYTES)
        super().__init__(
            {
                "job": In(stream.Signature(Assembly)),
                "frame": In(stream.Signature(BEAT)),
                "payload": In(stream.Signature(BEAT)),
                "o": Out(packet_stream(BEAT_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """LOAD a job, RUN one beat at a time, END when both inputs are past the frame.

        A step takes a beat. A beat of the frame goes into ``patched``. A beat of the codec is rotated to the
        lane of its first byte and goes into ``aligned``. With the next step the beat moves to ``previous`` and
        out. If a beat of the frame follows, all lanes of ``previous`` go out. If a beat of the codec follows,
        only ``header_lanes`` of ``previous`` go out; the other lanes come from the following beat.
        """
        m = Module()
        m.submodules.slice = register = RegisterSlice(shape=self.o.p.shape())
        connect_typed(m, register.o, wiring.flipped(self.o))
        state = _FrameState(register.i.ready)
        m.d.comb += state.start.eq(self.job.p.words + self._place // WORD_BYTES)
        self._sequence(m, state)
        self._take(m, state)
        self._join(m, state, register.i)
        return m

    def _sequence(self, m: Module, state: _FrameState) -> None:
        """Make one step for every output beat, and one more, which outputs the last beat."""
        job = self.job.p
        beats_left = Signal(len(job.final) - LANE_BITS)  # steps after the next one, not counting the first
        with m.FSM():
            with m.State("LOAD"):
                m.d.comb += state.load.eq(self.job.valid & ~state.full)
                m.d.sync += [beats_left.eq(job.final[LANE_BITS:]), state.number.eq(0)]
                with m.If(state.load):
                    m.next = "RUN"
                    with m.If(job.kind == Kind.DROP):
                        m.next = "END"
            with m.State("RUN"):
                m.d.comb += [
                    state.running.eq(1),
                    state.step.eq(state.advance),
                    state.final.eq((state.number != 0) & (beats_left == 0)),
                ]
                with m.If(state.step):
                    m.d.sync += state.number.eq(Mux(state.number == 3, 3, state.number + 1))
                    with m.If(state.number != 0):
                        m.d.sync += beats_left.eq(beats_left - 1)
                    with m.If(state.final):
                        m.next = "END"
            with m.State("END"):
                m.d.comb += [
                    state.end.eq(1),
                    self.job.ready.eq(state.frame_done & state.payload_done),
                ]
                with m.If(self.job.ready):
                    m.next = "LOAD"

    def _take(self, m: Module, state: _FrameState) -> None:
        """Take the frame's beats up to the last one with headers, then the codec's; discard the others."""
        job = self.job.p
        max_words_in_two = (2 * BEAT_BYTES - self._place % WORD_BYTES) // WORD_BYTES
        three_beats = state.start > max_words_in_two  # headers and length occupy three beats; else two
        with m.If(state.load):
            m.d.sync += [
                state.coded.eq(job.kind == Kind.CODED),
                state.from_frame.eq(1),
                state.frame_done.eq(0),
                state.payload_done.eq(~job.cut),
            ]
        with m.Elif(state.step):
            m.d.sync += state.from_frame.eq(
                ~state.coded | (state.number == 0) | (state.number == 1) & three_beats
            )
        m.d.comb += [
            state.last_header.eq(state.coded & (state.number == Mux(three_beats, 2, 1))),
            self.frame.ready.eq(
                ~state.frame_done
                & (state.step & state.from_frame | state.running & ~state.from_frame | state.end)
            ),
            self.payload.ready.eq(
                ~state.payload_done
                & (state.step & ~state.from_frame | state.running & ~state.coded | state.end)
            ),
        ]
        with m.If(self.frame.ready & self.frame.valid & self.frame.p.last):
            m.d.sync += state.frame_done.eq(1)
        with m.If(self.payload.ready & self.payload.valid & self.payload.p.last):
            m.d.sync += state.payload_done.eq(1)

    def _join(self, m: Module, state: _FrameState, o: Any) -> None:
        """Build the beats on ``o``, each from the beats of two steps."""
        patched, aligned, previous = (
            Signal(BEAT_BITS, name=name, reset_less=True) for name in ("patched", "aligned", "previous")
        )
        rotation = Signal(3, reset_less=True)
        header_lanes = Signal(BEAT_BYTES, reset_less=True)  # lanes before the codec's first byte
        tail = Signal(BEAT_BYTES, reset_less=True)  # ``keep`` of the last beat
        # Flags of the beat in ``patched`` or ``aligned``:
        is_frame_beat = Signal()  # a beat of the original frame, in ``patched``
        first = Signal()  # the first beat of the output frame
        final = Signal()  # the last beat of the output frame
        byte_offset = self._place % WORD_BYTES
        with m.If(state.load):
            m.d.sync += [
                rotation.eq(state.start[:3]),
                header_lanes.eq(
                    ones_through(
                        Cat(Const((byte_offset - 1) % WORD_BYTES, 2), (state.start - (byte_offset == 0))[:3]),
                        BEAT_BYTES,
                    )
                ),
                tail.eq(ones_through(self.job.p.final[:LANE_BITS], BEAT_BYTES)),
            ]
        with m.If(state.advance):
            m.d.sync += [
                state.full.eq(state.step),
                is_frame_beat.eq(state.from_frame),
                first.eq(state.number == 0),
                final.eq(state.final),
                patched.eq(self._patched(m, state)),
                aligned.eq(
                    rotated(self.payload.p.data, rotation, unit=8 * WORD_BYTES).rotate_left(8 * byte_offset)
                ),
            ]
            with m.If(state.full):
                m.d.sync += previous.eq(Mux(is_frame_beat, patched, aligned))
        m.d.comb += [
            o.valid.eq(state.full & ~first),
            o.p.data.eq(select_lanes(header_lanes | is_frame_beat.replicate(BEAT_BYTES), previous, aligned)),
            o.p.keep.eq(Mux(final, tail, -1)),
            o.p.last.eq(final),
        ]

    def _patched(self, m: Module, state: _FrameState) -> Signal:
        """Return the frame's beat with its changed fields."""
        job = self.job.p
        beat = Signal(BEAT_BITS)
        tos = TOS_COMPRESSIBLE if self.receive else TOS_RAW
        raw = job.kind == Kind.RAW
        patches = [
            (raw, _place(IPV4, "tos", IP_START), Const(tos, 8)),
            (raw | state.coded, _place(IPV4, "checksum", IP_START), job.ip_checksum),
            (state.coded, _place(IPV4, "length", IP_START), job.length),
            (state.coded & job.udp, _place(UDP, "length", TRANSPORT_START), job.segment),
            (state.coded & job.udp, _place(UDP, "checksum", TRANSPORT_START), job.checksum),
            (state.coded & ~job.udp, _place(TCP, "checksum", TRANSPORT_START), job.checksum),
        ]
        m.d.comb += beat.eq(self.frame.p.data)
        for condition, offset, value in patches:
            number, lane = divmod(offset, BEAT_BYTES)
            with m.If(condition & (state.number == number)):
                m.d.comb += beat[8 * lane : 8 * lane + len(value)].eq(swap_bytes(value))
        if not self.receive:
            # The stated length completes the word in which the headers end.
            for word in range(BEAT_BYTES // WORD_BYTES):
                with m.If(state.last_header & (job.words[:3] == word)):
                    half = beat.word_select(2 * word + 1, 8 * LENGTH_BYTES)
                    m.d.comb += half.eq(swap_bytes(job.stated))
        return beat


def _place(fields: Sequence[Field], name: str, start: int) -> int:
    """Return the index in the frame of a field's first byte."""
    names = [field.name for field in fields]
    return start + sum(field.bits for field in fields[: names.index(name)]) // 8


class _FrameState:
    """State of the assembler within a frame."""

    def __init__(self, advance: Value) -> None:
        self.advance = advance  # ``patched`` and ``aligned`` may be loaded
        self.full = Signal()  # ``patched`` or ``aligned`` is loaded
        self.load = Signal()  # state LOAD takes a job in this cycle
        self.running = Signal()  # state RUN
        self.end = Signal()  # state END
        self.start = Signal(5)  # whole words before the codec's first byte
        self.step = Signal()  # a beat is taken
        self.final = Signal()  # this step is the last
        self.number = Signal(2)  # steps so far, up to 3
        self.coded = Signal()  # the payload comes from the codec
        self.from_frame = Signal()  # the next step takes a beat of the frame
        self.last_header = Signal()  # that beat is the last with headers
        self.frame_done = Signal()  # all beats of the original frame have been taken
        self.payload_done = Signal()  # all beats of the codec's payload have been taken, or it has none
