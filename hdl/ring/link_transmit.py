"""From payloads and answers to frames of the ring."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.ring.link_buffer import following, record_layout
from fanin.hdl.ring.link_job import COUNT_BITS, FRAME, HEADER, SEQUENCE_BITS, RingJob, check_link
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ring import ETHERTYPE_RING, RING_HEADER_BYTES, VERSION, RingKind

HEADER_BITS = 8 * RING_HEADER_BYTES
# The header's fields of this very frame; the others are the job's.
FRAME_FIELDS = data.StructLayout({"kind": RingKind, "sequence": SEQUENCE_BITS, **FRAME.members})
CONTROL = data.StructLayout({"valid": 1, "kind": RingKind, "sequence": SEQUENCE_BITS, "count": COUNT_BITS})


def data_offer(frames: int, frame_beats: int) -> data.StructLayout:
    """A DATA frame that may be sent: if ``valid``, its ``sequence`` number and its ``record``."""
    record = record_layout(frames, frame_beats)
    return data.StructLayout({"valid": 1, "sequence": SEQUENCE_BITS, "record": record})


class RingTransmitter(wiring.Component):
    """Send frames: between two of them, what ``control`` asks for goes first, then what ``offer`` has.

    A frame, once begun, has its next beat ready in every cycle, and is never cut short: a link that is reset
    leaves its transmitter alone. At 512 bits the header takes the first half of the first beat, so that the
    payload is shifted by half a beat; at 256 it is a beat of its own.

    Members
    -------
    ``job`` : In, RingJob
    ``control`` : In, ``valid``, ``kind``, ``sequence`` and ``count``
        May change and be withdrawn at any time.
    ``offer`` : In, :func:`data_offer`
        Likewise.
    ``control_taken`` : Out, 1
        The frame that ``control`` asks for is next.
    ``data_taken`` : Out, 1
        The frame that ``offer`` has is next.
    ``read`` : Out, ``en`` and ``index`` of a beat
    ``data`` : In, ``data_width`` bits
        That beat, 1 cycle later; held while ``read.en`` is low.
    ``o`` : Out, packet stream of ``data_width`` bits
    ``busy`` : Out, 1
        A frame is being sent.

    Parameters
    ----------
    ``data_width`` : int, 256 or 512, bits
    ``frame_beats`` : int, 1 to 4096
    ``replay_frames`` : int, a power of two, 2 to 256

    Latency
    -------
    3 cycles from ``offer`` or ``control`` to the first beat on ``o``; then one beat a cycle, frames back to
    back.

    Source
    ------
    docs/systems/ring.md, "Frames".
    """

    def __init__(self, *, frame_beats: int, data_width: int = 512, replay_frames: int = 32):
        check_link(data_width=data_width, frame_beats=frame_beats, replay_frames=replay_frames)
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.replay_frames = replay_frames
        self.beats = replay_frames * frame_beats
        super().__init__(
            {
                "job": In(RingJob),
                "control": In(CONTROL),
                "offer": In(data_offer(replay_frames, frame_beats)),
                "control_taken": Out(1),
                "data_taken": Out(1),
                "read": Out(data.StructLayout({"en": 1, "index": range(self.beats)})),
                "data": In(data_width),
                "o": Out(packet_stream(data_width)),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """A pipeline of four stages: the frame ``chosen``; the read of its next beat; ``beat``; ``o``.

        The last three move when ``o`` does (``free``). A frame is chosen while beats of the one before it are
        still read, so that frames go back to back.
        """
        m = Module()
        chosen = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    "control": 1,
                    "index": range(self.beats),
                    "beats": range(self.frame_beats + 1),
                    "fields": FRAME_FIELDS,
                }
            )
        )
        free = Signal()
        beat = Signal(data.StructLayout({"valid": 1, "first": 1, "last": 1, "blank": 1}))
        header = Signal(FRAME_FIELDS, reset_less=True)
        inside = Signal()  # beats of a frame are still to be read
        left = Signal(range(self.frame_beats + 1))  # how many
        m.d.comb += free.eq(~self.o.valid | self.o.ready)
        self._choose(m, chosen, ~inside | (left <= 2))
        self._read(m, free, chosen, inside, left, beat)
        with m.If(free & ~inside):
            m.d.sync += header.eq(chosen.fields)
        self._assemble(m, free, beat, header)
        m.d.comb += self.busy.eq(chosen.valid | inside | beat.valid | self.o.valid)
        return m

    def _choose(self, m: Module, chosen: Any, soon: Value) -> None:
        """Choose the next frame when the one before it ends ``soon``: so late that an answer is recent."""
        control, offer = self.control, self.offer
        load = Signal()
        m.d.comb += [
            load.eq(~chosen.valid & soon),
            self.control_taken.eq(load & control.valid),
            self.data_taken.eq(load & ~control.valid & offer.valid),
        ]
        of_data = {"kind": RingKind.DATA, "sequence": offer.sequence}
        of_data |= {name: offer.record.frame[name] for name in FRAME.members}
        of_control = dict.fromkeys(of_data, 0) | {n: control[n] for n in ("kind", "sequence", "count")}
        with m.If(load):
            m.d.sync += [
                chosen.valid.eq(control.valid | offer.valid),
                chosen.control.eq(control.valid),
                chosen.index.eq(offer.record.index),
                chosen.beats.eq(offer.record.beats),
                *(chosen.fields[n].eq(Mux(control.valid, of_control[n], of_data[n])) for n in of_data),
            ]

    def _read(self, m: Module, free: Signal, chosen: Any, inside: Signal, left: Signal, beat: Any) -> None:
        """Begin the frame that is chosen, or go on; read a beat of the payload for it."""
        wide = self.data_width > HEADER_BITS  # the first beat takes payload, and a control frame has no other
        blank = Signal()  # at 256 bits: the frame's beats after the first carry zeros, no payload
        index = Signal(range(self.beats))  # of the next beat in the buffer
        begin = Signal()
        final = Signal()
        m.d.comb += [
            begin.eq(chosen.valid & ~inside),
            final.eq(Mux(inside, left == 1, chosen.control & wide)),
            self.read.en.eq(free),
            self.read.index.eq(Mux(inside | (not wide), index, chosen.index)),
        ]
        with m.If(free):
            m.d.sync += [
                beat.valid.eq(inside | begin),
                beat.first.eq(~inside),
                beat.last.eq(final),
                beat.blank.eq(final if wide else blank),
                inside.eq((inside | begin) & ~final),
                left.eq(left - 1),
                index.eq(following(self.read.index, self.beats)),
            ]
            with m.If(~inside):
                m.d.sync += [blank.eq(chosen.control), left.eq(Mux(chosen.control, 1, chosen.beats))]
                if not wide:
                    m.d.sync += index.eq(chosen.index)
            with m.If(begin):
                m.d.sync += chosen.valid.eq(0)

    def _assemble(self, m: Module, free: Signal, beat: Any, header: Any) -> None:
        """Put header and payload into ``o``; at 512 bits a beat begins with the ``rest`` of the one before."""
        job, o = self.job, self.o
        whole = Signal(HEADER)
        answer = (header.kind == RingKind.ACK) | (header.kind == RingKind.NAK)
        m.d.comb += [
            whole.ethernet.destination.eq(Mux(answer, job.previous_mac, job.next_mac)),
            whole.ethernet.source.eq(job.own_mac),
            whole.ethernet.ethertype.eq(ETHERTYPE_RING),
            whole.ring.version.eq(VERSION),
            *(whole.ring[name].eq(job[name]) for name in ("job", "nodes", "codec", "parameters")),
            *(whole.ring[name].eq(header[name]) for name in FRAME_FIELDS.members),
            o.payload.keep.eq(-1),
        ]
        payload = Mux(beat.blank, 0, self.data)
        out = Mux(beat.first, swap_bytes(whole), payload)
        if self.data_width > HEADER_BITS:
            rest = Signal(self.data_width - HEADER_BITS, reset_less=True)
            out = Cat(Mux(beat.first, swap_bytes(whole), rest), payload[: len(rest)])
            with m.If(free):
                m.d.sync += rest.eq(self.data[len(rest) :])
        with m.If(free):
            m.d.sync += [o.valid.eq(beat.valid), o.payload.last.eq(beat.last), o.payload.data.eq(out)]
