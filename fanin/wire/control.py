"""Control of a board over UDP, declared once: docs/boards.md, "Control". Network byte order.

A request and its reply have the same header. Words that follow are of 32 bits, the first one of a load at the
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
    """What is asked for."""

    HELLO = 0  #: who holds the board, and the offer of a lease; needs no lease
    ACCESS = 1  #: reads and writes of single words, in order
    LOAD = 2  #: words written in a row
    DUMP = 3  #: words read in a row
    CHECKSUM = 4  #: the CRC-32 of words read in a row
    RELEASE = 5  #: the lease is given up


class Status(IntEnum):
    """What became of a request."""

    REQUEST = 0  #: it is one: a reply never has this, so that two boards cannot answer each other for ever
    DONE = 1
    HELD = 2  #: another lease holds the board; nothing was carried out
    MALFORMED = 3  #: nothing was carried out
    BUS = 4  #: the bus answered with an error, or not at all; the address follows, nothing behind it was done
    UNKNOWN = 5  #: nobody holds the board; the lease is neither the last one nor offered to this address


def _named(values: Iterable[IntEnum]) -> str:
    return ", ".join(f"{value.value} {value.name.lower()}" for value in values)


CONTROL = (
    Field("magic", 16, f"0x{MAGIC:X}"),
    Field("version", 4, str(VERSION)),
    Field("kind", 4, _named(Kind)),
    Field("status", 8, f"0 in a request; reply: {_named(list(Status)[1:])}"),
    Field("lease", 32, "number that the board has offered; any number in a hello, else not 0"),
    Field("sequence", 32, "of the request; a lease's first is 1"),
    Field("count", 16, "operations or words that follow; dump: words to be read"),
)
FIRST_SEQUENCE = 1

#: Words of the reply to hello, a field each. Its request has as many words, of any value.
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
IDENTITY_WORDS = ABOUT_WORDS - 2  # between holder and offer, which the lease gives

# Where headers begin in a frame, in bytes; at REST_AT, that of UDP or ICMP.
IP_AT = byte_length(ETHERNET)
REST_AT = IP_AT + byte_length(IPV4)
CONTROL_AT = REST_AT + byte_length(UDP)
MAX_FRAME = 1514  #: bytes without FCS: Ethernet's usual limit, that of echo and ARP, too
MAX_PAYLOAD = MAX_FRAME - CONTROL_AT
MAX_BODY = MAX_PAYLOAD - byte_length(CONTROL)
MAX_OPERATIONS = MAX_BODY // (2 * WORD_BYTES)
MAX_LOAD = MAX_BODY // WORD_BYTES - 1  # behind the address
MAX_DUMP = MAX_BODY // WORD_BYTES
MAX_CHECKSUM = 65535  # words: the board is busy while it reads them
WRITE_BIT = 1  # of an access' address


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
    """The UDP payload."""
    header = pack_fields(CONTROL, {field.name: int(getattr(frame, field.name)) for field in CONTROL})
    return header + pack_words(frame.words)


def hello_request(sequence: int, *, lease: int = 0) -> ControlFrame:
    """The request for what a board is, who holds it, and an offer."""
    return ControlFrame(Kind.HELLO, lease, sequence, words=(0,) * ABOUT_WORDS)


def decode_control(payload: bytes) -> ControlFrame | None:
    """The frame of a UDP payload; None if that is too short, has another magic, or a part of a word."""
    size = byte_length(CONTROL)
    if len(payload) < size or (len(payload) - size) % WORD_BYTES:
        return None
    header = unpack_fields(CONTROL, payload)
    if header["magic"] != MAGIC:
        return None
    return ControlFrame(words=unpack_words(payload[size:]), **header)


def pack_words(words: Sequence[int]) -> bytes:
    """Words as they travel."""
    return struct.pack(f">{len(words)}I", *words)


def unpack_words(body: bytes) -> tuple[int, ...]:
    """The words of whole words of bytes."""
    return struct.unpack(f">{len(body) // WORD_BYTES}I", body)


def memory_bytes(words: Sequence[int]) -> bytes:
    """Words as bytes in a memory, the lowest first: what a checksum is of."""
    return struct.pack(f"<{len(words)}I", *words)
