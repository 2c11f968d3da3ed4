"""802.1Q tags: inserted into frames to send, removed from received frames."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.wire.ethernet import ETHERTYPE_VLAN, TAG_AT, TCI, VLAN_TAG
from fanin.wire.fields import byte_length

TAG_BYTES = byte_length(VLAN_TAG)
TCI_BITS = sum(field.bits for field in TCI)
_TYPE_BITS = 16
MIN_WIDTH = 128  # bits of a word that contains the whole tag


class Tag(data.Struct):
    """Tag of a frame, if present."""

    present: 1
    tci: TCI_BITS


def _check_width(width: int) -> None:
    if width < MIN_WIDTH or width % 8:
        raise ValueError(f"width must be a multiple of 8 and at least {MIN_WIDTH}, not {width!r}")


class TagRemover(wiring.Component):
    """Remover of the 802.1Q tag: takes the tag out of each frame that has one, and leaves the rest unchanged.

    Of two tags the first is removed. A frame becomes one word shorter if all bytes of its last word move into
    the word before.

    Members
    -------
    ``i`` : In, ``valid`` and ``p``, :func:`~fanin.hdl.stream.packet.packet_layout` with ``error``
        A word of a frame.
    ``o`` : Out, ``valid`` and ``p``, of the same layout
        A word of a frame without its tag.

    Parameters
    ----------
    ``width`` : int, bits of a word; a multiple of 8, at least 128
        512 by default.

    Latency
    -------
    A frame's last word is on ``o`` 2 cycles after it is on ``i``, or 1 cycle if all of it moved into the word
    before. Any other word is on ``o`` 1 cycle after the next word is on ``i``. One word a cycle.

    Source
    ------
    IEEE 802.1Q, clause 9.
    """

    def __init__(self, *, width: int = 512):
        _check_width(width)
        self.width = width
        word = data.StructLayout({"valid": 1, "p": packet_layout(width, error=True)})
        super().__init__({"i": In(word), "o": Out(word)})

    def elaborate(self, platform: Any) -> Module:
        """Hold each word until the next one arrives, whose first bytes take the place of the tag's bytes."""
        m = Module()
        i, next_input, o = self.i, self.i.p, self.o.p
        previous = Signal(packet_layout(self.width, error=True), reset_less=True)
        has_previous = Signal()
        begins = Signal(init=1)
        first = Signal()
        tagged = Signal()
        absorbed = Signal()  # all bytes of the new word move into the previous one
        leaves = Signal()
        type_at = 8 * TAG_AT
        is_tag = next_input.data[type_at : type_at + _TYPE_BITS] == swap_bytes(
            Const(ETHERTYPE_VLAN, _TYPE_BITS)
        )
        m.d.comb += [
            leaves.eq(has_previous & (previous.last | i.valid)),
            absorbed.eq(
                has_previous & tagged & ~previous.last & i.valid & next_input.last & ~next_input.keep[TAG_BYTES]
            ),
        ]
        with m.If(i.valid):
            m.d.sync += [
                previous.eq(next_input),
                has_previous.eq(~absorbed),
                begins.eq(next_input.last),
                first.eq(begins),
            ]
            with m.If(begins):
                m.d.sync += tagged.eq(is_tag)
        with m.Elif(leaves):
            m.d.sync += has_previous.eq(0)

        def without_tag(word: Any, next_word: Any, unit: int) -> Any:
            """Return the output for the previous ``word`` (data or keep), with ``unit`` bits a byte."""
            tag_start, tag_size = TAG_AT * unit, TAG_BYTES * unit
            shifted = Cat(word[tag_size:], next_word[:tag_size])
            before_tag = Mux(first, word[:tag_start], shifted[:tag_start])
            return Mux(tagged, Cat(before_tag, shifted[tag_start:]), word)

        m.d.sync += [
            self.o.valid.eq(leaves),
            o.data.eq(without_tag(previous.data, next_input.data, 8)),
            o.keep.eq(
                without_tag(previous.keep, next_input.keep & ~previous.last.replicate(len(next_input.keep)), 1)
            ),
            o.last.eq(previous.last | absorbed),
            o.error.eq(Mux(previous.last, previous.error, next_input.error)),
        ]
        return m


class TagInserter(wiring.Component):
    """Inserter of the 802.1Q tag: puts a tag after the addresses of each frame that needs one.

    Members
    -------
    ``i`` : In, packet stream of ``width``
        Frames. The first word of a frame has at least 12 bytes.
    ``tag`` : In, stream of Tag
        Tag of the next frame, which waits for it.
    ``o`` : Out, packet stream of ``width``
        Frames with their tags.

    Parameters
    ----------
    ``width`` : int, bits of a word; a multiple of 8, at least 128
        512 by default.

    Latency
    -------
    0 cycles. One word a cycle, and one cycle more if a frame with its tag needs one word more.

    Source
    ------
    IEEE 802.1Q, clause 9.
    """

    def __init__(self, *, width: int = 512):
        _check_width(width)
        self.width = width
        super().__init__(
            {
                "i": In(packet_stream(width)),
                "tag": In(stream.Signature(Tag)),
                "o": Out(packet_stream(width)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Carry a word's last bytes into the next word, and at the frame's end into a word of their own."""
        m = Module()
        i, o, tag, tag_bits = self.i.payload, self.o.payload, self.tag, 8 * TAG_BYTES
        first = Signal(init=1)
        extra = Signal()
        carry = Signal(packet_layout(tag_bits), reset_less=True)
        has_tag = tag.payload.present
        overflows = Signal()
        inserted = Cat(swap_bytes(Const(ETHERTYPE_VLAN, _TYPE_BITS)), swap_bytes(tag.payload.tci))

        def with_tag(word: Any, carried_part: Any, inserted_tag: Any, unit: int) -> Any:
            """Return the output for ``word`` (data or keep), with ``unit`` bits a byte."""
            tag_start, size = TAG_AT * unit, len(word) - len(carried_part)
            first_word = Cat(word[:tag_start], inserted_tag, word[tag_start:size])
            return Mux(has_tag, Mux(first, first_word, Cat(carried_part, word[:size])), word)

        with m.If(extra):
            m.d.comb += [
                self.o.valid.eq(1),
                o.eq(
                    Cat(
                        carry.data,
                        Const(0, self.width - tag_bits),
                        carry.keep,
                        Const(0, self.width // 8 - TAG_BYTES),
                        1,
                    )
                ),
                tag.ready.eq(self.o.ready),
            ]
            with m.If(self.o.ready):
                m.d.sync += extra.eq(0)
        with m.Else():
            all_ones = Const(-1, TAG_BYTES)
            m.d.comb += [
                overflows.eq(has_tag & i.last & i.keep[-TAG_BYTES]),
                self.o.valid.eq(self.i.valid & tag.valid),
                self.i.ready.eq(self.o.ready & tag.valid),
                tag.ready.eq(self.o.ready & self.i.valid & i.last & ~overflows),
                o.data.eq(with_tag(i.data, carry.data, inserted, 8)),
                o.keep.eq(with_tag(i.keep, all_ones, all_ones, 1)),
                o.last.eq(i.last & ~overflows),
            ]
            with m.If(self.i.valid & self.i.ready):
                m.d.sync += [
                    carry.data.eq(i.data[-tag_bits:]),
                    carry.keep.eq(i.keep[-TAG_BYTES:]),
                    first.eq(i.last),
                    extra.eq(overflows),
                ]
        return m
