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
from fanin.wire.link import LINK_CONTROL_BYTES, LinkFormat, LinkKind

# Layout of a received ACK or NAK.
ANSWER = data.StructLayout({"valid": 1, "nak": 1, "sequence": SEQUENCE_BITS, "limit": SEQUENCE_BITS})

# Kind of a frame that has ended: at most one pulse, except that ``lost`` comes together with another.
VERDICT = data.StructLayout(
    dict.fromkeys(
        ("bad_fcs", "foreign", "mismatch", "received", "duplicate", "ahead", "no_room", "probe", "lost"), 1
    )
)


class LinkReceiver(wiring.Component):
    """Receiver that checks frames, keeps a DATA frame if it is correct and the next one, and passes on answers.

    The payload is written while it arrives, and committed or discarded when the frame has ended. A frame is
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
    ``full`` : In, 1
        The buffer has no room for another frame; follows ``close`` by 1 cycle.
    ``write`` : Out, ``en``, ``data`` and ``last``
        Write a beat of the payload.
    ``close`` : Out, ``en``, ``keep`` and ``frame``
        The frame has ended; never together with ``write``.
    ``answer`` : Out, ``valid``, ``nak``, ``sequence`` and ``limit``
        An ACK or NAK has arrived.
    ``told`` : Out, :func:`~fanin.hdl.net.link.job.told_layout`
        Fields of the peer's user in that ACK or NAK.
    ``verdict`` : Out, one bit each
        Kind of the frame that has ended: ``bad_fcs``, ``foreign``, ``mismatch``, ``received`` (and kept),
        ``duplicate``, ``ahead`` (after a gap), ``no_room`` or ``probe``. ``mismatch``: a compared field of a
        DATA or PROBE frame is not the job's. ACK and NAK have no bit. In published mode also ``lost``: the
        frame itself is missing, or shows that one is.
    ``differs`` : Out, one bit for each compared field of ``form``
        Fields that were not the job's, in the cycle of ``verdict.mismatch``.
    ``stranger`` : Out, 1
        The frame was ``foreign`` because of its source alone.
    ``expected`` : Out, 32
        Sequence number of the next frame to keep; follows ``close`` by 1 cycle.

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
    ``published`` : bool
        A PROBE carries the sender's next sequence number. False by default.
    ``first_sequence`` : int, 0 to 2^32 − 1
        Sequence number of the first frame; 0 except in tests.

    Latency
    -------
    From a frame's last beat to ``close``, ``answer`` and ``verdict``: 2 cycles; one beat a cycle, frames back
    to back.

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
        published: bool = False,
        first_sequence: int = 0,
    ):
        check_link(data_width=data_width, frame_beats=frame_beats, first_sequence=first_sequence)
        self.form = form
        self.encap = encap
        self.header_bits = 8 * form.header_bytes(encap)
        self.header_beats = -(-self.header_bits // data_width)
        self.control_beats = 8 * LINK_CONTROL_BYTES // data_width
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.published = published
        self.first_sequence = first_sequence
        super().__init__(
            {
                "i": In(packet_stream(data_width, error=True)),
                "job": In(job_layout(form, encap)),
                "running": In(1),
                "full": In(1),
                "write": Out(data.StructLayout({"en": 1, "data": data_width, "last": 1})),
                "close": Out(data.StructLayout({"en": 1, "keep": 1, "frame": frame_fields(form)})),
                "answer": Out(ANSWER),
                "told": Out(told_layout(form)),
                "verdict": Out(VERDICT),
                "differs": Out(len(form.compared)),
                "stranger": Out(1),
                "expected": Out(SEQUENCE_BITS, init=first_sequence),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare the header and realign the payload (a register); compare with ``expected`` (another); judge.

        The shortest DATA frame has two beats, so the verdict on one frame moves ``expected`` in time for the
        next.
        """
        m = Module()
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
        aligned = self._realign(m, place)
        over = self._write(m, aligned)
        self._judge(m, compared, aligned, over)
        return m

    def _compare(self, m: Module, place: Signal, header: Any) -> Any:
        """Return the header's fields, held until the next header, with flags of wrong ones.

        A frame that ends within its header is judged by an older header, but its length is wrong in any case.
        ``strange``: no frame of this link's job. The kind decides which source is wrong; see ``_judge``.
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
        """Return the beat a cycle later, with its payload whole.

        ``number`` counts beats after the first, up to ``most``. ``header``: no payload is whole yet.
        """
        beat = self.i.payload
        most = max(self.header_beats, self.control_beats)
        flags = dict.fromkeys(("valid", "header", "last", "bad_fcs", "partial"), 1)
        aligned = Signal(data.StructLayout({**flags, "number": range(most + 1)}))
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
            m.d.sync += number.eq(Mux(place == 0, 0, Mux(number == most, most, number + 1)))
            m.d.sync += payload.eq(beat.data)
            at = self.header_bits
            if self.data_width > at:
                rest = Signal(self.data_width - at, reset_less=True)
                m.d.sync += [rest.eq(beat.data[at:]), payload.eq(Cat(rest, beat.data[:at]))]
        m.d.comb += [self.write.data.eq(payload), self.write.last.eq(aligned.last)]
        return aligned

    def _write(self, m: Module, aligned: Any) -> Any:
        """Write payload while there is room; return whether beats of the frame were not written, and why.

        ``long``: more than ``frame_beats`` beats; ``no_room``: the buffer was full; ``any``: either.
        """
        beats = Signal(range(self.frame_beats + 1))
        over = Signal(data.StructLayout({"long": 1, "no_room": 1, "any": 1}))
        too_many = Signal()
        m.d.comb += self.write.en.eq(aligned.valid & ~aligned.header & ~self.full & ~too_many)
        with m.If(aligned.valid & aligned.header):
            m.d.sync += [beats.eq(0), too_many.eq(0), over.eq(0)]
        with m.Elif(aligned.valid):
            m.d.sync += [
                over.long.eq(over.long | too_many),
                over.no_room.eq(over.no_room | self.full),
                over.any.eq(over.any | too_many | self.full),
                beats.eq(beats + 1),
                too_many.eq(too_many | (beats == self.frame_beats - 1)),
            ]
        return over

    def _judge(self, m: Module, compared: Any, aligned: Any, over: Any) -> None:
        """Judge the frame that has ended (``end``).

        Its number is the ``expected`` one, ``before`` it, or ahead.
        """
        link, form = compared.link, self.form
        end = Signal(
            data.StructLayout(
                dict.fromkeys(
                    ("closing", "valid", "bad_fcs", "foreign", "data", "mismatch", "probe", "answer", "nak"), 1
                )
            )
        )
        names = dict.fromkeys(("sequence", form.limit, *form.data, *form.told))  # each once
        fields = Signal(data.StructLayout({name: link[name].shape() for name in names}), reset_less=True)
        is_expected = Signal()
        before = Signal()
        ends = aligned.valid & aligned.last
        # Kinds are DATA 0, ACK 1, NAK 2, PROBE 3; any other is ``strange``.
        is_answer = link.kind[0] ^ link.kind[1]
        is_data = link.kind[:2] == LinkKind.DATA
        differs = compared.differs.any()
        wrong_length = Mux(
            is_data, aligned.number < self.header_beats, aligned.number != self.control_beats - 1
        )
        wrong_source = Mux(is_answer, compared.not_next, compared.not_previous)
        m.d.sync += [
            end.closing.eq(ends),
            end.valid.eq(ends & self.running & ~aligned.bad_fcs),
            end.bad_fcs.eq(ends & self.running & aligned.bad_fcs),
            end.foreign.eq(compared.strange | wrong_source | wrong_length | aligned.partial),
            end.data.eq(is_data & ~differs),
            end.mismatch.eq(~is_answer & differs),
            end.probe.eq((link.kind == LinkKind.PROBE) & ~differs),
            self.differs.eq(compared.differs),
            end.answer.eq(is_answer),
            end.nak.eq(link.kind == LinkKind.NAK),
            *(fields[name].eq(link[name]) for name in fields.shape().members),
            is_expected.eq(link.sequence == self.expected),
            before.eq((link.sequence - self.expected)[SEQUENCE_BITS - 1]),
        ]
        stranger = Signal()
        m.d.sync += stranger.eq(wrong_source & ~(compared.strange | wrong_length | aligned.partial))
        m.d.comb += self.stranger.eq(end.valid & stranger)
        good = end.valid & ~end.foreign
        right = good & end.data & ~over.long
        verdict = self.verdict
        m.d.comb += [
            verdict.bad_fcs.eq(end.bad_fcs),
            verdict.foreign.eq(end.valid & (end.foreign | (over.long & (end.data | end.mismatch)))),
            verdict.mismatch.eq(good & end.mismatch & ~over.long),
            verdict.received.eq(good & end.data & is_expected & ~over.any),
            verdict.no_room.eq(right & is_expected & over.no_room),
            verdict.duplicate.eq(right & before),
            verdict.ahead.eq(right & ~is_expected & ~before),
            verdict.probe.eq(good & end.probe),
            self.answer.valid.eq(good & end.answer),
            self.answer.nak.eq(end.nak),
            self.answer.sequence.eq(fields.sequence),
            self.answer.limit.eq(fields[form.limit]),
            *(self.told[name].eq(fields[name]) for name in form.told),
            self.close.en.eq(end.closing),
            self.close.keep.eq(verdict.received),
            *(self.close.frame[name].eq(fields[name]) for name in form.data),
        ]
        if self.published:
            missed = right & (~is_expected | over.no_room) | verdict.probe & ~is_expected
            m.d.comb += verdict.lost.eq(missed & ~before)
        with m.If(verdict.received):
            m.d.sync += self.expected.eq(self.expected + 1)
