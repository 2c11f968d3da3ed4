"""Buffer for received payloads; it keeps only the words of frames that have payload."""

from __future__ import annotations

from typing import Any

from amaranth import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.rdma.shapes import by_opcode, lane_bits, words_bits
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.fifo import StreamFIFO
from fanin.hdl.stream.packet import packet_layout
from fanin.rdma.facts import MAX_PAYLOAD, check_width, payload_words
from fanin.wire.ethernet import IPV4
from fanin.wire.fields import field_bits
from fanin.wire.rdma import BTH, BTH_AT, ICRC_BYTES, IP_AT, MOST_HEADER_BYTES, Opcode, header_bytes

LATENCY = 4  # cycles from a frame's last word to its count
_MARGIN = 8  # words that may be in the pipeline before the buffer when a frame begins

_LENGTH_AT = IP_AT + 2  # offset of the packet's length in bytes
_PAD_AT = BTH_AT + 1
_LAST_BYTE = MOST_HEADER_BYTES + MAX_PAYLOAD - 1


class PayloadFilter(wiring.Component):
    """Filter that keeps and counts the words of each frame with at least one byte of payload.

    The payload's ends are those that the headers state, correct or not. A frame that ends earlier has fewer
    words. No frame has more words than the longest payload.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout`
        Word of a frame, beginning with the Ethernet header.
    ``admit`` : In, 1
        Keep the frame's words; constant over a frame.
    ``room`` : Out, 1
        There is room for another frame of any length.
    ``words`` : Out, stream of ``width`` bits
        Words with payload.
    ``count`` : Out, ``valid`` and ``words``
        Number of kept words of a frame whose last word has passed.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.
    ``depth`` : int
        Words of the buffer, at least those of two payloads.

    Latency
    -------
    4 cycles from a frame's last word to ``count``, 5 from a word to ``words``. One word a cycle.

    Source
    ------
    docs/systems/rdma.md, "Responder".
    """

    def __init__(self, *, width: int = 512, depth: int = 512):
        check_width(width)
        max_words = payload_words(width)
        if depth < 2 * max_words:
            raise ValueError(f"depth must be at least two payloads, {2 * max_words} words, not {depth!r}")
        self.width = width
        self.depth = depth
        self._max_words = max_words
        super().__init__(
            {
                "i": In(data.StructLayout({"valid": 1, "p": packet_layout(width)})),
                "admit": In(1),
                "room": Out(1, init=1),
                "words": Out(stream.Signature(width)),
                "count": Out(data.StructLayout({"valid": 1, "words": words_bits(width)})),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Delay words by four registers while the headers are evaluated, in time for the fourth."""
        m = Module()
        m.submodules.buffer = buffer = StreamFIFO(shape=self.width, depth=self.depth)
        connect_typed(m, buffer.o, wiring.flipped(self.words))
        # Number of the word in its frame; saturates.
        number = Signal(range(_LAST_BYTE * 8 // self.width + 2))
        with m.If(self.i.valid):
            with m.If(self.i.p.last):
                m.d.sync += number.eq(0)
            with m.Elif(~number.all()):
                m.d.sync += number.eq(number + 1)
        flags = Cat(self.i.valid, self.i.p.last, self.admit)
        word = delayed(m, self.i.p.data, LATENCY, name="word")
        numbers = delayed(m, number, LATENCY - 1, name="number")
        valid = delayed(m, flags, LATENCY, name="flags", reset_less=False)
        has_payload = Signal()
        m.d.sync += has_payload.eq(self._has_payload(m, word[1], numbers))
        push = Signal()
        word_count = Signal(words_bits(self.width))
        valid_now, last, admit = valid[-1]
        m.d.comb += [
            push.eq(valid_now & admit & has_payload),
            buffer.i.valid.eq(push),
            buffer.i.payload.eq(word[-1]),
            self.count.valid.eq(valid_now & last),
            self.count.words.eq(word_count + push),
        ]
        with m.If(valid_now):
            m.d.sync += word_count.eq(Mux(last, 0, word_count + push))
        m.d.sync += self.room.eq(buffer.level < self.depth - self._max_words - _MARGIN)
        return m

    def _has_payload(self, m: Module, word: Any, numbers: list[Any]) -> Any:
        """Return whether the word two registers after ``word`` has payload."""
        size = self.width // 8
        length = Signal(field_bits(IPV4, "length") + 1)  # index of the frame's last byte before the ICRC
        opcode = Signal(field_bits(BTH, "opcode"))
        pad = Signal(field_bits(BTH, "pad"))
        with m.If(numbers[1] == _LENGTH_AT // size):
            low = _LENGTH_AT % size
            m.d.sync += length.eq(
                Cat(word.word_select(low + 1, 8), word.word_select(low, 8)) + (IP_AT - ICRC_BYTES - 1)
            )
        with m.If(numbers[1] == BTH_AT // size):
            m.d.sync += opcode.eq(word.word_select(BTH_AT % size, 8))
            m.d.sync += pad.eq(word.word_select(_PAD_AT % size, 8)[4:6])
        is_known = Signal()  # the opcode is supported
        first = Signal.like(numbers[0])
        header = Signal(range(MOST_HEADER_BYTES + 1))
        end = Signal(signed(field_bits(IPV4, "length") + 2))  # the payload's last byte
        m.d.sync += [
            is_known.eq(opcode.matches(*Opcode)),
            first.eq(by_opcode(opcode, lambda code: header_bytes(code) // size)),
            header.eq(by_opcode(opcode, header_bytes)),
            end.eq(length - pad),
        ]
        in_range = numbers[3] <= min(_LAST_BYTE // size, (1 << len(numbers[3])) - 1)
        has_bytes = end >= header
        return (
            is_known
            & has_bytes
            & (numbers[3] >= first)
            & (numbers[3] <= end[lane_bits(self.width) :])
            & in_range
        )
