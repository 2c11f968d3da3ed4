"""Receiver: parses and checks frames from the MAC; their payloads wait in a buffer."""

from __future__ import annotations

from typing import Any

from amaranth import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.rdma import header_reader, payload_filter
from fanin.hdl.rdma.header_reader import TOTAL_BITS, HeaderReader, OwnAddresses
from fanin.hdl.rdma.icrc import IcrcChecker
from fanin.hdl.rdma.payload_filter import PayloadFilter
from fanin.hdl.rdma.queue_pair import received_layout
from fanin.hdl.rdma.regions import ask_layout
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import kept_bytes, packet_layout, packet_stream
from fanin.rdma.facts import RdmaConfig
from fanin.wire.ethernet import MIN_FRAME_BYTES
from fanin.wire.rdma import Fault

FRAMES = 32  # admitted frames whose packet has not left ``o``
_MARGIN = 4  # places kept free, since a frame takes its credit two cycles after its admission


class Receiver(wiring.Component):
    """Receiver that checks frames, buffers their payloads, and outputs a record of each.

    Every admitted frame appears on ``o`` after its last word; a damaged, foreign or unknown frame has a
    ``fault``. Its payload words wait in the buffer before ``words``. A frame is dropped and counted as lost if
    the buffer has no room, or if 28 to 32 earlier frames have not left ``o`` when it begins.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``
        Frames from the MAC; always ready, since a MAC cannot wait.
    ``own`` : In, OwnAddresses
        Addresses of this NIC.
    ``ask`` : Out, :func:`~fanin.hdl.rdma.regions.ask_layout`
        Request to the region table.
    ``allowed`` : In, 1
        Response of the region table.
    ``o`` : Out, stream of :func:`~fanin.hdl.rdma.queue_pair.received_layout`
        Records of frames.
    ``words`` : Out, stream of ``width`` bits
        Payload words of these frames.
    ``lost`` : Out, 1
        Pulse: a frame was dropped for lack of room.

    Parameters
    ----------
    ``config`` : RdmaConfig
        Widths and buffer sizes.

    Latency
    -------
    ``o`` comes 7 cycles after a frame's last word, and its payload is on ``words`` before. One word a cycle,
    frames back to back.

    Source
    ------
    docs/systems/rdma.md, "Packets"; InfiniBand Architecture Specification, annex A17.
    """

    def __init__(self, *, config: RdmaConfig):
        self.config = config
        super().__init__(
            {
                "i": In(packet_stream(config.width, error=True)),
                "own": In(OwnAddresses),
                "ask": Out(ask_layout(config)),
                "allowed": In(1),
                "o": Out(stream.Signature(received_layout(config))),
                "words": Out(stream.Signature(config.width)),
                "lost": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Check headers, ICRC and payload in parallel, and combine the results for each frame."""
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
        admitted = self._admit(m, word.valid & first, payload.room)
        header_admitted = delayed(m, admitted, header_reader.LATENCY, name="admit_header")[-1]
        m.d.comb += [
            self.i.ready.eq(1),
            word.valid.eq(self.i.valid),
            word.p.data.eq(self.i.p.data),
            word.p.last.eq(self.i.p.last),
            word.p.keep.eq(self._unpadded(m)),
            *(part.i.eq(word) for part in (icrc, reader, payload)),
            payload.admit.eq(admitted),
            reader.own.eq(self.own),
            self.ask.eq(reader.ask),
            reader.allowed.eq(self.allowed),
            records.i.payload.eq(reader.o.record),
            records.i.valid.eq(reader.o.valid & header_admitted),
        ]
        self._join(m, word, admitted, icrc, payload.count, records.o, queue.i)
        return m

    def _join(
        self, m: Module, word: Any, admitted: Any, icrc: Any, count: Any, records: Any, queue: Any
    ) -> None:
        """Complete the record of a frame whose last word arrived ``latency`` cycles ago."""
        latency = max(icrc.LATENCY, header_reader.LATENCY + 1)
        end = Signal(data.StructLayout({"valid": 1, "error": 1}))
        m.d.comb += [end.valid.eq(word.valid & word.p.last & admitted), end.error.eq(self.i.p.error)]
        frame_end = end.shape()(delayed(m, end.as_value(), latency, name="ended", reset_less=False)[-1])
        total = delayed(m, self._total(m, word), latency - 2, name="total")[-1]
        words = delayed(m, count.words, latency - payload_filter.LATENCY, name="count")[-1]
        good = delayed(m, icrc.o.good, latency - icrc.LATENCY, name="good")[-1]
        record = records.payload
        intact = good & ~frame_end.error & (record.total == total)
        fault = record.packet.fault
        m.d.comb += [
            queue.valid.eq(frame_end.valid),
            records.ready.eq(frame_end.valid),
            queue.payload.eq(record.packet),
            queue.payload.words.eq(words),
            queue.payload.fault.eq(Mux(intact | (fault == Fault.FOREIGN), fault, Fault.DAMAGED)),
        ]

    def _total(self, m: Module, word: Any) -> Signal:
        """Return the frame's bytes up to this word, two cycles later.

        The word count saturates: the total of an overlong frame equals no length in a header.
        """
        size = self.config.width // 8
        number = Signal(TOTAL_BITS - 1 - (size - 1).bit_length())
        words_before = Signal.like(number)
        keep = Signal(size)
        last_bytes = Signal(range(size + 1))
        total = Signal(TOTAL_BITS)
        m.d.comb += keep.eq(word.p.keep)
        with m.If(word.valid):
            with m.If(word.p.last):
                m.d.sync += number.eq(0)
            with m.Elif(~number.all()):
                m.d.sync += number.eq(number + 1)
        m.d.sync += [
            words_before.eq(number),
            last_bytes.eq(kept_bytes(keep)),
            total.eq(words_before * size + last_bytes),
        ]
        return total

    def _admit(self, m: Module, begins: Any, has_room: Any) -> Any:
        """Return whether the frame of this word is admitted; decided at the frame's first word.

        A frame takes a credit at its admission and returns it when its packet has left.
        """
        may_begin = Signal(init=1)
        admitted = Signal()  # the current frame is admitted
        m.submodules.frames = credits = Credits(limit=FRAMES, full=True)
        m.d.sync += [
            credits.take.eq(begins & may_begin),
            credits.give.eq(self.o.valid & self.o.ready),
            may_begin.eq(has_room & (credits.count > _MARGIN)),
            self.lost.eq(begins & ~may_begin),
        ]
        with m.If(begins):
            m.d.sync += admitted.eq(may_begin)
        return Mux(begins, may_begin, admitted)

    def _unpadded(self, m: Module) -> Any:
        """Return ``keep`` without the padding of a minimum-size frame.

        A RoCE frame is 2 bytes longer than a multiple of 4, so a frame of 60 bytes has 58 and 2 bytes of
        padding.
        """
        size, keep = self.config.width // 8, self.i.p.keep
        number = Signal(range(MIN_FRAME_BYTES // size + 2))
        with m.If(self.i.valid):
            m.d.sync += number.eq(Mux(self.i.p.last, 0, number + (number != MIN_FRAME_BYTES // size + 1)))
        lane = (MIN_FRAME_BYTES - 2) % size
        padded = self.i.p.last & (number == (MIN_FRAME_BYTES - 2) // size) & keep[lane + 1]
        padded = padded & ~keep[lane + 2] if lane + 2 < size else padded
        return keep & ~Mux(padded, Const(0b11 << lane, size), 0)
