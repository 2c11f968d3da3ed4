"""Control protocol of a board over UDP, declared once: docs/systems/boards.md, "Control". Network byte order.

A request and its reply have the same header, followed by words of 32 bits. The first word of a load is for the
lowest address.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from fanin.wire.ethernet import ETHERNET, IPV4, UDP
from fanin.wire.fields import Field, byte_length, pack_fields, unpack_fields

CONTROL_PORT = 34998
MAGIC = 0xFA17
VERSION = 2
WORD_BYTES = 4


class Kind(IntEnum):
    """Kind of a request."""

    HELLO = 0  #: holder of the board, and an offer of a lease; needs no lease
    ACCESS = 1  #: reads and writes of single words, in order
    LOAD = 2  #: writes of consecutive words
    DUMP = 3  #: reads of consecutive words
    CHECKSUM = 4  #: CRC-32 of consecutive words
    RELEASE = 5  #: end of the lease


class Status(IntEnum):
    """Result of a request."""

    REQUEST = 0  #: not a reply; replies never have it, so that two boards cannot answer each other endlessly
    DONE = 1
    HELD = 2  #: another lease holds the board; nothing was carried out
    MALFORMED = 3  #: nothing was carried out
    BUS = 4  #: bus error or timeout at the address that follows; later operations were not carried out
    UNKNOWN = 5  #: no lease holds the board, and this one is neither the last nor offered to this address


def _meanings(values: Iterable[IntEnum]) -> str:
    return ", ".join(f"{value.value} {value.name.lower()}" for value in values)


CONTROL = (
    Field("magic", 16, f"0x{MAGIC:X}"),
    Field("version", 4, str(VERSION)),
    Field("kind", 4, _meanings(Kind)),
    Field("status", 8, f"0 in a request; reply: {_meanings(list(Status)[1:])}"),
    Field("lease", 32, "number that the board has offered; any number in a hello, else not 0"),
    Field("sequence", 32, "of the request; a lease's first is 1"),
    Field("count", 16, "operations or words that follow; dump: words to be read"),
)
FIRST_SEQUENCE = 1

#: Words of the reply to hello, one field each. The request has the same number of words, of any value.
ABOUT = (
    Field("holder", 32, "IPv4 address of the host that holds the board; 0: nobody"),
    Field("board", 32, "which kind of board it is; in the upper half, the version of its registers"),
    Field("build", 32, "build number"),
    Field("uptime", 32, "seconds since reset"),
    Field("state", 32, "the board register `state`: link, speed, what runs, faults"),
    Field("offer", 32, "number of the next lease, for the address that the hello came from; not 0"),
)
VERSION_AT = 16  # bit of ``board``
ABOUT_WORDS = byte_length(ABOUT) // WORD_BYTES
IDENTITY_WORDS = ABOUT_WORDS - 2  # without holder and offer

# Offsets of headers in a frame, in bytes; UDP or ICMP is at REST_AT.
IP_AT = byte_length(ETHERNET)
REST_AT = IP_AT + byte_length(IPV4)
CONTROL_AT = REST_AT + byte_length(UDP)
MAX_FRAME = 1514  #: bytes without FCS: Ethernet's usual limit; also for echo and ARP
MAX_PAYLOAD = MAX_FRAME - CONTROL_AT
MAX_BODY = MAX_PAYLOAD - byte_length(CONTROL)
MAX_OPERATIONS = MAX_BODY // (2 * WORD_BYTES)
MAX_LOAD = MAX_BODY // WORD_BYTES - 1  # words after the address
MAX_DUMP = MAX_BODY // WORD_BYTES
MAX_CHECKSUM = 65535  # words: the board is busy while it reads them
WRITE_BIT = 1  # in the address of an access


@dataclass(frozen=True)
class ControlFrame:
    """A request or a reply: header, and the words that follow."""

    kind: int
    lease: int
    sequence: int
    count: int = 0
    words: tuple[int, ...] = ()
    status: int = Status.REQUEST
    magic: int = MAGIC
    version: int = VERSION


def encode_control(frame: ControlFrame) -> bytes:
    """Return the UDP payload of a frame."""
    header = pack_fields(CONTROL, {field.name: int(getattr(frame, field.name)) for field in CONTROL})
    return header + pack_words(frame.words)


def hello_request(sequence: int, *, lease: int = 0) -> ControlFrame:
    """Return a request for a board's description, holder, and an offer."""
    return ControlFrame(Kind.HELLO, lease, sequence, words=(0,) * ABOUT_WORDS)


def decode_control(payload: bytes) -> ControlFrame | None:
    """Decode a UDP payload; None if it is too short, has another magic, or ends within a word."""
    size = byte_length(CONTROL)
    if len(payload) < size or (len(payload) - size) % WORD_BYTES:
        return None
    header = unpack_fields(CONTROL, payload)
    if header["magic"] != MAGIC:
        return None
    return ControlFrame(words=unpack_words(payload[size:]), **header)


def pack_words(words: Sequence[int]) -> bytes:
    """Return words as bytes on the wire."""
    return struct.pack(f">{len(words)}I", *words)


def unpack_words(body: bytes) -> tuple[int, ...]:
    """Return the words in ``body``, whose length is a multiple of 4 bytes."""
    return struct.unpack(f">{len(body) // WORD_BYTES}I", body)


def memory_bytes(words: Sequence[int]) -> bytes:
    """Return words as bytes in memory, lowest first; checksums are computed over these."""
    return struct.pack(f"<{len(words)}I", *words)
