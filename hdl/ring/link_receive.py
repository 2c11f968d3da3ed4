"""From frames of the ring to payloads and answers."""

from typing import Any

from amaranth import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.ring.link_job import COUNT_BITS, FRAME, HEADER, SEQUENCE_BITS, RingJob, check_link
from fanin.hdl.stream.packet import packet_stream
from fanin.wire.ring import ETHERTYPE_RING, RING_CONTROL_BYTES, RING_HEADER_BYTES, VERSION, RingKind

HEADER_BITS = 8 * RING_HEADER_BYTES

# An ACK or a NAK that has come.
ANSWER = data.StructLayout({"valid": 1, "nak": 1, "sequence": SEQUENCE_BITS, "count": COUNT_BITS})

# What a frame was; one pulse at most, when it has ended.
VERDICT = data.StructLayout(
    dict.fromkeys(("bad_fcs", "foreign", "mismatch", "received", "duplicate", "ahead", "no_room", "probe"), 1)
)


class RingReceiver(wiring.Component):
    """Judge frames: a DATA frame that is whole, right and the next one is kept, answers are handed on.

    The payload is written while it arrives, and kept or forgotten when the frame has ended. A frame is foreign
    unless EtherType, version, job, kind, source and length are right: DATA and PROBE come from the node before,
    ACK and NAK from the next node; beats are whole, DATA has at most ``frame_beats`` of payload, at least
    one, others are 64 bytes. The destination is not looked at: it follows from source and kind.

    Members
    -------
    ``i`` : In, packet stream of ``data_width`` bits with ``error``
        Always ready: a MAC does not wait.
    ``job`` : In, RingJob
    ``running`` : In, 1
        Frames that begin or end without it are dropped.
    ``full`` : In, 1
        There is no room for another frame; follows ``close`` by 1 cycle.
    ``write`` : Out, ``en``, ``data`` and ``last``
        A beat of the payload.
    ``close`` : Out, ``en``, ``keep`` and ``frame``
        The frame has ended; not together with ``write``.
    ``answer`` : Out, ``valid``, ``nak``, ``sequence`` and ``count``
        An ACK or NAK has come.
    ``verdict`` : Out, one bit each
        What the frame that has ended was: ``bad_fcs``, ``foreign``, ``mismatch`` (nodes, codec or parameters
        are not the job's), ``received`` (and kept), ``duplicate``, ``ahead`` (there is a gap before it),
        ``no_room``, ``probe``. None for ACK and NAK.
    ``expected`` : Out, 32
        Sequence number of the next frame to be kept; follows ``close`` by 1 cycle.

    Parameters
    ----------
    ``data_width`` : int, 256 or 512, bits
    ``frame_beats`` : int, 1 to 4096
    ``first_sequence`` : int, 0 to 2^32 − 1

    Latency
    -------
    From a frame's last beat to ``close``, ``answer`` and ``verdict``: 2 cycles; one beat a cycle, frames back
    to back.

    Source
    ------
    docs/systems/ring.md, "Frames".
    """

    def __init__(self, *, frame_beats: int, data_width: int = 512, first_sequence: int = 0):
        check_link(data_width=data_width, frame_beats=frame_beats, first_sequence=first_sequence)
        self.data_width = data_width
        self.frame_beats = frame_beats
        self.first_sequence = first_sequence
        super().__init__(
            {
                "i": In(packet_stream(data_width, error=True)),
                "job": In(RingJob),
                "running": In(1),
                "full": In(1),
                "write": Out(data.StructLayout({"en": 1, "data": data_width, "last": 1})),
                "close": Out(data.StructLayout({"en": 1, "keep": 1, "frame": FRAME})),
                "answer": Out(ANSWER),
                "verdict": Out(VERDICT),
                "expected": Out(SEQUENCE_BITS, init=first_sequence),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compare the header and realign the payload (a register); compare with ``expected`` (another); judge.

        The shortest DATA frame has two beats, so the verdict on one moves ``expected`` in time for the next.
        """
        m = Module()
        header = Signal(HEADER)
        beat = self.i.payload
        first = Signal(init=1, reset_less=True)  # a reset comes at any time, and frames go on
        m.d.comb += [self.i.ready.eq(1), header.eq(swap_bytes(beat.data[:HEADER_BITS]))]
        with m.If(self.i.valid):
            m.d.sync += first.eq(beat.last)

        compared = self._compare(m, self.i.valid & first, header)
        aligned = self._realign(m, first)
        over = self._write(m, aligned)
        self._judge(m, compared, aligned, over)
        return m

    def _compare(self, m: Module, begins: Value, header: Any) -> Any:
        """The header's fields, held until the next header, and which of them are wrong.

        ``strange``: no frame of this ring's job. Which source is wrong depends on the kind, see ``_judge``.
        """
        ring, ethernet, job = header.ring, header.ethernet, self.job
        compared = Signal(
            data.StructLayout(
                {"ring": ring.shape(), "strange": 1, "not_previous": 1, "not_next": 1, "mismatch": 1}
            ),
            init={"strange": 1},  # until a frame begins: a reset drops the rest of one
        )
        with m.If(begins):
            m.d.sync += [
                compared.ring.eq(ring),
                compared.strange.eq(
                    (ethernet.ethertype != ETHERTYPE_RING)
                    | (ring.version != VERSION)
                    | (ring.kind > max(RingKind))
                    | (ring.job != job.job)
                    | ~self.running
                ),
                compared.not_previous.eq(ethernet.source != job.previous_mac),
                compared.not_next.eq(ethernet.source != job.next_mac),
                compared.mismatch.eq(
                    (ring.nodes != job.nodes) | (ring.codec != job.codec) | (ring.parameters != job.parameters)
                ),
            ]
        return compared

    def _realign(self, m: Module, first: Signal) -> Any:
        """The beat a cycle later, its payload whole; ``number`` counts the beats after the first, up to 2."""
        beat = self.i.payload
        aligned = Signal(
            data.StructLayout({"valid": 1, "first": 1, "last": 1, "bad_fcs": 1, "partial": 1, "number": 2})
        )
        payload = Signal(self.data_width, reset_less=True)
        m.d.sync += [
            aligned.valid.eq(self.i.valid),
            aligned.first.eq(first),
            aligned.last.eq(beat.last),
            aligned.bad_fcs.eq(beat.error),
            aligned.partial.eq(~beat.keep[-1]),
        ]
        with m.If(self.i.valid):
            m.d.sync += aligned.number.eq(Mux(first, 0, Mux(aligned.number[1], 2, aligned.number + 1)))
            m.d.sync += payload.eq(beat.data)
            if self.data_width > HEADER_BITS:
                rest = Signal(self.data_width - HEADER_BITS, reset_less=True)
                m.d.sync += [rest.eq(beat.data[HEADER_BITS:]), payload.eq(Cat(rest, beat.data[:HEADER_BITS]))]
        m.d.comb += [self.write.data.eq(payload), self.write.last.eq(aligned.last)]
        return aligned

    def _write(self, m: Module, aligned: Any) -> Any:
        """Write payload while there is room; what beats of the frame were not written, and why.

        ``long``: there were more than ``frame_beats``; ``no_room``: the buffer was full; ``any``: either.
        """
        beats = Signal(range(self.frame_beats + 1))
        over = Signal(data.StructLayout({"long": 1, "no_room": 1, "any": 1}))
        too_many = Signal()
        m.d.comb += self.write.en.eq(aligned.valid & ~aligned.first & ~self.full & ~too_many)
        with m.If(aligned.valid & aligned.first):
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
        """``end``: of the frame that has ended. Its number is the ``expected`` one, ``before`` it, or ahead."""
        ring = compared.ring
        end = Signal(
            data.StructLayout(
                dict.fromkeys(
                    ("closing", "valid", "bad_fcs", "foreign", "data", "mismatch", "probe", "answer", "nak"), 1
                )
            )
        )
        fields = Signal(data.StructLayout({**FRAME.members, "sequence": SEQUENCE_BITS}), reset_less=True)
        is_expected = Signal()
        before = Signal()
        ends = aligned.valid & aligned.last
        # Kinds are DATA 0, ACK 1, NAK 2, PROBE 3; any other is ``strange``.
        is_answer = ring.kind[0] ^ ring.kind[1]
        is_data = ring.kind[:2] == RingKind.DATA
        control_beats = -(-8 * RING_CONTROL_BYTES // self.data_width)
        wrong_length = Mux(is_data, aligned.number == 0, aligned.number != control_beats - 1)
        wrong_source = Mux(is_answer, compared.not_next, compared.not_previous)
        m.d.sync += [
            end.closing.eq(ends),
            end.valid.eq(ends & self.running & ~aligned.bad_fcs),
            end.bad_fcs.eq(ends & self.running & aligned.bad_fcs),
            end.foreign.eq(compared.strange | wrong_source | wrong_length | aligned.partial),
            end.data.eq(is_data & ~compared.mismatch),
            end.mismatch.eq(is_data & compared.mismatch),
            end.probe.eq(ring.kind == RingKind.PROBE),
            end.answer.eq(is_answer),
            end.nak.eq(ring.kind == RingKind.NAK),
            *(fields[name].eq(ring[name]) for name in fields.shape().members),
            is_expected.eq(ring.sequence == self.expected),
            before.eq((ring.sequence - self.expected)[SEQUENCE_BITS - 1]),
        ]
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
            self.answer.count.eq(fields.count),
            self.close.en.eq(end.closing),
            self.close.keep.eq(verdict.received),
            *(self.close.frame[name].eq(fields[name]) for name in FRAME.members),
        ]
        with m.If(verdict.received):
            m.d.sync += self.expected.eq(self.expected + 1)
