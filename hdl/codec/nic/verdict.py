"""Decision on each frame, and its new lengths and checksums."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.codec.facts import TOS_COMPRESSIBLE, TOS_RAW
from fanin.hdl.codec.nic.shapes import IP_START, LENGTH_BYTES, Assembly, Events, Kind, Record, Total
from fanin.wire.ethernet import IPV4, MIN_FRAME_BYTES
from fanin.wire.fields import byte_length

SUM_BITS = 16
STEPS = 8  # steps for a record; step 0 waits for one


class FrameVerdict(wiring.Component):
    """Decision on the treatment of each frame, with its new lengths and checksums.

    A frame is dropped if it is bad, or in the receiver compressed but broken. A frame is passed if it is not
    compressible or not whole. Otherwise its payload comes from the codec, or its payload stays and only its ToS
    changes.

    Checksums are updated by the removed and the inserted data (RFC 1624, equation 3), so a wrong checksum stays
    wrong. A UDP checksum of 0 means none and stays 0; a new UDP checksum of 0 becomes 0xFFFF.

    Members
    -------
    ``record`` : In, stream of Record
        Records of frames.
    ``taken`` : In, stream of Total
        Payload before the codec; one for every record with ``cut``.
    ``put`` : In, stream of Total
        Payload after the codec; one for every record with ``cut``.
    ``job`` : Out, stream of Assembly
        Jobs for the assembler.
    ``events`` : Out, Events
        Events of a frame for one cycle, with its job.

    Parameters
    ----------
    ``receive`` : bool
        True in the receiver.

    Latency
    -------
    9 cycles from ``record``, and from its totals if it has any, to ``job``; a frame every 10 cycles.

    Source
    ------
    RFC 1624; RFC 768; docs/systems/inceptionn-nic.md.
    """

    def __init__(self, *, receive: bool):
        self.receive = receive
        super().__init__(
            {
                "record": In(stream.Signature(Record)),
                "taken": In(stream.Signature(Total)),
                "put": In(stream.Signature(Total)),
                "job": Out(stream.Signature(Assembly)),
                "events": Out(Events),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Compute the job in a chain of registers, while the inputs hold until all registers are valid.

        ``step`` counts the cycles and selects the term that the checksums add.
        """
        m = Module()
        header, cut = self.record.p.header, self.record.p.cut
        step = Signal(range(STEPS + 1))
        done = Signal()
        job = Signal(Assembly)
        m.d.sync += done.eq(step == STEPS - 1)
        m.d.comb += [
            self.record.ready.eq(done),
            self.taken.ready.eq(done & cut),
            self.put.ready.eq(done & cut),
            job.cut.eq(cut),
            job.udp.eq(header.udp),
            job.words.eq(header.words),
            job.stated.eq(header.payload),
        ]
        with m.If(step != 0):
            m.d.sync += step.eq(Mux(done, 0, step + 1))
        with m.Elif(~self.job.valid):
            m.d.sync += step.eq(self.record.valid & (~cut | self.taken.valid & self.put.valid))
        with m.If(done):
            m.d.sync += [self.job.valid.eq(1), self.job.p.eq(job)]
        with m.Elif(self.job.ready):
            m.d.sync += self.job.valid.eq(0)

        change = self._lengths(m, job)
        self._checksums(m, job, step, change)
        m.d.sync += [
            self.events.coded.eq(done & (job.kind == Kind.CODED)),
            self.events.raw.eq(done & (job.kind == Kind.RAW)),
            self.events.bypassed.eq(done & (job.kind == Kind.PASS)),
            self.events.dropped.eq(done & (job.kind == Kind.DROP)),
            self.events.bytes_in.eq(Mux(done, self.record.p.bytes, 0)),
            self.events.bytes_out.eq(Mux(done & (job.kind != Kind.DROP), job.final + 1, 0)),
        ]
        return m

    def _lengths(self, m: Module, job: Any) -> Signal:
        """Compute the frame's kind and lengths; return the change of the length in ones' complement."""
        record = self.record.p
        old_length = record.header.payload
        new_length = Signal(16)
        change = Signal(16)
        shrinks = Signal()
        kind = Signal(Kind)
        length = Signal(16)
        segment = Signal(16)
        coded_end = Signal(14)
        final = Signal(14)
        m.d.sync += [
            new_length.eq(record.stated if self.receive else self.put.p.bytes + LENGTH_BYTES),
            # The receiver adds bytes, the sender removes some.
            change.eq(new_length - old_length if self.receive else ~(old_length - new_length)),
            shrinks.eq(new_length < old_length),
            kind.eq(self._kind(shrinks)),
            length.eq(record.header.length + change if self.receive else record.header.length - ~change),
            segment.eq(length - byte_length(IPV4)),
            coded_end.eq(length + (IP_START - 1)),
            final.eq(record.bytes - 1),
        ]
        with m.If(kind == Kind.CODED):
            m.d.sync += final.eq(Mux(coded_end < MIN_FRAME_BYTES - 1, MIN_FRAME_BYTES - 1, coded_end))
        m.d.comb += [job.kind.eq(kind), job.length.eq(length), job.segment.eq(segment), job.final.eq(final)]
        return change

    def _kind(self, shrinks: Signal) -> Any:
        """Return the frame's treatment; ``shrinks``: its payload is shorter after the codec."""
        record, header = self.record.p, self.record.p.header
        if self.receive:
            coded = header.compressible & record.cut & ~self.put.p.error
            raw = header.raw
            corrupt = header.compressible & ~coded
        else:
            coded = header.compressible & record.cut & shrinks
            raw = header.compressible & ~coded
            corrupt = Const(0)
        kind = Mux(coded, Kind.CODED, Mux(raw, Kind.RAW, Mux(corrupt, Kind.DROP, Kind.PASS)))
        return Mux(record.bad, Kind.DROP, Mux(record.whole, kind, Kind.PASS))

    def _checksums(self, m: Module, job: Any, step: Signal, change: Signal) -> None:
        """Compute two ones' complement sums, one term a step; a carry enters with the next step's term.

        Two steps without a term follow the last one, since adding a carry may carry again.
        """
        header = self.record.p.header
        old_tos, new_tos = (TOS_RAW, TOS_COMPRESSIBLE) if self.receive else (TOS_COMPRESSIBLE, TOS_RAW)
        tos_change = (new_tos - old_tos) % 0xFFFF
        stated = ~self.record.p.stated if self.receive else header.payload
        ip_terms = {4: Mux(job.kind == Kind.CODED, change, tos_change)}
        # The change of the length counts twice for UDP: the length is in the pseudo-header and in the header.
        terms = {1: self.put.p.sum, 2: ~self.taken.p.sum, 3: stated, 4: change, 5: Mux(header.udp, change, 0)}
        ip_sum = _ones_complement_sum(m, step, header.ip_checksum, ip_terms, name="ip")
        checksum = _ones_complement_sum(m, step, header.checksum, terms, name="transport")
        no_checksum = header.udp & (header.checksum == 0)
        m.d.comb += [
            job.ip_checksum.eq(~ip_sum),
            job.checksum.eq(Mux(no_checksum, 0, Mux(header.udp & checksum.all(), 0xFFFF, ~checksum))),
        ]


def _ones_complement_sum(
    m: Module, step: Signal, old_checksum: Any, terms: dict[int, Any], *, name: str
) -> Signal:
    """Return a sum: ~``old_checksum`` in step 0; every later step adds its term and the previous step's carry.

    Each term is registered in the step before.
    """
    value = Signal(SUM_BITS, name=f"{name}_sum")
    carry = Signal(name=f"{name}_carry")
    term = Signal(SUM_BITS, name=f"{name}_term", reset_less=True)
    m.d.sync += term.eq(0)
    with m.Switch(step):
        for number, summand in terms.items():
            with m.Case(number - 1):
                m.d.sync += term.eq(summand)
    m.d.sync += Cat(value, carry).eq((Cat(1, value) + Cat(carry, term))[1:])  # the carry enters at the low end
    with m.If(step == 0):
        m.d.sync += [value.eq(~old_checksum), carry.eq(0)]
    return value
