"""Receiver of a link: turns frames into payloads and answers."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.net.link.encapsulation import comes_from, header_view, is_other_traffic
from fanin.hdl.net.link.job import (
    SEQUENCE_BITS,
    check_link,
    frame_fields,
    job_layout,
    previous_name,
    told_layout,
)
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ethernet import Encap
from fanin.wire.link import ARRIVED_BITS, LINK_CONTROL_BYTES, LinkFormat, LinkKind

# Layout of a received ACK or NAK; bit i of ``arrived`` is frame ``sequence`` + 1 + i.
ANSWER = data.StructLayout(
    {"valid": 1, "sequence": SEQUENCE_BITS, "limit": SEQUENCE_BITS, "arrived": ARRIVED_BITS}
)

# Kind of a frame that has ended. At most one of the kinds is high; flags may be high with a kind: see
# ``verdict`` of LinkReceiver.
_KINDS_AND_FLAGS = (
    *("bad_fcs", "foreign", "mismatch", "received", "duplicate"),
    *("ahead", "gap", "urgent", "no_room", "probe", "lost"),
)
VERDICT = data.StructLayout(dict.fromkeys(_KINDS_AND_FLAGS, 1))


class LinkReceiver(wiring.Component):
    """Receiver that checks frames, keeps correct DATA frames within the buffer, and passes on answers.

    The payload is written to the frame's place in the buffer while it arrives, and kept if the frame proves
    correct. Frames after a gap are kept, too; ``expected`` then advances over them by one a cycle. A frame is
    foreign unless EtherType, version, job, kind, source and length are right:

    - DATA and PROBE come from the previous end, ACK and NAK from the next one.
    - All beats are whole. DATA has 1 to ``frame_beats`` beats of payload; other frames have 64 bytes.

    The destination is not checked, since source and kind determine it.

    Members
    -------
    ``i`` : In, packet stream of ``data_width`` bits with ``error``
        Frames from the MAC. Always ready, since a MAC does not wait.
    ``job`` : In, :func:`~fanin.hdl.net.link.job.job_layout`
        Job whose frames are accepted.
    ``running`` : In, 1
        Accept frames; frames that start or end while it is low are dropped.
    ``room`` : In, range(buffer_frames + 1)
        Frames from the expected one on for which the buffer has room; follows ``advance`` by 1 cycle.
    ``open`` : Out, ``en`` and ``place``
        A frame begins whose payload belongs to ``place``: its sequence number modulo ``buffer_frames``.
    ``write`` : Out, ``en`` and ``data``
        Write the next beat of the payload; at least a cycle after ``open``.
    ``keep`` : Out, ``en``, ``place`` and ``frame``
        The frame that was written is correct. ``frame``: its header's fields. Never together with ``write``.
    ``advance`` : Out, 1
        The expected frame has been kept: ``expected`` counts it.
    ``answer`` : Out, ``valid``, ``sequence``, ``limit`` and ``arrived``
        An ACK or NAK has arrived.
    ``told`` : Out, :func:`~fanin.hdl.net.link.job.told_layout`
        Fields of the peer's user in that ACK or NAK.
    ``verdict`` : Out, one bit each
        Kind and flags of the frame that has ended: see "Verdicts".
    ``differs`` : Out, one bit for each compared field of ``form``
        Fields that were not the job's, in the cycle of ``verdict.mismatch``.
    ``stranger`` : Out, 1
        The frame was ``foreign`` because of its source alone.
    ``expected`` : Out, 32
        Sequence number of the first frame that has not been counted yet; follows ``advance`` by 1 cycle. The
        frame may have been kept: see ``behind``.
    ``behind`` : Out, 1
        The frame ``expected`` has been kept and is not missing: a gap was closed, and ``expected`` advances by
        one a cycle over the frames that were kept after it.
    ``arrived`` : Out, 32
        Frames kept after the expected one; bit i is frame ``expected`` + 1 + i.

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
    ``buffer_frames`` : int, a power of two, 2 to 256
        Frames that the buffer holds; 32 by default.
    ``published`` : bool
        A PROBE carries the sender's next sequence number. False by default.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Sequence number of the first frame; 0 except in tests.

    Verdicts
    --------
    At most one kind is high. ACK and NAK frames have none.

    - ``bad_fcs``: the MAC reports an error.
    - ``foreign``: the frame does not belong to this link, by the conditions above.
    - ``mismatch``: a compared field of a DATA or PROBE frame is not the job's.
    - ``received``: DATA within the room that had not been kept before, and is kept now.
    - ``duplicate``: DATA that had been kept before.
    - ``no_room``: DATA beyond the room that was granted.
    - ``probe``: a PROBE.

    Flags are high only with a kind, except ``ahead`` in published mode:

    - ``ahead``, with ``received``: a frame before it is missing. In published mode no such frame is kept, so
      ``ahead`` takes the place of a kind.
    - ``gap``, with ``ahead``: the frame just before it is missing, and no frame after it has arrived.
    - ``urgent``, with ``received``: the frame is out of order, or closes a gap: frames after it had been kept.
    - ``lost``, only in published mode, with ``no_room``, ``ahead`` or ``probe``: the frame was not kept, or
      shows that an earlier one is missing.

    Latency
    -------
    From a frame's last beat to ``keep``, ``answer`` and ``verdict``: 2 cycles; one beat a cycle, frames back to
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
        buffer_frames: int = 32,
        published: bool = False,
        first_sequence: int = 0,
    ):
        check_link(
            data_width=data_width,
            frame_beats=frame_beats,
            buffer_frames=buffer_frames,
            first_sequence=first_sequence,
        )
        self.form = form
        self.encap = encap
        self.header_bits = 8 * form.header_bytes(encap)
        self.header_beats = -(-self.header_bits // data_width)
        self.control_beats = 8 * LINK_CONTROL_BYTES // data_width
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.buffer_frames = buffer_frames
        self.published = published
        self.first_sequence = first_sequence
        self.place_bits = (buffer_frames - 1).bit_length()
        place = range(buffer_frames)
        super().__init__(
            {
                "i": In(packet_stream(data_width, error=True)),
                "job": In(job_layout(form, encap)),
                "running": In(1),
                "room": In(range(buffer_frames + 1)),
                "open": Out(data.StructLayout({"en": 1, "place": place})),
                "write": Out(data.StructLayout({"en": 1, "data": data_width})),
                "keep": Out(data.StructLayout({"en": 1, "place": place, "frame": frame_fields(form)})),
                "advance": Out(1),
                "answer": Out(ANSWER),
                "told": Out(told_layout(form)),
                "verdict": Out(VERDICT),
                "differs": Out(len(form.compared)),
                "stranger": Out(1),
                "expected": Out(SEQUENCE_BITS, init=first_sequence),
                "behind": Out(1),
                "arrived": Out(ARRIVED_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Process beats in three stages, with a register between two of them.

        1. Collect the header and compare it with the job; put the payload's beats together.
        2. Compare the sequence number with ``expected``, and write the payload.
        3. After the last beat, give the verdict, and keep the frame or pass on the answer.

        The shortest DATA frame has two beats, so the verdict on one frame moves ``expected`` in time for the
        verdict on the next frame. The payload of the next frame begins a cycle too early for that: see
        ``_write``.
        """
        m = Module()
        held = Signal(self.buffer_frames)  # bit i: frame ``expected`` + i has been kept
        header = Signal(header_view(self.form, self.encap))
        beat = self.i.payload
        whole = beat.data[: self.header_bits]
        # Number of the beat in the frame, up to the end of the header. Not reset, since frames continue over a
        # reset.
        place = Signal(range(self.header_beats + 1), reset_less=True)
        m.d.comb += self.i.ready.eq(1)
        with m.If(self.i.valid):
            m.d.sync += place.eq(Mux(beat.last, 0, Mux(place == self.header_beats, place, place + 1)))
        if self.header_beats > 1:
            older = Signal(self.header_bits - self.data_width, reset_less=True)
            whole = Cat(older, beat.data)
            with m.If(self.i.valid):
                m.d.sync += older.eq(whole[self.data_width :])
        m.d.comb += header.eq(swap_bytes(whole))

        compared = self._compare(m, place, header)
        arrived = self._read_bitmap(m, place, header)
        aligned = self._realign(m, place)
        relation = self._relate(m, place, header, held)
        over = self._write(m, compared, aligned, relation)
        end = self._judge(m, compared, aligned, over, relation)
        self._answer(m, compared, arrived, end)
        self._keep(m, end, held)
        return m

    def _compare(self, m: Module, place: Signal, header: Any) -> Any:
        """Return the header's fields, held until the next header, with flags of wrong ones.

        A frame that ends within its header is judged by an older header, but its length is wrong in any case.
        ``strange``: the frame does not belong to this link's job. ``not_previous`` and ``not_next``: its source
        is not that end; ``_judge`` selects one of the two by the frame's kind. ``differs``: compared fields
        that are not the job's.
        """
        link, job, form, encap = header.link, self.job, self.form, self.encap
        compared_fields = len(form.compared)
        compared = Signal(
            data.StructLayout(
                {
                    "link": link.shape(),
                    "strange": 1,
                    "not_previous": 1,
                    "not_next": 1,
                    "differs": compared_fields,
                }
            ),
            init={"strange": 1},  # until a frame starts: a reset drops the rest of a frame
        )
        with m.If(self.i.valid & (place == self.header_beats - 1)):
            m.d.sync += [
                compared.link.eq(link),
                compared.strange.eq(
                    is_other_traffic(header, encap)
                    | (link.version != form.version)
                    | (link.kind > max(LinkKind))
                    | Cat(link[name] != job[name] for name in form.job).any()
                    | ~self.running
                ),
                compared.not_previous.eq(~comes_from(header, job, "previous", encap)),
                compared.not_next.eq(~comes_from(header, job, "next", encap)),
                compared.differs.eq(
                    Cat(link[name] != job[previous_name(form, name)] for name in form.compared)
                ),
            ]
        return compared

    def _realign(self, m: Module, place: Signal) -> Any:
        """Return the beat's flags a cycle later; drive ``write.data`` with a whole beat of the payload.

        If the header ends inside a beat, a beat of the payload consists of the end of one beat and the start of
        the next. ``header``: no beat of the payload is complete yet. ``number`` counts the frame's beats from 0
        and stops at ``max_number``.
        """
        beat = self.i.payload
        max_number = max(self.header_beats, self.control_beats)
        flags = dict.fromkeys(("valid", "header", "last", "bad_fcs", "partial"), 1)
        aligned = Signal(data.StructLayout({**flags, "number": range(max_number + 1)}))
        payload = Signal(self.data_width, reset_less=True)
        m.d.sync += [
            aligned.valid.eq(self.i.valid),
            aligned.header.eq(place != self.header_beats),
            aligned.last.eq(beat.last),
            aligned.bad_fcs.eq(beat.error),
            aligned.partial.eq(~beat.keep[-1]),
        ]
        with m.If(self.i.valid):
            number = aligned.number
            m.d.sync += number.eq(Mux(place == 0, 0, Mux(number == max_number, max_number, number + 1)))
            m.d.sync += payload.eq(beat.data)
            start = self.header_bits
            if self.data_width > start:
                rest = Signal(self.data_width - start, reset_less=True)
                m.d.sync += [rest.eq(beat.data[start:]), payload.eq(Cat(rest, beat.data[:start]))]
        m.d.comb += self.write.data.eq(payload)
        return aligned

    def _read_bitmap(self, m: Module, place: Signal, header: Any) -> Signal:
        """Return the bytes after the header as a number, held until the next header."""
        beat = self.i.payload
        bitmap = Signal(ARRIVED_BITS, reset_less=True)
        if self.encap is Encap.UDP:
            loads, value = place == self.header_beats - 1, header.zeros
        elif self.data_width > self.header_bits:
            loads = place == self.header_beats - 1
            value = swap_bytes(beat.data[self.header_bits :][:ARRIVED_BITS])
        else:
            loads = Signal()  # the beat is the first one after the header
            value = swap_bytes(beat.data[:ARRIVED_BITS])
            with m.If(self.i.valid):
                m.d.sync += loads.eq(place == self.header_beats - 1)
        with m.If(self.i.valid & loads):
            m.d.sync += bitmap.eq(value)
        return bitmap

    def _relate(self, m: Module, place: Signal, header: Any, held: Signal) -> Any:
        """Return where the frame of the last header lies.

        ``distance`` from the expected frame: a register that follows each advance, so that no subtraction
        precedes what depends on it. ``before``: the frame has been kept. ``new``: within the room, not kept.
        """
        relation = Signal(data.StructLayout({"distance": SEQUENCE_BITS, "before": 1, "new": 1}))
        distance = Signal(SEQUENCE_BITS, reset_less=True)
        low = distance[: self.place_bits]
        is_near = ~distance[self.place_bits :].any()
        is_held = Signal()
        loads = self.i.valid & (place == self.header_beats - 1)
        minuend = Mux(loads, header.link.sequence, distance)
        subtrahend = Mux(loads, self.expected, 0)
        m.d.sync += distance.eq(minuend - subtrahend - self.advance)
        m.d.comb += [
            relation.distance.eq(distance),
            is_held.eq(is_near & held.bit_select(low, 1)),
            relation.before.eq(distance[-1] | is_held),
            relation.new.eq(is_near & (low < self.room) & ~is_held),
        ]
        return relation

    def _write(self, m: Module, compared: Any, aligned: Any, relation: Any) -> Any:
        """Write the payload of a new frame; return whether beats of the frame were not written, and why.

        ``long``: more than ``frame_beats`` beats; ``not_new``: no room, or kept before; ``any``: either.

        A payload may begin in the cycle after the previous frame was kept. Let k be the cycle of that ``keep``:

        - k: ``relation.new`` of this frame is computed, from ``held`` without the previous frame;
        - k + 1: ``was_new`` is that value; the payload begins, although ``held`` has the previous frame only
          now.

        ``was_new`` is out of date in one case: the previous frame was a copy of this one. ``just_kept`` and
        ``kept_place`` detect that in cycle k + 1, and the payload does not overwrite the kept one.
        """
        sequence = compared.link.sequence[: self.place_bits]
        was_new = Signal()
        just_kept = Signal()
        kept_place = Signal.like(sequence)
        is_new = Signal()
        beats = Signal(range(self.frame_beats + 1))
        over = Signal(data.StructLayout({"long": 1, "not_new": 1, "any": 1}))
        too_many = Signal()
        m.d.sync += [
            was_new.eq(relation.new & (compared.link.kind == LinkKind.DATA)),
            just_kept.eq(self.keep.en),
            kept_place.eq(self.keep.place),
        ]
        m.d.comb += [
            self.open.en.eq(aligned.valid & aligned.header),
            self.open.place.eq(sequence),
            is_new.eq(was_new & ~(just_kept & (kept_place == sequence))),
            self.write.en.eq(aligned.valid & ~aligned.header & is_new & ~too_many),
        ]
        with m.If(aligned.valid & aligned.header):
            m.d.sync += [beats.eq(0), too_many.eq(0), over.eq(0)]
        with m.Elif(aligned.valid):
            m.d.sync += [
                over.long.eq(over.long | too_many),
                over.not_new.eq(over.not_new | ~is_new),
                over.any.eq(over.any | too_many | ~is_new),
                beats.eq(beats + 1),
                too_many.eq(too_many | (beats == self.frame_beats - 1)),
            ]
        return over

    def _judge(self, m: Module, compared: Any, aligned: Any, over: Any, relation: Any) -> Any:
        """Judge the frame that has ended; return registers that describe it in the cycle after its last beat.

        ``newest``: lower bits of the newest kept frame's number plus 1. These bits are enough, since a new
        frame's number differs from it by less than twice the buffer.
        """
        link = compared.link
        newest_bits = self.place_bits + 1
        newest = Signal(newest_bits, init=self.first_sequence % (1 << newest_bits))
        flags = (
            *("valid", "bad_fcs", "foreign", "stranger", "data", "mismatch", "probe", "answer"),
            *("before", "new", "expected", "newest", "gap"),
        )
        end = Signal(
            data.StructLayout({**dict.fromkeys(flags, 1), "distance": self.place_bits, "sequence": newest_bits})
        )
        ends = aligned.valid & aligned.last
        # Kinds are DATA 0, ACK 1, NAK 2, PROBE 3; any other is ``strange``.
        is_answer = link.kind[0] ^ link.kind[1]
        is_data = link.kind[:2] == LinkKind.DATA
        differs = compared.differs.any()
        wrong_length = Mux(
            is_data, aligned.number < self.header_beats, aligned.number != self.control_beats - 1
        )
        wrong_source = Mux(is_answer, compared.not_next, compared.not_previous)
        past_newest = Signal(newest_bits)
        m.d.comb += past_newest.eq(link.sequence - newest)
        m.d.sync += [
            end.valid.eq(ends & self.running & ~aligned.bad_fcs),
            end.bad_fcs.eq(ends & self.running & aligned.bad_fcs),
            end.foreign.eq(compared.strange | wrong_source | wrong_length | aligned.partial),
            end.stranger.eq(wrong_source & ~(compared.strange | wrong_length | aligned.partial)),
            end.data.eq(is_data & ~differs),
            end.mismatch.eq(~is_answer & differs),
            end.probe.eq((link.kind == LinkKind.PROBE) & ~differs),
            self.differs.eq(compared.differs),
            end.answer.eq(is_answer),
            end.before.eq(relation.before),
            end.new.eq(relation.new),
            end.expected.eq(relation.distance == 0),
            end.newest.eq(~past_newest[-1]),
            end.gap.eq(~past_newest[-1] & past_newest.any()),
            end.distance.eq(relation.distance),
            end.sequence.eq(link.sequence),
        ]
        accepted = end.valid & ~end.foreign
        accepted_data = accepted & end.data & ~over.long
        kept = accepted_data & end.new & ~over.not_new
        verdict = self.verdict
        m.d.comb += [
            self.stranger.eq(end.valid & end.stranger),
            verdict.bad_fcs.eq(end.bad_fcs),
            verdict.foreign.eq(end.valid & (end.foreign | (over.long & (end.data | end.mismatch)))),
            verdict.mismatch.eq(accepted & end.mismatch & ~over.long),
            verdict.duplicate.eq(accepted_data & end.before),
            verdict.probe.eq(accepted & end.probe),
        ]
        if self.published:
            missed = accepted_data & (~end.expected | over.not_new) | verdict.probe & ~end.expected
            m.d.comb += [
                verdict.received.eq(kept & end.expected),
                verdict.no_room.eq(accepted_data & end.expected & over.not_new),
                verdict.ahead.eq(accepted_data & ~end.expected & ~end.before),
                verdict.lost.eq(missed & ~end.before),
            ]
        else:
            m.d.comb += [
                verdict.received.eq(kept),
                verdict.no_room.eq(accepted_data & ~end.before & ~kept),
                verdict.gap.eq(kept & end.gap),
            ]
        with m.If(verdict.received & end.newest):
            m.d.sync += newest.eq(end.sequence + 1)
        return end

    def _answer(self, m: Module, compared: Any, arrived: Signal, end: Any) -> None:
        """Pass on the fields of the frame that has ended, whether it is an answer or has a payload."""
        link, form = compared.link, self.form
        names = dict.fromkeys(("sequence", form.limit, *form.data, *form.told))  # each once
        fields = Signal(data.StructLayout({name: link[name].shape() for name in names}), reset_less=True)
        bitmap = Signal.like(arrived)
        m.d.sync += [*(fields[name].eq(link[name]) for name in names), bitmap.eq(arrived)]
        m.d.comb += [
            self.answer.valid.eq(end.valid & ~end.foreign & end.answer),
            self.answer.sequence.eq(fields.sequence),
            self.answer.limit.eq(fields[form.limit]),
            self.answer.arrived.eq(bitmap),
            *(self.told[name].eq(fields[name]) for name in form.told),
            *(self.keep.frame[name].eq(fields[name]) for name in form.data),
        ]

    def _keep(self, m: Module, end: Any, held: Signal) -> None:
        """Keep the frame that has ended, and advance ``expected`` by one if the expected frame has been kept.

        ``end.distance`` counts from the value of ``expected`` a cycle ago. Bit i of ``held`` is frame
        ``expected`` + i, so ``held`` shifts down when ``expected`` advances.
        """
        advanced = Signal()
        distance = Signal(self.place_bits)
        now_held = Signal.like(held)
        received = self.verdict.received
        m.d.sync += [advanced.eq(self.advance), held.eq(Mux(self.advance, now_held >> 1, now_held))]
        m.d.comb += [
            distance.eq(end.distance - advanced),
            now_held.eq(held | (received << distance)),
            self.advance.eq(now_held[0]),
            self.keep.en.eq(received),
            self.keep.place.eq(end.sequence),
            self.behind.eq(held[0]),
            self.arrived.eq(held[1:]),
        ]
        if not self.published:
            m.d.comb += [
                self.verdict.ahead.eq(received & (distance != 0)),
                self.verdict.urgent.eq(received & ((distance != 0) | held.any())),
            ]
        with m.If(self.advance):
            m.d.sync += self.expected.eq(self.expected + 1)
