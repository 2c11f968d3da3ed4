"""Transmitter of a link: turns payloads and answers into frames.

*Control frames* are ACK, NAK (*answers*, to the previous end) and PROBE.
"""

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.net.link.buffer import next_place, record_layout
from fanin.hdl.net.link.encapsulation import addressed, header_sums, header_view
from fanin.hdl.net.link.job import SEQUENCE_BITS, check_link, frame_fields, job_layout, told_layout
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ethernet import Encap
from fanin.wire.link import ARRIVED_BITS, LINK_CONTROL_BYTES, LinkFormat, LinkKind

CONTROL = data.StructLayout(
    {"valid": 1, "kind": LinkKind, "sequence": SEQUENCE_BITS, "limit": SEQUENCE_BITS, "arrived": ARRIVED_BITS}
)
_LENGTH_BITS = 16  # width of IPv4's length and checksum


def own_fields(form: LinkFormat) -> data.StructLayout:
    """Return the layout of the header fields that differ between frames; the job gives the others."""
    fields = {"kind": LinkKind, "sequence": SEQUENCE_BITS, form.limit: SEQUENCE_BITS}
    return data.StructLayout(fields | frame_fields(form).members | told_layout(form).members)


def _sent_fields(form: LinkFormat) -> data.StructLayout:
    """Return the layout of the fields of a frame, and of the bitmap after its header; 0 in DATA."""
    return data.StructLayout({**own_fields(form).members, "arrived": ARRIVED_BITS})


def data_offer(form: LinkFormat, frames: int, frame_beats: int) -> data.StructLayout:
    """Return the layout of a DATA frame that may be sent.

    The layout has ``valid``, the ``sequence`` number and the ``record``.
    """
    record = record_layout(form, frames, frame_beats)
    return data.StructLayout({"valid": 1, "sequence": SEQUENCE_BITS, "record": record})


