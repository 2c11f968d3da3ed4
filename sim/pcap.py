"""Capture files: nanosecond pcap, frames without FCS, simulated time. Readable by tshark and scapy."""

from __future__ import annotations

import struct
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

_MAGIC_NANOSECONDS = 0xA1B23C4D
_LINKTYPE_ETHERNET = 1
_SNAPLEN = 65535
_SECOND = 1_000_000_000  # ns
_GLOBAL = struct.Struct("<IHHiIII")
_RECORD = struct.Struct("<IIII")


def append_capture(path: Path, more: Path, *, start: int) -> None:
    """Put frames of another such file behind those of ``path``, if it is there; they begin at ``start`` ps."""
    if not path.exists():
        PcapWriter(path).close()
    with more.open("rb") as source, path.open("ab") as target:
        source.seek(_GLOBAL.size)
        while len(head := source.read(_RECORD.size)) == _RECORD.size:
            seconds, nanoseconds, kept, length = _RECORD.unpack(head)
            time = (seconds * _SECOND + nanoseconds) + start // 1000
            target.write(_RECORD.pack(*divmod(time, _SECOND), kept, length) + source.read(kept))


class PcapWriter:
    """Write frames to a pcap file, a path or an open file, which it closes; a context manager.

    The format is 24 and 16 bytes of header: scapy's writer, which builds a packet object for each frame, is
    slower than the rest of a simulation.
    """

    def __init__(self, file: Path | BinaryIO):
        self._file: BinaryIO = file.open("wb") if isinstance(file, Path) else file
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
