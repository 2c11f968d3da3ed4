"""Packets between a controller and the CPU port: P4Runtime's metadata and the program's controller headers."""

from __future__ import annotations

from typing import Any

from finsy.proto import p4i, p4r

from fanin.sim.switch.service.data import as_bytes
from fanin.sim.switch.service.faults import invalid, missing

IN, OUT = "packet_in", "packet_out"


class ControllerPackets:
    """The headers of one P4Info; a program without them exchanges frames as they are."""

    def __init__(self, info: p4i.P4Info):
        self._headers = {message.preamble.name: message for message in info.controller_packet_metadata}

    def frame_of(self, packet: p4r.PacketOut) -> bytes:
        """What enters at the CPU port. Raises Fault where the metadata are not the header's."""
        header = self._headers.get(OUT)
        given = {item.metadata_id: int.from_bytes(item.value, "big") for item in packet.metadata}
        fields = list(header.metadata) if header else []
        if set(given) != {field.id for field in fields}:
            raise invalid(f"a packet to the switch has the metadata {[field.name for field in fields]}")
        bits = width = 0
        for field in fields:
            if given[field.id] >> field.bitwidth:
                raise invalid(f"{field.name}: {given[field.id]} does not fit in {field.bitwidth} bits")
            bits, width = bits << field.bitwidth | given[field.id], width + field.bitwidth
        if width % 8:
            raise missing(f"a {OUT} header of {width} bits")
        return bits.to_bytes(width // 8, "big") + packet.payload

    def packet_of(self, frame: bytes) -> p4r.PacketIn | None:
        """What left by the CPU port; None where it is shorter than the program's header."""
        header = self._headers.get(IN)
        fields: list[Any] = list(header.metadata) if header else []
        width = sum(field.bitwidth for field in fields)
        size = (width + 7) // 8
        if len(frame) < size:
            return None
        bits = int.from_bytes(frame[:size], "big") >> (8 * size - width)
        packet = p4r.PacketIn(payload=frame[size:])
        for field in reversed(fields):
            value = bits & (1 << field.bitwidth) - 1
            packet.metadata.add(metadata_id=field.id, value=as_bytes(value, field.bitwidth))
            bits >>= field.bitwidth
        packet.metadata.reverse()
        return packet
