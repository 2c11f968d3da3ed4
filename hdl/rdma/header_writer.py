"""Writer of a frame's headers as bytes."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from typing import Any

from amaranth import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.net.checksum import LATENCY as CHECKSUM_LATENCY
from fanin.hdl.net.checksum import WORD_BITS, OnesComplementSum
from fanin.hdl.net.headers import header_layout, swap_bytes
from fanin.hdl.rdma.header_reader import OwnAddresses
from fanin.hdl.rdma.shapes import SIZE_BITS, Headers, by_opcode, header_words, lane_bits, opcode_is
from fanin.rdma.facts import MAX_PAYLOAD, check_width
from fanin.wire.ethernet import (
    DONT_FRAGMENT,
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IPV4,
    TTL,
    UDP,
    internet_checksum,
)
from fanin.wire.fields import byte_length, field_bits, pack_fields
from fanin.wire.rdma import (
    AETH,
    BTH,
    ICRC_BYTES,
    IMMEDIATE,
    IP_AT,
    MOST_HEADER_BYTES,
    PARTITION,
    RETH,
    ROCE_PORT,
    Opcode,
    header_bytes,
)

LATENCY = 2 + CHECKSUM_LATENCY


def written_layout(width: int) -> data.StructLayout:
    """Return the layout of a frame's written headers and of its dimensions.

    ``bytes``: the headers, then zeros.
    ``payload``: the packet has a payload.
    ``words_before``: one bit set for each word before the word with the payload's first byte.
    ``lane``: lane of the payload's first byte.
    ``end``: lane of the payload's last byte.
    ``single``: the frame is one word.
    ``words_left``: words after the second word, less 1; negative if the second word is the last.
    ``last``: lane of the frame's last byte.
    """
    words = -(-(MOST_HEADER_BYTES + MAX_PAYLOAD + ICRC_BYTES) // (width // 8))
    return data.StructLayout(
        {
            "bytes": width * header_words(width),
            "payload": 1,
            "words_before": MOST_HEADER_BYTES // (width // 8),
            "lane": lane_bits(width),
            "end": lane_bits(width),
            "single": 1,
            "words_left": signed(words.bit_length() + 1),
            "last": lane_bits(width),
        }
    )


class HeaderWriter(wiring.Component):
    """Writer of a packet's headers, including lengths and IPv4 checksum.

    Members
    -------
    ``i`` : In, stream of Headers
        Packets; each is taken together with ``o``.
    ``own`` : In, OwnAddresses
        Addresses of this NIC.
    ``o`` : Out, stream of :func:`written_layout`
        Written headers.
    ``soon`` : Out, 1
        ``o`` is valid from the next cycle on, unless ``o`` is taken in this cycle. ``o.payload.payload`` is
        already valid.

    Parameters
    ----------
    ``width`` : int
        Bits of a word: 128, 256 or 512.

    Latency
    -------
    5 cycles from ``i`` to ``o``; a packet every 6 cycles.

    Source
    ------
    docs/reference/rdma-packet.md.
    """

    def __init__(self, *, width: int = 512):
        check_width(width)
        self.width = width
        super().__init__(
            {
                "i": In(stream.Signature(Headers)),
                "own": In(OwnAddresses),
                "o": Out(stream.Signature(written_layout(width))),
                "soon": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Hold the packet on ``i`` while its lengths and checksum are computed."""
        m = Module()
        transfer = self.o.valid & self.o.ready
        elapsed = Signal(LATENCY)
        m.d.comb += [self.soon.eq(elapsed[-2]), self.o.valid.eq(elapsed[-1]), self.i.ready.eq(transfer)]
        m.d.sync += elapsed.eq(Mux(transfer, 0, Cat(self.i.valid, elapsed)))
        m.d.comb += self.o.payload.bytes.eq(self._bytes(m, self._lengths(m)))
        return m

    def _lengths(self, m: Module) -> Value:
        """Compute the frame's dimensions, one sum a cycle; return the IPv4 length, valid 2 cycles later."""
        i, o, size, bits = self.i.payload, self.o.payload, self.width // 8, lane_bits(self.width)
        names = ("payload", "words_before", "end", "single", "words_left")
        fields = {name: Signal.like(o[name], name=name) for name in names}
        header_size = Signal(range(MOST_HEADER_BYTES + 1))
        # Bytes of headers and ICRC that the IPv4 length includes, plus 3 for rounding up.
        overhead = Signal.like(header_size)
        length = Signal(field_bits(IPV4, "length"))
        total = Signal(SIZE_BITS + 1)  # bytes of headers and payload
        last_byte = Signal(SIZE_BITS + 1)
        m.d.sync += [
            header_size.eq(by_opcode(i.opcode, header_bytes)),
            overhead.eq(by_opcode(i.opcode, lambda code: header_bytes(code) - IP_AT + ICRC_BYTES + 3)),
            # Headers after Ethernet's are multiples of four bytes, so rounding up the sum rounds up the
            # payload.
            length.eq((i.size + overhead) & ~3),
            total.eq(i.size + header_size),
            last_byte.eq(length + (IP_AT - 1)),
            fields["payload"].eq(i.size.any()),
            fields["words_before"].eq(by_opcode(i.opcode, lambda code: (1 << header_bytes(code) // size) - 1)),
            fields["end"].eq(total - 1),
            fields["single"].eq(last_byte[bits:] == 0),
            fields["words_left"].eq(last_byte[bits:] - 2),
        ]
        m.d.comb += [
            *(o[name].eq(value) for name, value in fields.items()),
            o.lane.eq(header_size),
            o.last.eq(last_byte),
        ]
        return length

    def _bytes(self, m: Module, length: Value) -> Value:
        """Return all headers in the order of the wire."""
        i, own = self.i.payload, self.own

        def header(name: str, fields: Any, **values: Any) -> Value:
            header_fields = Signal(header_layout(fields), name=name)
            m.d.comb += [header_fields[field].eq(value) for field, value in values.items()]
            return header_fields.as_value()

        checksum = Signal(WORD_BITS)
        ethernet = header(
            "ethernet", ETHERNET, destination=i.peer.mac, source=own.mac, ethertype=ETHERTYPE_IPV4
        )
        constant_fields = {"version": 4, "ihl": byte_length(IPV4) // 4, "flags": DONT_FRAGMENT}
        constant_fields |= {"ttl": TTL, "protocol": IP_PROTOCOL_UDP}
        addresses = {"source": own.ip, "destination": i.peer.ip}
        tos = i.peer.traffic_class
        ip = header("ip", IPV4, tos=tos, length=length, checksum=checksum, **constant_fields, **addresses)
        # Constant fields and the ToS are summed here, to one of the six words that the hardware adds.
        constant = ~internet_checksum(pack_fields(IPV4, constant_fields)) % (1 << WORD_BITS)
        assert constant + (1 << len(tos)) < 1 << WORD_BITS, "the sum must not overflow: no end-around carry"
        constant_sum = Signal(WORD_BITS)
        m.d.sync += constant_sum.eq(constant + tos)
        summands = Cat(length, constant_sum, *addresses.values())
        m.submodules.sum = total = OnesComplementSum(words=len(summands) // WORD_BITS)
        m.d.comb += total.i.eq(summands)
        m.d.comb += checksum.eq(~total.o)
        ports = {"source_port": i.peer.port, "destination_port": ROCE_PORT}
        udp_length = Signal(field_bits(UDP, "length"))
        m.d.sync += udp_length.eq(length - byte_length(IPV4))
        udp = header("udp", UDP, length=udp_length, **ports)
        bth = header(
            "bth", BTH, opcode=i.opcode, migration=1, pad=-i.size[:2], partition=PARTITION,
            queue_pair=i.peer.queue_pair, acknowledge=i.acknowledge, psn=i.psn,
        )  # fmt: skip
        reth = header("reth", RETH, address=i.address, rkey=i.rkey, length=i.length)
        immediate = header("immediate", IMMEDIATE, immediate=i.immediate)
        aeth = header("aeth", AETH, syndrome=i.syndrome, msn=i.msn)
        # After the BTH come the further headers of the opcode, in the order of the wire.
        is_answer, has_immediate, begins = (
            Signal(name=name) for name in ("is_answer", "has_immediate", "begins")
        )
        m.d.sync += [
            is_answer.eq(i.opcode == Opcode.ACKNOWLEDGE),
            has_immediate.eq(opcode_is(i.opcode, "has_immediate")),
            begins.eq(opcode_is(i.opcode, "begins")),
        ]
        last_header = Mux(is_answer, swap_bytes(aeth), swap_bytes(immediate))
        last_header = last_header & (has_immediate | is_answer).replicate(len(last_header))
        padding = Const(0, len(reth))
        extension_headers = Mux(begins, Cat(swap_bytes(reth), last_header), Cat(last_header, padding))
        return Cat(*(swap_bytes(part) for part in (ethernet, ip, udp, bth)), extension_headers)
