"""Reader of capture files, pcap and pcapng, with times in whole nanoseconds (``sim/pcap.py`` writes pcap).

Common libraries return seconds as a float, too coarse for nanoseconds since 1970. This module reads pcapng with
python-pcapng, which keeps integers, and the two fixed headers of pcap itself.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from fanin.base.errors import InputError
from fanin.base.plain import read_named

MAX_BYTES = 1 << 30  #: bytes of a capture; its frames take up to ten times as many in memory
_NANOSECONDS = 1_000_000_000
_MAGICS = {b"\xa1\xb2\xc3\xd4": 1000, b"\xa1\xb2\x3c\x4d": 1}  # big endian; nanoseconds of a fraction's unit
_PCAPNG, _BIG_ENDIAN = b"\x0a\x0d\x0d\x0a", b"\x1a\x2b\x3c\x4d"
_MIN_BLOCK_BYTES = 12  # of pcapng: a type, and its length twice
_ETHERNET = 1
_END_SECONDS = 1 << 32  # first time that a pcap file cannot hold
_FCS_PRESENT = 1 << 26  # of pcap's network field: its four highest bits count 16-bit words of FCS


def read_capture(path: Path) -> list[tuple[int, bytes]]:
    """Return the frames of a capture without FCS, as (time in ns, frame), in the file's order.

    A file may declare that its frames end with an FCS: pcap in the network field, pcapng by the options
    ``if_fcslen`` and ``epb_flags``. Raises InputError for a file that is no capture of Ethernet, has more than
    ``MAX_BYTES`` bytes, or has a time that no pcap file can hold: before 1970, or from 2106 on.
    """
    try:
        data = read_named(path, MAX_BYTES)
        frames = list(_pcapng(path, data) if data[:4] == _PCAPNG else _pcap(path, data))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    for time, _ in frames:
        if not 0 <= time < _END_SECONDS * _NANOSECONDS:
            limits = f"outside 0 to {_END_SECONDS - 1:,} s"
            raise InputError(f"{path}: a packet's time is {time // _NANOSECONDS:,} s, {limits}")
    return frames


def _pcap(path: Path, data: bytes) -> Iterator[tuple[int, bytes]]:
    order, magic = (">", data[:4]) if data[:4] in _MAGICS else ("<", data[:4][::-1])
    if magic not in _MAGICS or len(data) < 24:
        raise InputError(f"{path}: not a pcap or pcapng file")
    network = struct.unpack_from(f"{order}I", data, 20)[0]
    if network & 0xFFFF != _ETHERNET:
        raise InputError(f"{path}: a capture of something else than Ethernet")
    fcs = 2 * (network >> 28) if network & _FCS_PRESENT else 0
    position = 24
    while position < len(data):
        if position + 16 > len(data):
            raise InputError(f"{path}: ends within a packet's header")
        seconds, fraction, captured, length = struct.unpack_from(f"{order}IIII", data, position)
        frame = data[position + 16 : position + 16 + captured]
        position += 16 + captured
        _check_complete(path, frame, captured, length)
        yield seconds * _NANOSECONDS + fraction * _MAGICS[magic], _without_fcs(path, frame, fcs)


class _Content(io.BytesIO):
    """Content of a file. A read takes memory for bytes that exist; a block may declare a length of 4 GiB."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Return at most ``size`` bytes. Raises ValueError for a negative size, of a short block."""
        if size is None or size < 0:
            raise ValueError("a block's length is too small")
        return super().read(size)


def _pcapng(path: Path, data: bytes) -> Iterator[tuple[int, bytes]]:
    from pcapng import FileScanner
    from pcapng.blocks import EnhancedPacket, ObsoletePacket, SimplePacket
    from pcapng.exceptions import PcapngException

    count = 0
    try:
        for block in FileScanner(_Content(data)):  # some cut blocks end it silently
            count += 1
            if isinstance(block, SimplePacket | ObsoletePacket):
                raise InputError(f"{path}: holds packets without a time, or of an obsolete kind")
            if not isinstance(block, EnhancedPacket):
                continue
            interface = block.section.interfaces.get(block.interface_id)
            if interface is None:
                raise InputError(f"{path}: a packet of an undeclared interface, {block.interface_id}")
            if interface.link_type != _ETHERNET:
                raise InputError(f"{path}: a capture of something else than Ethernet")
            _check_complete(path, block.packet_data, block.captured_len, block.packet_len)
            yield _time_ns(block), _without_fcs(path, block.packet_data, _fcs_bytes(block))
        if count != _count_blocks(data):
            raise InputError(f"{path}: not a whole pcapng file: block {count + 1} is cut")
    except (PcapngException, struct.error, ValueError, LookupError, TypeError) as error:  # some of the library
        raise InputError(f"{path}: not a whole pcapng file: {error}") from error


def _count_blocks(data: bytes) -> int:
    """Return the number of blocks in a pcapng file; a cut one counts."""
    order, position, count = "<", 0, 0
    while position < len(data):
        if data[position : position + 4] == _PCAPNG:  # a section, whose byte order is its own
            order = ">" if data[position + 8 : position + 12] == _BIG_ENDIAN else "<"
        length = int.from_bytes(data[position + 4 : position + 8], "little" if order == "<" else "big")
        position += max(length + -length % 4, _MIN_BLOCK_BYTES)
        count += 1
    return count


def _time_ns(block: object) -> int:
    """Return a block's time in ns, exactly: ticks of ``if_tsresol``, plus ``if_tsoffset`` seconds."""
    options = block.interface.options  # type: ignore[attr-defined]
    offset = options.get("if_tsoffset", 0)
    code = options["if_tsresol"][0] if "if_tsresol" in options else 6
    unit = Fraction(1, (2 if code & 0x80 else 10) ** (code & 0x7F))
    ticks = block.timestamp_high << 32 | block.timestamp_low  # type: ignore[attr-defined]
    return int(ticks * unit * _NANOSECONDS) + offset * _NANOSECONDS


def _fcs_bytes(block: object) -> int:
    """Return the bytes of the FCS by ``epb_flags``, else by ``if_fcslen``, which some writers give in bits."""
    packet_options = block.options  # type: ignore[attr-defined]
    if "epb_flags" in packet_options and (length := int(packet_options["epb_flags"]) >> 5 & 0xF):
        return length
    options = block.interface.options  # type: ignore[attr-defined]
    length = options.get("if_fcslen", 0)
    return length // 8 if length >= 16 else length


def _without_fcs(path: Path, frame: bytes, fcs: int) -> bytes:
    if fcs > len(frame):
        raise InputError(f"{path}: a frame of {len(frame)} bytes, of which {fcs} are declared as its FCS")
    return frame[: len(frame) - fcs]


def _check_complete(path: Path, frame: bytes, captured: int, length: int) -> None:
    if len(frame) != captured:
        raise InputError(f"{path}: ends within a packet")
    if captured != length:
        raise InputError(f"{path}: has {captured} of a frame's {length} bytes; capture whole frames")