class LinkTransmitter(wiring.Component):
    """Transmitter of control and DATA frames. A control frame goes first, but never interrupts a DATA frame.

    A frame never pauses and is never cut short: its next beat is ready in every cycle. A link's reset therefore
    does not reset its transmitter. A header takes whole beats of its own. The exception is a header of 32 bytes
    at 512 bits: it is the first half of the first beat, and the payload is shifted by half a beat.

    Members
    -------
    ``job`` : In, :func:`~fanin.hdl.net.link.job.job_layout`
        Current job.
    ``control`` : In, ``valid``, ``kind``, ``sequence``, ``limit`` and ``arrived``
        Control frame to send; may change and be withdrawn at any time.
    ``told`` : In, :func:`~fanin.hdl.net.link.job.told_layout`
        Fields of the user in a control frame.
    ``offer`` : In, :func:`data_offer`
        DATA frame to send; may change and be withdrawn at any time.
    ``control_taken`` : Out, 1
        The frame on ``control`` is sent next.
    ``data_taken`` : Out, 1
        The frame on ``offer`` is sent next.
    ``read`` : Out, ``en`` and ``index`` of a beat
        Read a beat of the payload.
    ``data`` : In, ``data_width`` bits
        The beat that was read, 1 cycle later; held while ``read.en`` is low.
    ``o`` : Out, packet stream of ``data_width`` bits
        Frames to the MAC.
    ``is_control`` : Out, 1
        The frame that waits on ``o`` is an ACK, NAK or PROBE.
    ``busy`` : Out, 1
        A frame is being sent.

    Parameters
    ----------
    ``form`` : LinkFormat
        Format of the frames.
    ``encap`` : Encap
        Encapsulation: raw Ethernet (the default) or UDP.
    ``data_width`` : int, bits, a power of two from 32 to 512
        Bits of a beat; 512 by default.
    ``frame_beats`` : int, 1 to 4096
        Maximum beats of a payload.
    ``replay_frames`` : int, a power of two, 2 to 256
        Frames that the replay buffer holds; 32 by default.

    Latency
    -------
    3 cycles from ``offer`` or ``control`` to the first beat on ``o``; then one beat a cycle, frames back to
    back.

    Source
    ------
    docs/systems/link.md, "Frames".
    """

    def __init__(
        self,
        *,
        form: LinkFormat,
        frame_beats: int,
        encap: Encap = Encap.L2,
        data_width: int = 512,
        replay_frames: int = 32,
    ):
        check_link(data_width=data_width, frame_beats=frame_beats, replay_frames=replay_frames)
        self.form = form
        self.encap = encap
        self.header_bits = 8 * form.header_bytes(encap)
        self.header_beats = -(-self.header_bits // data_width)
        self.control_beats = 8 * LINK_CONTROL_BYTES // data_width
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.replay_frames = replay_frames
        self.beats = replay_frames * frame_beats
        super().__init__(
            {
                "job": In(job_layout(form, encap)),
                "control": In(CONTROL),
                "told": In(told_layout(form)),
                "offer": In(data_offer(form, replay_frames, frame_beats)),
                "control_taken": Out(1),
                "data_taken": Out(1),
                "read": Out(data.StructLayout({"en": 1, "index": range(self.beats)})),
                "data": In(data_width),
                "o": Out(packet_stream(data_width)),
                "is_control": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build a pipeline of four stages.

        - ``chosen``: the selected frame waits until all beats of the previous frame have been read.
        - read: ``read`` requests a beat of the payload; ``inside`` and ``left`` count the frame's beats.
        - ``beat``: describes the beat; ``data`` has the payload that was read.
        - ``o``: the assembled beat.

        The last three stages advance together (``free``), when ``o`` is empty or its beat is taken.
        """
        m = Module()
        chosen = Signal(
            data.StructLayout(
                {
                    "valid": 1,
                    "control": 1,
                    "index": range(self.beats),
                    "beats": range(self.frame_beats + 1),
                    "fields": _sent_fields(self.form),
                }
            )
        )
        free = Signal()
        place = range(self.header_beats)
        flags = dict.fromkeys(("valid", "header", "last", "blank", "bitmap"), 1)
        beat = Signal(data.StructLayout({**flags, "place": place}))
        header = Signal(_sent_fields(self.form), reset_less=True)
        inside = Signal()  # the current frame has beats left to read
        left = Signal(range(self.header_beats + max(self.frame_beats, self.control_beats)))  # number of these
        m.d.comb += free.eq(~self.o.valid | self.o.ready)
        # A selection takes a cycle, so it begins before the previous frame's last beat: no gap between frames.
        self._choose(m, chosen, ~inside | (left <= 2))
        self._read(m, free, chosen, inside, left, beat)
        with m.If(free & ~inside):
            m.d.sync += header.eq(chosen.fields)
        self._assemble(m, free, beat, header, self._address(m, free & ~inside, chosen, header))
        m.d.comb += self.busy.eq(chosen.valid | inside | beat.valid | self.o.valid)
        return m

    def _choose(self, m: Module, chosen: Any, soon: Value) -> None:
        """Select the next frame only when the previous one ends ``soon``, so that an answer is up to date."""
        control, offer = self.control, self.offer
        load = Signal()
        m.d.comb += [
            load.eq(~chosen.valid & soon),
            self.control_taken.eq(load & control.valid),
            self.data_taken.eq(load & ~control.valid & offer.valid),
        ]
        form = self.form
        of_data = {"kind": LinkKind.DATA, "sequence": offer.sequence, form.limit: 0}
        of_data |= dict.fromkeys(form.told, 0) | {name: offer.record.frame[name] for name in form.data}
        of_data |= {"arrived": 0}
        of_control = dict.fromkeys(of_data, 0) | {"kind": control.kind, "sequence": control.sequence}
        of_control |= {form.limit: control.limit, "arrived": control.arrived}
        of_control |= {name: self.told[name] for name in form.told}
        with m.If(load):
            m.d.sync += [
                chosen.valid.eq(control.valid | offer.valid),
                chosen.control.eq(control.valid),
                chosen.index.eq(offer.record.index),
                chosen.beats.eq(offer.record.beats),
                *(chosen.fields[n].eq(Mux(control.valid, of_control[n], of_data[n])) for n in of_data),
            ]

    def _read(self, m: Module, free: Signal, chosen: Any, inside: Signal, left: Signal, beat: Any) -> None:
        """Start the selected frame, or continue the current one; read a beat of the payload for it.

        ``beat`` describes what ``_assemble`` puts into the frame's next beat: the header's beat number
        ``place``, else the payload, or if ``blank`` zeros or, with ``bitmap``, the bitmap of a control frame.
        """
        # Wide: the header is half of the first beat, which also has payload, or is a whole control frame. A
        # DATA frame then has one beat more than its payload: the last one has only the ``rest`` of the payload.
        wide = self.data_width > self.header_bits
        blank = Signal()  # unless ``wide``: beats after the header carry zeros, no payload
        index = Signal(range(self.beats))  # index of the next beat in the buffer
        place = Signal(range(self.header_beats))  # index of the next beat in the header; 0 after the header
        after_header = Signal()  # unless ``wide``: the next beat is the first one after the header
        begin = Signal()
        final = Signal()
        of_header = ~inside | (place != 0)
        last_place = self.header_beats - 1
        m.d.comb += [
            begin.eq(chosen.valid & ~inside),
            final.eq(Mux(inside, left == 1, chosen.control & (self.control_beats == 1))),
            self.read.en.eq(free),
            self.read.index.eq(Mux(inside | (not wide), index, chosen.index)),
        ]
        with m.If(free):
            m.d.sync += [
                beat.valid.eq(inside | begin),
                beat.header.eq(of_header),
                beat.place.eq(place),
                beat.last.eq(final),
                beat.blank.eq(final if wide else blank),
                beat.bitmap.eq(1 if wide else after_header),
                after_header.eq(of_header & (place == last_place)),
                inside.eq((inside | begin) & ~final),
                left.eq(left - 1),
                index.eq(Mux(of_header & (not wide), index, next_place(self.read.index, self.beats))),
            ]
            with m.If(begin | (place != 0)):
                m.d.sync += place.eq(Mux(place == last_place, 0, place + 1))
            with m.If(~inside):
                # ``last_place`` beats of the header follow its first one, which is handled now.
                beats = Mux(chosen.control, self.control_beats - self.header_beats, chosen.beats)
                m.d.sync += [blank.eq(chosen.control), left.eq(beats + last_place)]
                if not wide:
                    m.d.sync += index.eq(chosen.index)
            with m.If(begin):
                m.d.sync += chosen.valid.eq(0)

    def _address(self, m: Module, load: Value, chosen: Any, header: Any) -> dict[str, Value]:
        """Return the direction of the frame on ``header``, and its payload's length and header sum for IPv4."""
        if self.encap is Encap.L2:
            return {"answer": _is_answer(header), "payload_bytes": Const(0), "header_sum": Const(0)}
        sums = header_sums(m, self.job)
        size = Signal(_LENGTH_BITS)
        total = Signal(_LENGTH_BITS + 1)
        payload_bytes = Mux(chosen.control, 0, chosen.beats * (self.data_width // 8))
        with m.If(load):
            base = Mux(_is_answer(chosen.fields), sums["previous"], sums["next"])
            m.d.sync += [size.eq(payload_bytes), total.eq(payload_bytes + base)]
        return {"answer": _is_answer(header), "payload_bytes": size, "header_sum": total}

    def _assemble(self, m: Module, free: Signal, beat: Any, header: Any, address: dict[str, Value]) -> None:
        """Put header and payload into ``o``; a shifted beat starts with the ``rest`` of the previous beat."""
        job, o, form = self.job, self.o, self.form
        whole = Signal(header_view(form, self.encap))
        m.d.comb += [
            *addressed(whole, job, self.encap, **address),
            whole.link.version.eq(form.version),
            *(whole.link[name].eq(job[name]) for name in (*form.job, *form.compared)),
            *(whole.link[name].eq(header[name]) for name in own_fields(form).members),
            o.payload.keep.eq(-1),
        ]
        # L2: the bitmap follows the header. UDP: it is the last four bytes of the header.
        after_header = swap_bytes(header.arrived)
        if self.encap is Encap.UDP:
            m.d.comb += whole.zeros.eq(header.arrived)
            after_header = Const(0)
        payload = Mux(beat.blank, Mux(beat.bitmap, after_header, 0), self.data)
        if self.data_width > self.header_bits:
            rest = Signal(self.data_width - self.header_bits, reset_less=True)
            out = Cat(Mux(beat.header, swap_bytes(whole), rest), payload[: len(rest)])
            with m.If(free):
                m.d.sync += rest.eq(self.data[len(rest) :])
        else:
            out = Mux(beat.header, swap_bytes(whole).word_select(beat.place, self.data_width), payload)
        with m.If(free):
            m.d.sync += [
                o.valid.eq(beat.valid),
                o.payload.last.eq(beat.last),
                o.payload.data.eq(out),
                self.is_control.eq(header.kind != LinkKind.DATA),
            ]


def _is_answer(fields: Any) -> Value:
    """Return whether a frame goes to the previous end; any other goes to the next end."""
    return (fields.kind == LinkKind.ACK) | (fields.kind == LinkKind.NAK)
