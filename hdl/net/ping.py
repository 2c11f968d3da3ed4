"""ARP and ICMP echo responder for a node with another protocol, so that the node can be resolved and pinged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.golden.ping import HEADER_BYTES, MAX_PING
from fanin.hdl.net.headers import swap_bytes
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.frame_store import MARGIN, FrameStore
from fanin.hdl.stream.packet import packet_layout, packet_stream
from fanin.hdl.stream.packet_width import BytesToWords, WordsToBytes
from fanin.wire.arp import ARP, ETHERTYPE_ARP, HARDWARE_ETHERNET, IPV4_BYTES, MAC_BYTES, Operation
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IPV4
from fanin.wire.fields import Field, byte_length, field_bits
from fanin.wire.icmp import ICMP_ECHO, IP_PROTOCOL_ICMP, EchoType

MAC_BITS, IP_BITS = 8 * MAC_BYTES, 8 * IPV4_BYTES
_IP_AT = byte_length(ETHERNET)
_ICMP_AT = _IP_AT + byte_length(IPV4)
_CHECKSUM = (ICMP_ECHO, _ICMP_AT, "checksum")
_ByteCondition = tuple[int, Value, int]  # position, value and mask of a byte that a request must have


class PingResponder(wiring.Component):
    """Responder that observes a node's received frames and answers ARP and echo requests for one IPv4 address.

    Other frames are ignored. Requests without room are dropped: an answer takes a cycle a byte, while one
    request or more wait. The IPv4 checksum is not verified; the reply has the request's checksum.

    Members
    -------
    ``i`` : In, packet stream of ``width`` bits with ``error``; always ready
        All frames that the MAC receives, including those for others.
    ``o`` : Out, packet stream of ``width`` bits
        Replies, as long as their requests; valid in every cycle of a frame.
    ``own_mac`` : In, 48
        MAC address of the node.
    ``own_ip`` : In, 32
        IPv4 address of the node.

    Parameters
    ----------
    ``width`` : int, bits, a power of two from 16 to 512
        Bits of a beat.

    Latency
    -------
    From a request's last beat on ``i`` to its reply's first one on ``o``: at most 2 cycles a byte, plus 16.

    Source
    ------
    RFC 826, RFC 792; docs/reference/nic.md.
    """

    def __init__(self, *, width: int):
        if width < 16 or width > 512 or width & (width - 1):
            raise ValueError(f"width must be a power of two, 16 to 512, not {width!r}")
        self.width = width
        super().__init__(
            {
                "i": In(packet_stream(width, error=True)),
                "o": Out(packet_stream(width)),
                "own_mac": In(MAC_BITS),
                "own_ip": In(IP_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Store requests, convert them to bytes, turn them into replies as words, and store these."""
        m = Module()
        beats = -(-MAX_PING // (self.width // 8))
        capacity = 1 << (beats + MARGIN - 1).bit_length()

        def store() -> FrameStore:
            return FrameStore(width=self.width, max_frame=MAX_PING, capacity=capacity, wait=False)

        m.submodules.requests = requests = store()
        m.submodules.bytes = to_bytes = WordsToBytes(width=self.width)
        m.submodules.words = words = BytesToWords(width=self.width, tail=0)
        m.submodules.replies = replies = store()
        self._choose(m, requests.i)
        connect_typed(m, requests.o, to_bytes.i)
        self._answer(m, to_bytes.o, words.i)
        m.d.comb += [
            replies.i.valid.eq(words.o.valid),
            *(replies.i.p[name].eq(words.o.p[name]) for name in ("data", "keep", "last")),
        ]
        connect_typed(m, replies.o, wiring.flipped(self.o))
        return m

    def _choose(self, m: Module, o: Any) -> None:
        """Pass on all frames, two cycles later; a frame that is no request for this node ends with an error."""
        i = self.i
        m.d.comb += i.ready.eq(1)
        first, second = (
            Signal(packet_layout(self.width, error=True), name=name) for name in ("first", "second")
        )
        first_valid = Signal()
        second_valid = Signal()
        m.d.sync += [first.eq(i.p), first_valid.eq(i.valid), second.eq(first), second_valid.eq(first_valid)]
        lanes = self.width // 8
        number = Signal(range(HEADER_BYTES // lanes + 2))  # index of the beat; stops after the headers
        with m.If(i.valid):
            after_headers = number > HEADER_BYTES // lanes
            m.d.sync += number.eq(Mux(i.p.last, 0, Mux(after_headers, number, number + 1)))
        kinds = [self._agreement(m, number, conditions) for conditions in (self._arp(), self._echo())]
        is_request = Signal()
        m.d.sync += is_request.eq(Cat(kinds).any())
        m.d.comb += [
            o.valid.eq(second_valid),
            *(o.p[name].eq(second[name]) for name in ("data", "keep", "last")),
            o.p.error.eq(second.error | ~is_request),
        ]

    def _agreement(self, m: Module, number: Signal, conditions: Sequence[_ByteCondition]) -> Value:
        """Return whether all bytes met their conditions, a cycle after the beat with the last one."""
        i, lanes = self.i, self.width // 8
        matches = Signal(len(conditions))
        for bit, (place, value, mask) in zip(matches, conditions, strict=True):
            lane = place % lanes
            byte = i.p.data.word_select(lane, 8)
            equal = i.p.keep[lane] & (((byte ^ value) & mask) == 0)
            with m.If(i.valid & (number == place // lanes)):
                m.d.sync += bit.eq(equal)
            with m.Elif(i.valid & (number == 0)):
                m.d.sync += bit.eq(0)
        return matches.all()

    def _arp(self) -> list[_ByteCondition]:
        form = {
            "hardware": HARDWARE_ETHERNET,
            "protocol": ETHERTYPE_IPV4,
            "hardware_bytes": MAC_BYTES,
            "protocol_bytes": IPV4_BYTES,
            "operation": Operation.REQUEST,
            "target_ip": self.own_ip,
        }
        return [*_byte_conditions(ETHERNET, 0, ethertype=ETHERTYPE_ARP), *_byte_conditions(ARP, _IP_AT, **form)]

    def _echo(self) -> list[_ByteCondition]:
        ip = {"version": 4, "ihl": 5, "protocol": IP_PROTOCOL_ICMP, "destination": self.own_ip}
        return [
            *_byte_conditions(ETHERNET, 0, destination=self.own_mac, ethertype=ETHERTYPE_IPV4),
            *_byte_conditions(IPV4, _IP_AT, **ip),
            (_IP_AT + 6, Const(0, 8), 0x3F),  # more fragments, and the offset's high bits
            (_IP_AT + 7, Const(0, 8), 0xFF),
            *_byte_conditions(ICMP_ECHO, _ICMP_AT, type=EchoType.REQUEST, code=0),
            (HEADER_BYTES - 1, Const(0, 8), 0),  # the byte is present, with any value
        ]

    def _answer(self, m: Module, i: Any, o: Any) -> None:
        """Read the headers, send those of the reply, and pass on the other bytes.

        TAKE shifts the headers in, ADD corrects an echo's checksum, TURN replaces the headers by the reply's,
        SEND shifts these out, and REST passes on the bytes after the headers.
        """
        headers = Signal(8 * HEADER_BYTES)
        total = Signal(17)  # sum of an echo's checksum and the type that the reply lacks
        count = Signal(range(HEADER_BYTES))
        frame_ended = Signal()
        last = count == HEADER_BYTES - 1
        valid = Signal()
        byte = Signal(8)
        ends = Signal()
        m.d.comb += [o.valid.eq(valid), o.p.data.eq(byte), o.p.keep.eq(1), o.p.last.eq(ends)]
        with m.FSM():
            with m.State("TAKE"):
                m.d.comb += i.ready.eq(1)
                with m.If(i.valid):
                    m.d.sync += [
                        headers.eq(Cat(headers[8:], i.p.data)),
                        count.eq(Mux(last, 0, count + 1)),
                        frame_ended.eq(i.p.last),
                    ]
                    with m.If(last):
                        m.next = "ADD"
            with m.State("ADD"):
                m.d.sync += total.eq(_part(headers, *_CHECKSUM, swapped=True) + (EchoType.REQUEST << 8))
                m.next = "TURN"
            with m.State("TURN"):
                m.d.sync += headers.eq(self._reply(headers, total))
                m.next = "SEND"
            with m.State("SEND"):
                m.d.comb += [valid.eq(1), byte.eq(headers[:8]), ends.eq(last & frame_ended)]
                m.d.sync += [headers.eq(headers >> 8), count.eq(Mux(last, 0, count + 1))]
                with m.If(last):
                    m.next = "REST"
                with m.If(last & frame_ended):
                    m.next = "TAKE"
            with m.State("REST"):
                m.d.comb += [i.ready.eq(1), valid.eq(i.valid), byte.eq(i.p.data), ends.eq(i.p.last)]
                with m.If(i.valid & i.p.last):
                    m.next = "TAKE"

    def _reply(self, request: Value, total: Value) -> Value:
        """Return the headers of the reply to those of ``request``, with the first byte in the lowest bits."""
        own_mac, own_ip = swap_bytes(self.own_mac), swap_bytes(self.own_ip)
        ethertype = _part(request, ETHERNET, 0, "ethertype")
        ethernet = [_part(request, ETHERNET, 0, "source"), own_mac, ethertype]
        arp = [
            request[8 * _IP_AT : 8 * (_IP_AT + 6)],
            swap_bytes(Const(Operation.REPLY, 16)),
            own_mac,
            own_ip,
            _part(request, ARP, _IP_AT, "sender_mac"),
            _part(request, ARP, _IP_AT, "sender_ip"),
        ]
        echo = [
            request[8 * _IP_AT : 8 * (_ICMP_AT - 8)],
            own_ip,
            _part(request, IPV4, _IP_AT, "source"),
            Const(EchoType.REPLY, 8),
            _part(request, ICMP_ECHO, _ICMP_AT, "code"),
            swap_bytes((total[:16] + total[16])[:16]),
            request[8 * (_ICMP_AT + 4) : 8 * HEADER_BYTES],
        ]
        is_arp = ethertype == swap_bytes(Const(ETHERTYPE_ARP, 16))
        return Mux(is_arp, Cat(*ethernet, *arp), Cat(*ethernet, *echo))


def _part(headers: Value, fields: Sequence[Field], start: int, name: str, *, swapped: bool = False) -> Value:
    """Return a field of ``headers``, in wire order unless ``swapped``."""
    first, end = _place(fields, start, name)
    bits = headers[8 * first : 8 * end]
    return swap_bytes(bits) if swapped else bits


def _place(fields: Sequence[Field], start: int, name: str) -> tuple[int, int]:
    """Return the first byte of a field and the byte after it; the field has whole bytes."""
    bit_offset = 0
    for field in fields:
        if field.name == name:
            return start + bit_offset // 8, start + (bit_offset + field.bits) // 8
        bit_offset += field.bits
    raise ValueError(f"there is no field {name}")


def _byte_conditions(fields: Sequence[Field], start: int, **values: Any) -> list[_ByteCondition]:
    """Return byte conditions for fields with these values; fields that share a byte must be given together."""
    conditions: dict[int, tuple[Value, int]] = {}
    bit_offset = 0
    for field in fields:
        if field.name in values:
            value = values[field.name]
            bits = Const(value, field.bits) if isinstance(value, int) else Value.cast(value)
            for at in range(bit_offset, bit_offset + field.bits, 4):  # half bytes: version and ihl
                low = bit_offset + field.bits - at - 4
                half = bits[low : low + 4]
                place, high = start + at // 8, at % 8 == 0
                earlier, mask = conditions.get(place, (Const(0, 8), 0))
                shifted = Cat(Const(0, 4), half) if high else Cat(half, Const(0, 4))
                conditions[place] = (earlier | shifted, mask | (0xF0 if high else 0x0F))
        bit_offset += field_bits([field], field.name)
    return [(place, value, mask) for place, (value, mask) in conditions.items()]
