"""Packets between a controller and the CPU port: P4Runtime's metadata and the program's controller headers."""

from __future__ import annotations

from finsy.proto import p4i, p4r

from fanin.sim.switch.embedded import Program
from fanin.sim.switch.service.data import as_bytes, number_text
from fanin.sim.switch.service.faults import invalid, unimplemented

IN, OUT = "packet_in", "packet_out"


class ControllerPackets:
    """Headers of the packets between ``program`` and its controller, by the ids of ``info``.

    A program without such headers exchanges plain frames.
    """

    def __init__(self, info: p4i.P4Info, program: Program):
        self._headers = {message.preamble.name: message for message in info.controller_packet_metadata}
        self._widths = {
            header.kind: {field.name: field.width for field in header.fields}
            for header in program.controller_headers
        }

    def frame_of(self, packet: p4r.PacketOut) -> bytes:
        """Return the frame that enters at the CPU port. Raises Fault where metadata are not the header's."""
        fields = self._fields(OUT)
        if sorted(metadata.metadata_id for metadata in packet.metadata) != sorted(field.id for field in fields):
            raise invalid(f"a packet to the switch has the metadata {[field.name for field in fields]}")
        values = {metadata.metadata_id: metadata.value for metadata in packet.metadata}
        bits = width = 0
        for field in fields:
            field_width = self._widths[OUT][field.name]
            bits, width = (
                bits << field_width | _field_value(values[field.id], field, field_width),
                width + field_width,
            )
        if width % 8:
            raise unimplemented(f"a {OUT} header of {width} bits")
        return bits.to_bytes(width // 8, "big") + packet.payload

    def packet_of(self, frame: bytes) -> p4r.PacketIn | None:
        """Return the packet that left by the CPU port; None where it is shorter than the program's header."""
        fields = self._fields(IN)
        widths = [self._widths[IN][field.name] for field in fields]
        width = sum(widths)
        size = (width + 7) // 8
        if len(frame) < size:
            return None
        bits = int.from_bytes(frame[:size], "big") >> (8 * size - width)
        packet = p4r.PacketIn(payload=frame[size:])
        for field, field_width in zip(fields, widths, strict=True):
            width -= field_width
            packet.metadata.add(metadata_id=field.id, value=as_bytes(bits >> width, field_width))
        return packet

    def _fields(self, kind: str) -> list[p4i.ControllerPacketMetadata.Metadata]:
        header = self._headers.get(kind)
        return list(header.metadata) if header else []


def _field_value(data: bytes, field: p4i.ControllerPacketMetadata.Metadata, width: int) -> int:
    """Return the value of a field that has ``width`` bits in the program. Raises Fault."""
    if not field.bitwidth:
        raise unimplemented(f"{field.name}: a value that controllers know as a text")
    number = int.from_bytes(data, "big")
    if not data or number >> min(width, field.bitwidth):
        value = number_text(number) if data else "an empty value"
        raise invalid(f"{field.name}: {value} does not fit in {min(width, field.bitwidth)} bits")
    return number
