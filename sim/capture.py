"""Reads capture files, pcap and pcapng, with times in whole nanoseconds (``sim/pcap.py`` writes them).

The libraries at hand give seconds as a float, which has no nanoseconds left today. pcapng is python-pcapng's,
which keeps the integers; pcap is two fixed headers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from fanin.errors import InputError

_NANOSECONDS = 1_000_000_000
_MAGICS = {b"\xa1\xb2\xc3\xd4": 1000, b"\xa1\xb2\x3c\x4d": 1}  # big endian; nanoseconds of a fraction's unit
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_ETHERNET = 1


def read_capture(path: Path) -> list[tuple[int, bytes]]:
    """Frames with their times in ns, in the file's order.

    Raises InputError for what is no capture of Ethernet.
    """
    try:
        data = path.read_bytes()
        frames = _pcapng(path) if data[:4] == _PCAPNG else _pcap(path, data)
        return list(frames)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error


def _pcap(path: Path, data: bytes) -> Iterator[tuple[int, bytes]]:
    order, magic = (">", data[:4]) if data[:4] in _MAGICS else ("<", data[:4][::-1])
    if magic not in _MAGICS or len(data) < 24:
        raise InputError(f"{path}: neither pcap nor pcapng")
    if struct.unpack_from(f"{order}I", data, 20)[0] & 0xFFFF != _ETHERNET:
        raise InputError(f"{path}: a capture of something else than Ethernet")
    place = 24
    while place < len(data):
        if place + 16 > len(data):
            raise InputError(f"{path}: ends within a packet's header")
        seconds, fraction, kept, length = struct.unpack_from(f"{order}IIII", data, place)
        frame = data[place + 16 : place + 16 + kept]
        place += 16 + kept
        _check_whole(path, frame, kept, length)
        yield seconds * _NANOSECONDS + fraction * _MAGICS[magic], frame


def _pcapng(path: Path) -> Iterator[tuple[int, bytes]]:
    from pcapng import FileScanner
    from pcapng.blocks import EnhancedPacket, ObsoletePacket, SimplePacket
    from pcapng.exceptions import PcapngException

    try:
        with path.open("rb") as file:
            for block in FileScanner(file):
                if isinstance(block, SimplePacket | ObsoletePacket):
                    raise InputError(f"{path}: holds packets without a time, or of an obsolete kind")
                if not isinstance(block, EnhancedPacket):
                    continue
                if block.interface.link_type != _ETHERNET:
                    raise InputError(f"{path}: a capture of something else than Ethernet")
                _check_whole(path, block.packet_data, block.captured_len, block.packet_len)
                yield _time(block), block.packet_data
    except (PcapngException, struct.error, ValueError) as error:
        raise InputError(f"{path}: not a whole pcapng file: {error}") from error


def _time(block: object) -> int:
    """The block's time in ns, exactly as the file has it."""
    options = block.interface.options  # type: ignore[attr-defined]
    code = options["if_tsresol"][0] if "if_tsresol" in options else 6
    unit = Fraction(1, (2 if code & 0x80 else 10) ** (code & 0x7F))
    ticks = block.timestamp_high << 32 | block.timestamp_low  # type: ignore[attr-defined]
    return int(ticks * unit * _NANOSECONDS)


def _check_whole(path: Path, frame: bytes, kept: int, length: int) -> None:
    if len(frame) != kept:
        raise InputError(f"{path}: ends within a packet")
    if kept != length:
        raise InputError(f"{path}: has {kept} of a frame's {length} bytes; capture whole frames")
