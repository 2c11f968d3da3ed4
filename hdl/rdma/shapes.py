"""Data layouts of packets and payloads, shared by the parts of the NIC."""
# Amaranth takes widths as annotations:
# mypy: disable-error-code="valid-type"

from collections.abc import Callable

from amaranth import Cat, Const, Value
from amaranth.lib import data

from fanin.hdl.bus.axi4 import BOUNDARY
from fanin.hdl.net.vlan import Tag
from fanin.rdma.facts import MAX_PAYLOAD, payload_words
from fanin.wire.ethernet import ETHERNET, IPV4, UDP
from fanin.wire.fields import field_bits
from fanin.wire.rdma import AETH, BTH, IMMEDIATE, MOST_HEADER_BYTES, RETH, Opcode, header_bytes

SIZE_BITS = MAX_PAYLOAD.bit_length()  # bits of a packet's payload size, 0 to 4096 bytes
assert MAX_PAYLOAD <= BOUNDARY  # so a payload crosses at most one such boundary


def lane_bits(width: int) -> int:
    """Return the bits of a lane number: a byte's place in a word."""
    return (width // 8 - 1).bit_length()


def words_bits(width: int) -> int:
    """Return the bits of a payload's number of words."""
    return payload_words(width).bit_length()


def header_words(width: int) -> int:
    """Return the words that the longest header reaches into."""
    return -(-MOST_HEADER_BYTES // (width // 8))


class Peer(data.Struct):
    """The other end of a queue pair: its number and addresses, and the marks of frames to it."""

    queue_pair: field_bits(BTH, "queue_pair")
    mac: field_bits(ETHERNET, "destination")
    ip: field_bits(IPV4, "destination")
    port: field_bits(UDP, "source_port")  # this node's source port
    traffic_class: field_bits(IPV4, "tos")
    tag: Tag


class Headers(data.Struct):
    """Packet to send, without its payload; fields that its opcode does not have are ignored."""

    peer: Peer
    opcode: field_bits(BTH, "opcode")
    acknowledge: 1
    psn: field_bits(BTH, "psn")
    address: field_bits(RETH, "address")
    rkey: field_bits(RETH, "rkey")
    length: field_bits(RETH, "length")
    immediate: field_bits(IMMEDIATE, "immediate")
    syndrome: field_bits(AETH, "syndrome")
    msn: field_bits(AETH, "msn")
    size: SIZE_BITS  # bytes of payload


def fetch_layout(*, width: int, address_width: int) -> data.StructLayout:
    """Return the layout of a payload to read: ``size`` ≥ 1 bytes from ``address``, the first to ``lane``."""
    return data.StructLayout({"address": address_width, "size": SIZE_BITS, "lane": lane_bits(width)})


def store_layout(*, width: int, address_width: int) -> data.StructLayout:
    """Return the layout of a payload to write: ``size`` bytes, from ``lane`` on, to ``address``.

    ``keep``: write the payload; 0: discard its words.
    """
    return data.StructLayout({"address": address_width, "size": SIZE_BITS, "lane": lane_bits(width), "keep": 1})


def opcode_is(opcode: Value, property_name: str) -> Value:
    """Return whether ``opcode`` has a property: ``begins``, ``ends`` or ``has_immediate``."""
    return opcode.matches(*(code for code in Opcode if getattr(code, property_name)))


def by_opcode(opcode: Value, value_of: Callable[[Opcode], int]) -> Value:
    """Return ``value_of(opcode)``; for an unsupported opcode the result is unspecified."""
    selection: Value = Const(0, 0)
    values = {code: value_of(code) for code in Opcode}
    for value in sorted(set(values.values())):
        codes = [code for code, other in values.items() if other == value]
        width = max(values.values()).bit_length()
        selection = selection | (Cat(opcode == code for code in codes).any().replicate(width) & value)
    return selection


def header_lane(width: int, opcode: Value) -> Value:
    """Return the lane of a payload's first byte in its frame."""
    return by_opcode(opcode, lambda code: header_bytes(code) % (width // 8))
