"""The layouts of packets and payloads that the parts of the NIC exchange."""
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

SIZE_BITS = MAX_PAYLOAD.bit_length()  # of a packet's payload in bytes, 0 to 4096
assert MAX_PAYLOAD <= BOUNDARY  # a payload crosses at most one such boundary


def lane_bits(width: int) -> int:
    """Bits of a byte's place in a word."""
    return (width // 8 - 1).bit_length()


def words_bits(width: int) -> int:
    """Bits of the number of words in which a payload lies."""
    return payload_words(width).bit_length()


def header_words(width: int) -> int:
    """Words that the longest header reaches into."""
    return -(-MOST_HEADER_BYTES // (width // 8))


class Peer(data.Struct):
    """The other end of a queue pair: its number and addresses, and what marks frames to it."""

    queue_pair: field_bits(BTH, "queue_pair")
    mac: field_bits(ETHERNET, "destination")
    ip: field_bits(IPV4, "destination")
    port: field_bits(UDP, "source_port")  # that we send from
    traffic_class: field_bits(IPV4, "tos")
    tag: Tag


class Headers(data.Struct):
    """A packet to send, but for its payload; what its opcode does not have is ignored."""

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
    """A payload to read: ``size`` bytes, 1 or more, from byte ``address``, the first to stand at ``lane``."""
    return data.StructLayout({"address": address_width, "size": SIZE_BITS, "lane": lane_bits(width)})


def store_layout(*, width: int, address_width: int) -> data.StructLayout:
    """A payload to write: ``size`` bytes, the first of which stands at ``lane``, from byte ``address`` on.

    Without ``keep`` its words are thrown away.
    """
    return data.StructLayout({"address": address_width, "size": SIZE_BITS, "lane": lane_bits(width), "keep": 1})


def opcode_is(opcode: Value, what: str) -> Value:
    """Whether it ``begins`` or ``ends`` a message, or ``has_immediate``: as Opcode says it."""
    return opcode.matches(*(code for code in Opcode if getattr(code, what)))


def by_opcode(opcode: Value, of: Callable[[Opcode], int]) -> Value:
    """``of`` the opcode; what is not spoken has that of any other."""
    chosen: Value = Const(0, 0)
    values = {code: of(code) for code in Opcode}
    for value in sorted(set(values.values())):
        codes = [code for code, other in values.items() if other == value]
        width = max(values.values()).bit_length()
        chosen = chosen | (Cat(opcode == code for code in codes).any().replicate(width) & value)
    return chosen


def header_lane(width: int, opcode: Value) -> Value:
    """The lane at which the payload of a packet begins in its frame."""
    return by_opcode(opcode, lambda code: header_bytes(code) % (width // 8))
