"""Common part of all headers of the reliable link (docs/systems/link.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP, Encap
from fanin.wire.fields import Field, byte_length, unpack_fields

ETHERTYPE_LINK = 0x88B6  # IEEE 802 local experimental
LINK_PORT = ETHERTYPE_LINK  # UDP port
TOS_SHIFT = 5  # a priority is the upper three bits of IPv4's type of service
MAX_FRAMES = 256  # in a link's buffer
FRAME_COUNTS = tuple(1 << n for n in range(1, MAX_FRAMES.bit_length()))  # possible sizes of a buffer
LINK_CONTROL_BYTES = 64  # length of a frame of any kind except DATA, padded with zeros
FLOOR_CYCLES = 16  #: default of the least distance of a retransmission timeout from the mean round trip
ARRIVED_BITS = 32  # bitmap of an ACK or NAK, in the bytes after the header
_UDP_HEADER_BYTES = 64  # headers with UDP, padded with zeros to a whole beat

_IP_AT = byte_length(ETHERNET)
_UDP_AT = _IP_AT + byte_length(IPV4)
_AFTER_UDP = _UDP_AT + byte_length(UDP)
#: Field after the header of a control frame. Bit i: frame ``sequence`` + 1 + i has arrived; 0 in a PROBE.
ARRIVED = (Field("arrived", ARRIVED_BITS, "ACK and NAK: bit i is 1 if frame sequence + 1 + i has arrived"),)
#: Offset of a link's header by EtherType.
_HEADER_AT = {ETHERTYPE_LINK.to_bytes(2, "big"): _IP_AT, ETHERTYPE_IPV4.to_bytes(2, "big"): _AFTER_UDP}


class LinkKind(IntEnum):
    """Kind of a link's frame: data, its two answers, and the request for an answer."""

    DATA = 0
    ACK = 1
    NAK = 2
    PROBE = 3


@dataclass(frozen=True)
class LinkFormat:
    """Header of one user of the link (ring or connection), and the use of its fields.

    All headers have the fields ``version``, ``kind`` and ``sequence``. The other fields are named by their use:

    - ``job``: identify the job. A frame of another job is foreign.
    - ``agreed``: settings that both ends share. A DATA or PROBE frame with another value is a mismatch.
    - ``data``: set by the user in each DATA frame.
    - ``limit``: in an ACK or NAK, the first sequence number without room.
    - ``sender``: identify the sender. A DATA or PROBE frame with another value than the previous node's is a
      mismatch.
    - ``told``: set by the user in each ACK and NAK.
    """

    fields: tuple[Field, ...]
    version: int
    job: tuple[str, ...]
    agreed: tuple[str, ...]
    data: tuple[str, ...]
    limit: str
    sender: tuple[str, ...] = ()
    told: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[str, ...]:
        """Fields in which an unexpected value is a mismatch."""
        return self.agreed + self.sender

    def header_bytes(self, encap: Encap) -> int:
        """Return the bytes of a frame before its payload."""
        if encap is Encap.UDP:
            return _UDP_HEADER_BYTES
        return byte_length(ETHERNET) + byte_length(self.fields)

    def header_at(self, encap: Encap) -> int:
        """Return the bytes of a frame before the link's header."""
        return _AFTER_UDP if encap is Encap.UDP else _IP_AT

    def read_header(self, frame: bytes) -> dict[str, int] | None:
        """Decode the header of a frame, of which the beginning suffices; None for other traffic.

        Traffic is recognised by EtherType (and UDP port), version and kind. Nothing else is checked.
        """
        offset = _HEADER_AT.get(frame[_IP_AT - 2 : _IP_AT])
        if offset is None or len(frame) < offset + byte_length(self.fields):
            return None
        if offset == _AFTER_UDP:
            ip, udp = unpack_fields(IPV4, frame[_IP_AT:]), unpack_fields(UDP, frame[_UDP_AT:])
            if (ip["protocol"], udp["destination_port"]) != (IP_PROTOCOL_UDP, LINK_PORT):
                return None
        header = unpack_fields(self.fields, frame[offset:])
        is_link_header = header["version"] == self.version and header["kind"] < len(LinkKind)
        return header if is_link_header else None

    def frame_bytes(self, kind: int, payload: int, *, encap: Encap, beat_bytes: int) -> int:
        """Return the bytes of a frame without FCS: whole beats, at least the length of a control frame."""
        size = self.header_bytes(encap) + payload if kind == LinkKind.DATA else LINK_CONTROL_BYTES
        return max(-(-size // beat_bytes) * beat_bytes, LINK_CONTROL_BYTES)
