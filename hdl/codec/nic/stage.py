"""Common structure of both NIC stages, around their codec."""

from __future__ import annotations

from typing import Any

from amaranth import Module
from amaranth.lib import wiring

from fanin.codec.facts import FLOAT_BITS, Inceptionn
from fanin.hdl.codec.nic.assembler import FrameAssembler
from fanin.hdl.codec.nic.cutter import PayloadCutter
from fanin.hdl.codec.nic.meter import TOTALS, PayloadMeter
from fanin.hdl.codec.nic.parser import HeaderParser
from fanin.hdl.codec.nic.shapes import BEAT, BEAT_BITS, GROUP, Assembly, Record, beats_of
from fanin.hdl.codec.nic.verdict import FrameVerdict
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_layout

WAITING_BEATS = 16  # beats that may wait for their header; more than the parser's latency in cycles
RECORDS = TOTALS // 2  # small frames that can be inside the codec; the cutter has one more
JOBS = 2


def queue_beats(max_frame: int) -> int:
    """Return the beats of a queue: two of the longest frames, as the codec leaves them if nothing shrinks."""
    longest = max_frame * Inceptionn(group=GROUP).max_group_bytes // (GROUP * FLOAT_BITS // 8)
    return 1 << (2 * beats_of(longest) - 1).bit_length()


def connect_stage(m: Module, ports: Any, codec: Any, *, receive: bool) -> None:
    """Build a stage between the ``ports`` of its component: ``i``, ``o``, ``enable`` and ``events``.

    docs/systems/inceptionn-nic.md has a diagram.
    """
    size = {"max_frame": ports.max_frame}
    m.submodules.parser = parser = HeaderParser(receive=receive, **size)
    m.submodules.cutter = cutter = PayloadCutter(receive=receive, **size)
    m.submodules.verdict = verdict = FrameVerdict(receive=receive)
    m.submodules.assembler = assembler = FrameAssembler(receive=receive)
    m.submodules.records = records = StreamFIFO(shape=Record, depth=RECORDS)
    m.submodules.jobs = jobs = StreamFIFO(shape=Assembly, depth=JOBS)
    m.d.comb += parser.enable.eq(ports.enable)
    _connect_input(m, ports.i, parser.i)
    connect_typed(m, parser.header, cutter.header)
    frames = _fork(m, parser.o, cutter.i, depth=queue_beats(ports.max_frame))
    payloads = _through_codec(m, cutter, codec, verdict, depth=queue_beats(ports.max_frame), receive=receive)
    for source, queue, sink in (cutter.record, records, verdict.record), (verdict.job, jobs, assembler.job):
        connect_typed(m, source, queue.i)
        connect_typed(m, queue.o, sink)
    connect_typed(m, frames.o, assembler.frame)
    connect_typed(m, payloads.o, assembler.payload)
    connect_typed(m, assembler.o, wiring.flipped(ports.o))
    m.d.comb += ports.events.eq(verdict.events)


def _connect_input(m: Module, i: Any, parser: Any) -> None:
    """Connect the input to the parser; frames of the host have no ``error``."""
    m.d.comb += [parser.valid.eq(i.valid), i.ready.eq(parser.ready)]
    m.d.comb += [parser.p[name].eq(i.p[name]) for name in i.p.shape().members]


def _fork(m: Module, source: Any, cutter: Any, *, depth: int) -> StreamFIFO:
    """Send frames to the cutter, where they wait for their header, and to a queue; return the queue."""
    m.submodules.waiting = waiting = StreamFIFO(shape=packet_layout(BEAT_BITS, error=True), depth=WAITING_BEATS)
    m.submodules.frames = frames = StreamFIFO(shape=BEAT, depth=depth)
    m.d.comb += [
        source.ready.eq(waiting.i.ready & frames.i.ready),
        waiting.i.valid.eq(source.valid & frames.i.ready),
        waiting.i.p.eq(source.p),
        frames.i.valid.eq(source.valid & waiting.i.ready),
        frames.i.p.data.eq(source.p.data),
        frames.i.p.last.eq(source.p.last),
    ]
    connect_typed(m, waiting.o, cutter)
    return frames


def _through_codec(
    m: Module, cutter: Any, codec: Any, verdict: Any, *, depth: int, receive: bool
) -> StreamFIFO:
    """Send payloads through a meter, the codec, a second meter and a queue; return the queue."""
    m.submodules.input_meter = input_meter = PayloadMeter()
    m.submodules.output_meter = output_meter = PayloadMeter(error=receive)
    m.submodules.payloads = payloads = StreamFIFO(shape=BEAT, depth=depth)
    connect_typed(m, cutter.payload, input_meter.i)
    connect_typed(m, input_meter.o, codec.i)
    connect_typed(m, codec.o, output_meter.i)
    if receive:
        connect_typed(m, cutter.length, codec.length)
    m.d.comb += [
        output_meter.o.ready.eq(payloads.i.ready),
        payloads.i.valid.eq(output_meter.o.valid),
        payloads.i.p.data.eq(output_meter.o.p.data),
        payloads.i.p.last.eq(output_meter.o.p.last),
    ]
    connect_typed(m, input_meter.total, verdict.taken)
    connect_typed(m, output_meter.total, verdict.put)
    return payloads
