"""Meter of the length and the checksum of payloads."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.codec.nic.shapes import BEAT_BITS, BEAT_BYTES, LANE_BITS, Total
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.buffer import RegisterSlice
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import kept_bytes, packet_stream

SUM_BITS = 16
WORDS = BEAT_BITS // SUM_BITS
LEVELS = (WORDS - 1).bit_length()  # levels of adders, from words to a beat's sum
TOTALS = 32  # totals that can wait
LATENCY = LEVELS + 3  # cycles from a beat to the sum that it ends; the sum is in the queue a cycle later


class PayloadMeter(wiring.Component):
    """Meter of the frames of a passing packet stream.

    Every frame of ``i`` appears on ``o``, with zeros in the bytes outside ``keep``, and once on ``total``, in
    order. Registers cut all paths of the stream. The stream does not wait for ``total``: at most 32 frames may
    have begun on ``i`` whose total has not been taken.

    Members
    -------
    ``i`` : In, packet stream of 256 bits
        Frames; with ``error`` if the parameter is True.
    ``o`` : Out, packet stream of 256 bits
        The same frames.
    ``total`` : Out, stream of Total
        Bytes (up to 65535) of a frame, ones' complement sum of its 16-bit words in network order, and
        ``error``. An odd last byte is filled up with a zero byte.

    Parameters
    ----------
    ``error`` : bool
        ``i`` has errors. Default False.

    Latency
    -------
    1 cycle from ``i`` to ``o``; 8 from the last beat on ``o`` to ``total``. One beat a cycle, frames back to
    back.

    Source
    ------
    RFC 1071.
    """

    def __init__(self, *, error: bool = False):
        self.error = error
        super().__init__(
            {
                "i": In(packet_stream(BEAT_BITS, error=error)),
                "o": Out(packet_stream(BEAT_BITS)),
                "total": Out(stream.Signature(Total)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Pass the stream through a register slice, and measure its output."""
        m = Module()
        beat = self.i.p
        m.submodules.slice = register = RegisterSlice(shape=beat.shape())
        m.submodules.totals = totals = StreamFIFO(shape=Total, depth=TOTALS)
        m.d.comb += [
            self.i.ready.eq(register.i.ready),
            register.i.valid.eq(self.i.valid),
            register.i.p.eq(beat),
            register.i.p.data.eq(
                Cat(beat.data.word_select(n, 8) & keep.replicate(8) for n, keep in enumerate(beat.keep))
            ),
        ]
        m.d.comb += [self.o.valid.eq(register.o.valid), register.o.ready.eq(self.o.ready)]
        m.d.comb += [self.o.p[name].eq(register.o.p[name]) for name in self.o.p.shape().members]

        transfer = Signal()
        m.d.comb += transfer.eq(self.o.valid & self.o.ready)
        frame_ends = delayed(m, transfer & self.o.p.last, LATENCY, name="ended", reset_less=False)
        m.d.comb += [
            totals.i.valid.eq(frame_ends[-1]),
            totals.i.p.sum.eq(self._sum(m, transfer, frame_ends)),
            totals.i.p.bytes.eq(self._bytes(m, transfer)),
        ]
        if self.error:
            m.d.comb += totals.i.p.error.eq(delayed(m, register.o.p.error, LATENCY, name="error")[-1])
        connect_typed(m, totals.o, wiring.flipped(self.total))
        return m

    def _sum(self, m: Module, transfer: Signal, frame_ends: list[Any]) -> Signal:
        """Return the sum: a tree of adders for a beat, one adder for the frame, then two end-around carries."""
        beat_sum_valid = delayed(m, transfer, LEVELS, name="beat_sum_valid", reset_less=False)[-1]
        values = [swap_bytes(self.o.p.data.word_select(word, SUM_BITS)) for word in range(WORDS)]
        for level in range(LEVELS):
            sums = [
                Signal(SUM_BITS + level + 1, name=f"sum{level}_{n}", reset_less=True)
                for n in range(len(values) // 2)
            ]
            m.d.sync += [pair.eq(values[2 * n] + values[2 * n + 1]) for n, pair in enumerate(sums)]
            values = sums
        frame = Signal(2 * SUM_BITS, reset_less=True)
        folded = Signal(SUM_BITS + 1, reset_less=True)
        o = Signal(SUM_BITS, reset_less=True)
        total = Mux(frame_ends[LEVELS + 1], 0, frame)  # sum of the frame's earlier beats
        m.d.sync += [
            frame.eq(Mux(beat_sum_valid, total + values[0], total)),
            folded.eq(frame[:SUM_BITS] + frame[SUM_BITS:]),
            o.eq(folded[:SUM_BITS] + folded[SUM_BITS]),
        ]
        return o

    def _bytes(self, m: Module, transfer: Signal) -> Any:
        """Return the frame's bytes, from its beats before the last and the bytes of the last."""
        beats = Signal(SUM_BITS - LANE_BITS)
        tail = Signal(BEAT_BYTES, reset_less=True)
        beats_1 = Signal.like(beats, reset_less=True)
        count = Signal(range(BEAT_BYTES + 1), reset_less=True)
        with m.If(transfer):
            m.d.sync += beats.eq(Mux(self.o.p.last, 0, beats + 1))
        m.d.sync += [tail.eq(self.o.p.keep), beats_1.eq(beats), count.eq(kept_bytes(tail))]
        size = Signal(SUM_BITS, reset_less=True)
        beats_2 = delayed(m, beats_1, 1, name="beats")[-1]
        m.d.sync += size.eq(Cat(count[:LANE_BITS], (beats_2 + count[LANE_BITS])[: len(beats)]))
        return delayed(m, size, LATENCY - 3, name="size")[-1]
