"""Writer of capture files: nanosecond pcap, frames without FCS, simulated time. tshark and scapy read them."""

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


def append_capture(path: Path, source_path: Path, *, start: int) -> None:
    """Append the frames of capture ``source_path`` to ``path``; ``start`` ps are added to their times.

    An absent file is created, and a symbolic link at ``path`` is replaced. Raises OSError.
    """
    if not stat.S_ISREG(mode_of(path)):
        PcapWriter(path).close()
    with source_path.open("rb") as source, append_plain(path) as target:
        source.seek(_GLOBAL.size)
        while len(head := source.read(_RECORD.size)) == _RECORD.size:
            seconds, nanoseconds, captured, length = _RECORD.unpack(head)
            time = (seconds * _SECOND + nanoseconds) + start // 1000
            target.write(_RECORD.pack(*divmod(time, _SECOND), captured, length) + source.read(captured))


class PcapWriter:
    """Writer of frames to a pcap file, given as a path or an open file. A context manager that closes the file.

    A path gets a new file: a symbolic link there is replaced, and its target stays. The writer packs the
    24-byte and 16-byte headers itself: scapy's writer is slower than the simulation.
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
