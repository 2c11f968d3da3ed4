"""From frames to packets that were checked, and their payloads in a buffer."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.rdma import header_reader, payload_filter
from fanin.hdl.rdma.header_reader import TOTAL_BITS, HeaderReader, Own
from fanin.hdl.rdma.icrc import IcrcChecker
from fanin.hdl.rdma.payload_filter import PayloadFilter
from fanin.hdl.rdma.queue_pair import received_layout
from fanin.hdl.rdma.regions import ask_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import kept_bytes, packet_layout, packet_stream
from fanin.rdma import RdmaConfig
from fanin.wire.ethernet import MIN_FRAME_BYTES

FRAMES = 32  # that may be on their way through the receiver
_MARGIN = 4  # of them, that may come before the others are counted


class Receiver(wiring.Component):
    """Check frames, keep their payloads, and tell of each.

    Every frame appears on ``o``, once it has come as a whole: one that is damaged, foreign or malformed as not
    ``good``. Its payload's words wait in the buffer behind ``words``. A frame for which there is no room, or
    that comes while 32 others are on their way to ``o``, is lost without a word.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``
        Always ready: a MAC does not wait.
    ``own`` : In, Own
    ``ask`` : Out, :func:`~fanin.hdl.rdma.regions.ask_layout`
    ``allowed`` : In, 1
        The region table's.
    ``o`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.received_layout`
    ``words`` : Out, stream of ``width`` bits
    ``lost`` : Out, 1
        Pulse: a frame was lost for want of room.

    Parameters
    ----------
    ``config`` : RdmaConfig

    Latency
    -------
    ``o`` 7 cycles after a frame's last word; its payload is on ``words`` before. One word a cycle, frames back
    to back.

    Source
    ------
    docs/systems/rdma.md, "Packets"; InfiniBand Architecture Specification, annex A17.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "i": In(packet_stream(config.width, error=True)),
                "own": In(Own),
                "ask": Out(ask_layout(config)),
                "allowed": In(1),
                "o": Out(stream.Signature(received_layout(config))),
                "words": Out(stream.Signature(config.width)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Header, ICRC and payload go their own ways; what they say is put together when all have spoken."""
        m = Module()
        config = self.config
        m.submodules.icrc = icrc = IcrcChecker(width=config.width)
        m.submodules.reader = reader = HeaderReader(config=config)
        m.submodules.filter = payload = PayloadFilter(width=config.width, depth=config.buffer_words)
        m.submodules.records = records = StreamFIFO(shape=reader.o.record.shape(), depth=FRAMES)
        m.submodules.queue = queue = StreamFIFO(shape=received_layout(config), depth=FRAMES)
        connect_typed(m, payload.words, wiring.flipped(self.words))
        connect_typed(m, queue.o, wiring.flipped(self.o))
        word = Signal(data.StructLayout({"valid": 1, "p": packet_layout(config.width)}))
        first = Signal(init=1)
        with m.If(word.valid):
            m.d.sync += first.eq(word.p.last)
        admit = self._admitted(m, word.valid & first, payload.room)
        m.d.comb += [
            self.i.ready.eq(1),
            word.valid.eq(self.i.valid),
            word.p.data.eq(self.i.p.data),
            word.p.last.eq(self.i.p.last),
            word.p.keep.eq(self._unpadded(m)),
            *(part.i.eq(word) for part in (icrc, reader, payload)),
            payload.admit.eq(admit),
            reader.own.eq(self.own),
            self.ask.eq(reader.ask),
            reader.allowed.eq(self.allowed),
            records.i.payload.eq(reader.o.record),
            records.i.valid.eq(
                reader.o.valid & delayed(m, admit, header_reader.LATENCY, name="admit_header")[-1]
            ),
        ]
        self._judge(m, word, admit, icrc, payload.count, records.o, queue.i)
        return m

    def _judge(self, m: Module, word: Any, admit: Any, icrc: Any, count: Any, records: Any, queue: Any) -> None:
        """The record, and whether all else about the frame was right."""
        latency = max(icrc.LATENCY, header_reader.LATENCY + 1)
        ended = Signal(data.StructLayout({"here": 1, "error": 1}))
        m.d.comb += [ended.here.eq(word.valid & word.p.last & admit), ended.error.eq(self.i.p.error)]
        late = ended.shape()(delayed(m, ended.as_value(), latency, name="ended", reset_less=False)[-1])
        total = delayed(m, self._total(m, word), latency - 2, name="total")[-1]
        words = delayed(m, count.words, latency - payload_filter.LATENCY, name="count")[-1]
        good = delayed(m, icrc.o.good, latency - icrc.LATENCY, name="good")[-1]
        record = records.payload
        m.d.comb += [
            queue.valid.eq(late.here),
            records.ready.eq(late.here),
            queue.payload.eq(record.packet),
            queue.payload.words.eq(words),
            queue.payload.good.eq(record.packet.good & good & ~late.error & (record.total == total)),
        ]

    def _total(self, m: Module, word: Any) -> Signal:
        """Bytes of the frame up to its last word, two cycles later; a number too large if they are too many."""
        size = self.config.width // 8
        number = Signal(TOTAL_BITS - 1 - (size - 1).bit_length())
        before = Signal.like(number)
        keep = Signal(size)
        kept = Signal(range(size + 1))
        total = Signal(TOTAL_BITS)
        m.d.comb += keep.eq(word.p.keep)
        with m.If(word.valid):
            with m.If(word.p.last):
                m.d.sync += number.eq(0)
            with m.Elif(~number.all()):
                m.d.sync += number.eq(number + 1)
        m.d.sync += [before.eq(number), kept.eq(kept_bytes(keep)), total.eq(before * size + kept)]
        return total

    def _admitted(self, m: Module, begins: Any, room: Any) -> Any:
        """Whether the frame of this word has a place; counts those that have, a cycle later."""
        ok = Signal(init=1)
        held = Signal()
        inside = Signal(range(FRAMES + 1))
        came, went = (Signal(name=name) for name in ("came", "went"))
        m.d.sync += [came.eq(begins & ok), went.eq(self.o.valid & self.o.ready)]
        with m.If(begins):
            m.d.sync += held.eq(ok)
        with m.If(came & ~went):
            m.d.sync += inside.eq(inside + 1)
        with m.Elif(went & ~came):
            m.d.sync += inside.eq(inside - 1)
        m.d.sync += [ok.eq(room & (inside < FRAMES - _MARGIN)), self.lost.eq(begins & ~ok)]
        return Mux(begins, ok, held)

    def _unpadded(self, m: Module) -> Any:
        """``keep`` without the padding of a frame that its sender had to fill up.

        Our frames are 2 bytes longer than a multiple of 4: one of 60 bytes is one of 58.
        """
        size, keep = self.config.width // 8, self.i.p.keep
        number = Signal(range(MIN_FRAME_BYTES // size + 2))
        with m.If(self.i.valid):
            m.d.sync += number.eq(Mux(self.i.p.last, 0, number + (number != MIN_FRAME_BYTES // size + 1)))
        at = (MIN_FRAME_BYTES - 2) % size
        padded = self.i.p.last & (number == (MIN_FRAME_BYTES - 2) // size) & keep[at + 1]
        padded = padded & ~keep[at + 2] if at + 2 < size else padded
        return keep & ~Mux(padded, Const(0b11 << at, size), 0)
