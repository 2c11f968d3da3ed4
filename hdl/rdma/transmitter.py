"""Transmitter: forms frames from packets and answers."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.vlan import Tag, TagInserter
from fanin.hdl.rdma.header_reader import OwnAddresses
from fanin.hdl.rdma.header_writer import HeaderWriter, written_layout
from fanin.hdl.rdma.icrc import DEPTH as ICRC_DEPTH
from fanin.hdl.rdma.icrc import IcrcInserter
from fanin.hdl.rdma.merge import WordMerge, window_layout
from fanin.hdl.rdma.shapes import Headers, Peer
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.credits import Credits
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.lanes import ones_from
from fanin.hdl.stream.packet import packet_stream
from fanin.rdma.facts import check_width

_PAYLOADS = 4  # payloads that may be announced before their frames begin


class Transmitter(wiring.Component):
    """Transmitter of answers and of packets whose payload has been fetched; answers have priority.

    Members
    -------
    ``own`` : In, OwnAddresses
        Addresses of this NIC.
    ``answers`` : In, stream of Headers
        Answers to send.
    ``packets`` : In, stream of Headers
        Packets to send.
    ``payload`` : In, stream of :func:`~fanin.hdl.rdma.merge.window_layout`
        Announcement that the next payload may be sent, with the instruction to merge its words.
    ``words`` : In, stream of ``width`` bits
        Words of payloads, each byte at its lane.
    ``o`` : Out, packet stream of ``width`` bits
        Frames; without a pause inside a frame if the words of an announced payload arrive without a pause.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512. Default 512.
    ``vlan`` : bool
        Insert tags into frames to peers that have one. Default False.

    Latency
    -------
    3 cycles from ``payload`` to the frame's first word, if its headers arrived 5 cycles before; the latency of
    the ICRC (10 at 512 bits) from there to ``o``. One word a cycle, frames back to back; short frames, one in 6
    cycles.

    Source
    ------
    docs/systems/rdma.md.
    """

    def __init__(self, *, width: int = 512, vlan: bool = False):
        check_width(width)
        self.width = width
        self.vlan = vlan
        super().__init__(
            {
                "own": In(OwnAddresses),
                "answers": In(stream.Signature(Headers)),
                "packets": In(stream.Signature(Headers)),
                "payload": In(stream.Signature(window_layout(width))),
                "words": In(stream.Signature(width)),
                "o": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Connect two header writers, the frame builder and the ICRC; frames come from one writer at a time."""
        m = Module()
        m.submodules.icrc = icrc = IcrcInserter(width=self.width)
        m.submodules.merge = merge = WordMerge(width=self.width, depth=_PAYLOADS)
        connect_typed(m, wiring.flipped(self.words), merge.i)
        m.d.comb += [
            merge.command.valid.eq(self.payload.valid),
            merge.command.payload.window.eq(self.payload.payload),
            self.payload.ready.eq(merge.command.ready),
        ]
        m.submodules.fetched = fetched = Credits(limit=_PAYLOADS + 1)
        m.d.comb += fetched.give.eq(merge.command.valid & merge.command.ready)

        m.submodules.answer_writer = answers = HeaderWriter(width=self.width)
        m.submodules.packet_writer = packets = HeaderWriter(width=self.width)
        for writer, port in (answers, self.answers), (packets, self.packets):
            connect_typed(m, wiring.flipped(port), writer.i)
            m.d.comb += writer.own.eq(self.own)
        # The next frame is chosen a cycle before it may begin.
        next_answer = Signal()
        next_packet = Signal()
        free = Signal()
        answer = answers.soon & ~answers.o.ready
        packet = packets.soon & ~packets.o.ready & (fetched.ok | ~packets.o.payload.payload)
        m.d.sync += [next_answer.eq(answer), next_packet.eq(packet & ~answer)]
        m.d.comb += [
            answers.o.ready.eq(free & next_answer),
            packets.o.ready.eq(free & next_packet),
            fetched.take.eq(packets.o.ready & packets.o.payload.payload),
        ]
        frame = Signal(written_layout(self.width))
        m.d.comb += [
            frame.eq(Mux(next_answer, answers.o.payload, packets.o.payload)),
            # An answer has no payload, so the payload's position always comes from the packet.
            frame.lane.eq(packets.o.payload.lane),
            frame.end.eq(packets.o.payload.end),
        ]
        begins = next_answer | next_packet
        self._frame(m, frame, free, begins, merge.o, icrc.i)
        if self.vlan:
            peer = Mux(next_answer, self.answers.payload.peer, self.packets.payload.peer)
            self._insert_tags(m, Peer(peer).tag, free & begins, icrc.o)
        else:
            connect_typed(m, icrc.o, wiring.flipped(self.o))
        return m

    def _insert_tags(self, m: Module, tag: Any, begins: Any, frames: Any) -> None:
        """Hold each frame's tag while its ICRC is inserted."""
        m.submodules.tags = tags = StreamFIFO(shape=Tag, depth=2 * ICRC_DEPTH)  # never more frames than words
        m.submodules.inserter = inserter = TagInserter(width=self.width)
        m.d.comb += [tags.i.valid.eq(begins), tags.i.payload.eq(tag)]
        connect_typed(m, tags.o, inserter.tag)
        connect_typed(m, frames, inserter.i)
        connect_typed(m, inserter.o, wiring.flipped(self.o))

    def _frame(self, m: Module, frame: Any, free: Signal, begins: Any, payload: Any, o: Any) -> None:
        """Shift the headers out; add the payload after them, and zeros after the payload.

        ``begins``: ``frame`` is the next one. ``free``: driven here; the next frame may begin.
        """
        size = self.width // 8
        active = Signal()
        header = Signal.like(frame.bytes)
        has_more = Signal()  # payload words remain
        joins = Signal()  # this word contains payload
        words_before = Signal.like(frame.words_before)
        last = Signal()
        words_left = Signal.like(frame.words_left)
        from_first, to_end, keep = (Signal(size, name=name) for name in ("from_first", "to_end", "keep"))
        advance = Signal()
        lanes = Signal(size)
        mask = Mux(payload.payload.first, from_first, -1) & Mux(payload.payload.last, to_end, -1)
        m.d.comb += [
            lanes.eq(mask & joins.replicate(size)),
            o.valid.eq(active & (payload.valid | ~joins)),
            o.payload.last.eq(last),
            o.payload.keep.eq(Mux(last, keep, -1)),
            o.payload.data.eq(_merge(header, payload.payload.data, lanes)),
            advance.eq(o.valid & o.ready),
            payload.ready.eq(joins & o.ready),
            free.eq(~active | advance & last),
        ]
        with m.If(advance):
            next_words_before, more_payload = words_before >> 1, has_more & ~(joins & payload.payload.last)
            m.d.sync += [
                header.eq(header >> self.width),
                words_before.eq(next_words_before),
                has_more.eq(more_payload),
                joins.eq(more_payload & ~next_words_before[0]),
                last.eq(words_left < 0),
                words_left.eq(words_left - 1),
            ]
        with m.If(free):
            m.d.sync += [
                active.eq(begins),
                header.eq(frame.bytes),
                has_more.eq(frame.payload),
                joins.eq(begins & frame.payload & ~frame.words_before[0]),
                words_before.eq(frame.words_before),
                last.eq(frame.single),
                words_left.eq(frame.words_left),
                from_first.eq(ones_from(frame.lane, size)),
                to_end.eq(_ones_to(frame.end, size)),
                keep.eq(_ones_to(frame.last, size)),
            ]


def _merge(header: Any, payload: Any, lanes: Any) -> Any:
    """Return the header's bytes with the payload's bytes in ``lanes``, where the header has zeros."""
    return Cat(
        header.word_select(n, 8) | payload.word_select(n, 8) & lanes[n].replicate(8) for n in range(len(lanes))
    )


def _ones_to(last: Any, size: int) -> Any:
    """Return ``size`` bits with ones up to bit ``last``."""
    return ~((ones_from(last, size) << 1)[:size])
