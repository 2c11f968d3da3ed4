"""What the reliable link's headers have in common, whoever uses it (docs/systems/link.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_UDP, IPV4, UDP, Encap
from fanin.wire.fields import Field, byte_length, unpack_fields

ETHERTYPE_LINK = 0x88B6  # IEEE 802 local experimental
LINK_PORT = ETHERTYPE_LINK  # of UDP
TOS_SHIFT = 5  # a priority is the upper three bits of IPv4's type of service
MAX_FRAMES = 256  # of a link's buffer
LINK_CONTROL_BYTES = 64  # a frame of any kind but DATA, zeros behind the header
_UDP_HEADER_BYTES = 64  # with UDP zeros behind the header, so that it is whole beats

_IP_AT = byte_length(ETHERNET)
_UDP_AT = _IP_AT + byte_length(IPV4)
_BEHIND_UDP = _UDP_AT + byte_length(UDP)
#: Where a link's header begins, by the EtherType.
_HEADER_AT = {ETHERTYPE_LINK.to_bytes(2, "big"): _IP_AT, ETHERTYPE_IPV4.to_bytes(2, "big"): _BEHIND_UDP}


class LinkKind(IntEnum):
    """What a frame of a link is: words for the peer, its two answers, and the question for one."""

    DATA = 0
    ACK = 1
    NAK = 2
    PROBE = 3


@dataclass(frozen=True)
class LinkFormat:
    """Header of one user of the link, and the use of its fields.

    All headers have the fields ``version``, ``kind`` and ``sequence``.

    ``job``: names of the fields that identify the job. A frame of another job is foreign.
    ``agreed``: fields with settings that both ends have alike. A DATA or PROBE frame with another value is a
    mismatch.
    ``data``: fields that the user sets in each DATA frame.
    ``limit``: field of an ACK or NAK with the first sequence number without room.
    ``sender``: fields that identify the sender. A DATA or PROBE frame with another value than that of the
    previous end is a mismatch.
    ``told``: fields that the user sets in answers.
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
        """Fields of which another value than the expected one is a mismatch."""
        return self.agreed + self.sender

    def header_bytes(self, encap: Encap) -> int:
        """Bytes of a frame in front of its payload."""
        if encap is Encap.UDP:
            return _UDP_HEADER_BYTES
        return byte_length(ETHERNET) + byte_length(self.fields)

    def header_at(self, encap: Encap) -> int:
        """Bytes of a frame in front of the header itself."""
        return _BEHIND_UDP if encap is Encap.UDP else _IP_AT

    def read_header(self, frame: bytes) -> dict[str, int] | None:
        """The fields of a frame, of which its beginning is enough; None for other traffic.

        Told apart by EtherType, with UDP by the port, by version and kind. Nothing else is checked.
        """
        at = _HEADER_AT.get(frame[_IP_AT - 2 : _IP_AT])
        if at is None or len(frame) < at + byte_length(self.fields):
            return None
        if at == _BEHIND_UDP:
            ip, udp = unpack_fields(IPV4, frame[_IP_AT:]), unpack_fields(UDP, frame[_UDP_AT:])
            if (ip["protocol"], udp["destination_port"]) != (IP_PROTOCOL_UDP, LINK_PORT):
                return None
        header = unpack_fields(self.fields, frame[at:])
        ours = header["version"] == self.version and header["kind"] < len(LinkKind)
        return header if ours else None

    def frame_bytes(self, kind: int, payload: int, *, encap: Encap, beat_bytes: int) -> int:
        """Bytes of a frame without FCS: whole beats, and never less than a control frame."""
        size = self.header_bytes(encap) + payload if kind == LinkKind.DATA else LINK_CONTROL_BYTES
        return max(-(-size // beat_bytes) * beat_bytes, LINK_CONTROL_BYTES)
