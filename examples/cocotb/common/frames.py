"""fanin's headers as layers of scapy, built from ``fanin.wire``; ``Ether(frame)`` parses them."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from scapy.contrib.roce import BTH
from scapy.fields import BitField, FieldListField, SignedIntField
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_layers

from fanin.wire import aggregation, rdma, ring
from fanin.wire.ethernet import MIN_FRAME_BYTES
from fanin.wire.fields import Field
from fanin.wire.link import ETHERTYPE_LINK


def layer(name: str, fields: Sequence[Field], *more: object) -> type[Packet]:
    """Return a layer of scapy with ``fields``, followed by ``more`` fields of scapy's own."""
    declared = [BitField(field.name, 0, field.bits) for field in fields]
    return type(name, (Packet,), {"name": name, "fields_desc": [*declared, *more]})


def mac(address: int) -> str:
    """Return a MAC address in scapy's notation."""
    return address.to_bytes(6, "big").hex(":")


def ip(address: int) -> str:
    """Return an IPv4 address in scapy's notation."""
    return str(IPv4Address(address))


def raw_frame(packet: Packet) -> bytes:
    """Return the bytes of a frame, padded to the minimum length."""
    return bytes(packet).ljust(MIN_FRAME_BYTES, b"\0")


_values = FieldListField(
    "values", [], SignedIntField("value", 0), count_from=lambda packet: aggregation.DEFAULT_VALUES
)
Aggregation = layer("Aggregation", aggregation.AGGREGATION, _values)
Ring = layer("Ring", ring.RING)
#: Headers after the BTH of a WRITE packet, by opcode; scapy itself has the header of an acknowledgement.
RDMA_HEADERS = {
    opcode: layer(opcode.name, [field for header in rdma.extensions(opcode) for field in header])
    for opcode in rdma.Opcode
    if opcode.begins or opcode.has_immediate
}

bind_layers(Ether, Aggregation, type=aggregation.ETHERTYPE_AGGREGATION)
bind_layers(Ether, Ring, type=ETHERTYPE_LINK)
for _opcode, _header in RDMA_HEADERS.items():
    bind_layers(BTH, _header, opcode=_opcode)
