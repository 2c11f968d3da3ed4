"""Data layouts about frames, shared by the parts of a NIC stage."""
# Amaranth takes widths as annotations, and a shape as an argument of the class:
# mypy: disable-error-code="valid-type, call-arg"

from amaranth.lib import data, enum

from fanin.wire.ethernet import ETHERNET, IPV4
from fanin.wire.fields import byte_length

BEAT_BITS = 256  # a burst of the paper; the parsed headers are in the first two beats
BEAT_BYTES = BEAT_BITS // 8
GROUP = 8  # values of a burst
WORD_BYTES = 4
LENGTH_BYTES = 2  # stated length before a compressed payload: its bytes before compression
IP_START = byte_length(ETHERNET)
TRANSPORT_START = IP_START + byte_length(IPV4)
LANE_BITS = (BEAT_BYTES - 1).bit_length()
MIN_MAX_FRAME, MAX_MAX_FRAME = 128, 16384

# Layout of a beat in a queue; its ``keep`` follows from the frame's length.
BEAT = data.StructLayout({"data": BEAT_BITS, "last": 1})


class Header(data.Struct):
    """Header fields of a frame; valid only if ``compressible`` or ``raw`` is 1, except these two."""

    compressible: 1  # to be compressed or decompressed, if the frame is as long as it states
    raw: 1  # receiver only: marked as not compressed, if the frame is as long as it states
    udp: 1  # 1 UDP, 0 TCP
    words: 4  # 32-bit words of the UDP or TCP header
    payload: 16  # bytes after that header
    span: 16  # index of the last byte for the codec, from the first one
    empty: 1  # no byte goes to the codec
    length: 16  # IPv4 total length
    end: 17  # index of the packet's last byte in the frame
    ip_checksum: 16
    checksum: 16  # checksum of the UDP or TCP header


class Record(data.Struct):
    """Record of a frame whose last beat has passed."""

    header: Header
    bytes: 16  # length of the frame
    bad: 1  # the MAC reported an error, or the frame is too long
    whole: 1  # the packet's last byte is present
    cut: 1  # the payload went to the codec
    stated: 16  # receiver: bytes of the payload before compression


class Total(data.Struct):
    """Measurements of a frame of a packet stream."""

    bytes: 16
    sum: 16  # ones' complement, of 16-bit words in network order
    error: 1


class Kind(enum.IntEnum, shape=2):
    """Treatment of a frame."""

    DROP = 0
    PASS = 1  # untouched
    RAW = 2  # ToS and IPv4 checksum change
    CODED = 3  # the payload comes from the codec


class Assembly(data.Struct):
    """Job to assemble a frame."""

    kind: Kind
    cut: 1  # the codec has a payload for it, to be used or discarded
    udp: 1
    words: 4
    final: 14  # index of the frame's last byte
    length: 16  # IPv4 total length
    segment: 16  # length without the IPv4 header
    ip_checksum: 16
    checksum: 16
    stated: 16  # transmitter: bytes of the payload before compression


class Events(data.Struct):
    """Events for counters: a frame's kind and bytes, in the cycle of its decision."""

    coded: 1
    raw: 1
    bypassed: 1
    dropped: 1
    bytes_in: 16
    bytes_out: 16


def check_max_frame(max_frame: int) -> None:
    """Raise ValueError unless frames of ``max_frame`` bytes can be held."""
    if not isinstance(max_frame, int) or not MIN_MAX_FRAME <= max_frame <= MAX_MAX_FRAME:
        raise ValueError(f"max_frame must be {MIN_MAX_FRAME} to {MAX_MAX_FRAME} bytes, not {max_frame!r}")


def beats_of(size: int) -> int:
    """Return the beats of a frame of ``size`` bytes."""
    return -(-size // BEAT_BYTES)
