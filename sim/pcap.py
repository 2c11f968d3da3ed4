"""Capture files: nanosecond pcap, frames without FCS, simulated time. Readable by tshark and scapy."""

from __future__ import annotations

import stat
import struct
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from fanin.base.plain import append_plain, mode_of, new_file

_MAGIC_NANOSECONDS = 0xA1B23C4D
_LINKTYPE_ETHERNET = 1
_SNAPLEN = 65535
_SECOND = 1_000_000_000  # ns
_GLOBAL = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")


def append_capture(path: Path, more: Path, *, start: int) -> None:
    """Append the frames of capture ``more`` to ``path``, at times from ``start`` ps on.

    An absent file is created, and a link in its place is replaced. Raises OSError.
    """
    if not stat.S_ISREG(mode_of(path)):
        PcapWriter(path).close()
    with more.open("rb") as source, append_plain(path) as target:
        source.seek(_GLOBAL.size)
        while len(head := source.read(_RECORD.size)) == _RECORD.size:
            seconds, nanoseconds, kept, length = _RECORD.unpack(head)
            time = (seconds * _SECOND + nanoseconds) + start // 1000
            target.write(_RECORD.pack(*divmod(time, _SECOND), kept, length) + source.read(kept))


class PcapWriter:
    """Writer of frames to a pcap file, given by path or open. A context manager that closes the file.

    A file by path is new: a link in its place is replaced, and its target stays.
    It writes the 24-byte and 16-byte headers itself: scapy's writer builds a packet object per frame and would
    be slower than the rest of a simulation.
    """

    def __init__(self, file: Path | BinaryIO):
        self._file: BinaryIO = new_file(file) if isinstance(file, Path) else file
        self._file.write(_GLOBAL.pack(_MAGIC_NANOSECONDS, 2, 4, 0, 0, _SNAPLEN, _LINKTYPE_ETHERNET))

    def write(self, frame: bytes, time: int) -> None:
        """Append a frame at ``time``, in picoseconds since the start."""
        seconds, nanoseconds = divmod(time // 1000, _SECOND)
        self._file.write(_RECORD.pack(seconds, nanoseconds, len(frame), len(frame)) + frame)

    def close(self) -> None:
        """Flush and close the file."""
        self._file.close()

    def __enter__(self) -> PcapWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
