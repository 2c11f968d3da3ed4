"""Alignment of TCP segments to values; INCEPTIONN's NIC may compress only segments that begin with a value.

The NIC reads a payload as values of four bytes from its first byte on, but TCP may cut its stream anywhere. All
frames from a host to its NIC therefore pass :class:`Alignment`, as they would in a driver. It learns the start
of a connection's stream from the SYN, and prevents compression of segments that begin inside a value
(docs/systems/inceptionn-nic.md).
"""

from __future__ import annotations

from collections import OrderedDict

from fanin.codec.facts import FLOAT_BITS, TOS_COMPRESSIBLE
from fanin.codec.golden.packet import without_compression
from fanin.wire.ethernet import ETHERNET, ETHERTYPE_IPV4, IP_PROTOCOL_TCP, IPV4, TCP
from fanin.wire.fields import byte_length, unpack_fields
from fanin.wire.tcp import SYN

MAX_CONNECTIONS = 65_536  #: connections tracked at once; the least recently used one is dropped
_IP = byte_length(ETHERNET)
_TCP = _IP + byte_length(IPV4)
_PAYLOAD = _TCP + byte_length(TCP)
_IPV4_WITHOUT_OPTIONS = bytes([0x45])  # version 4, no options
_TYPE = ETHERTYPE_IPV4.to_bytes(2, "big")
_VALUE_BYTES = FLOAT_BITS // 8


class Alignment:
    """Tracker of a host's TCP connections. ``unaligned``: number of segments marked against compression.

    The first byte of a stream is the first byte of a value. A connection whose SYN was not seen is never
    compressed.
    """

    def __init__(self) -> None:
        self.unaligned = 0
        self._starts: OrderedDict[bytes, int] = OrderedDict()  # by both ends: sequence number of the first byte

    def prepare(self, frame: bytes) -> bytes:
        """Return a host's frame as the NIC must get it: unchanged, or marked against compression."""
        is_ipv4 = frame[_IP - 2 : _IP] == _TYPE and frame[_IP : _IP + 1] == _IPV4_WITHOUT_OPTIONS
        if not is_ipv4 or len(frame) < _PAYLOAD or frame[_IP + 9] != IP_PROTOCOL_TCP:
            return frame
        tcp = unpack_fields(TCP, frame[_TCP:_PAYLOAD])
        ends = frame[_TCP - 8 : _TCP + 4]
        if tcp["flags"] & SYN:
            self._note_start(ends, tcp["sequence"] + 1)
        payload = int.from_bytes(frame[_IP + 2 : _IP + 4], "big") - byte_length(IPV4) - 4 * tcp["offset"]
        if frame[_IP + 1] != TOS_COMPRESSIBLE or payload <= 0:
            return frame
        start = self._starts.get(ends)
        if start is not None:
            self._starts.move_to_end(ends)
            if (tcp["sequence"] + bool(tcp["flags"] & SYN) - start) % _VALUE_BYTES == 0:
                return frame
        marked = without_compression(frame)
        self.unaligned += marked is not frame
        return marked

    def _note_start(self, ends: bytes, start: int) -> None:
        self._starts[ends] = start
        self._starts.move_to_end(ends)
        if len(self._starts) > MAX_CONNECTIONS:
            self._starts.popitem(last=False)
