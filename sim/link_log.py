"""Log file of links: time of each frame on its wire, and faults that the network applied to it.

The first ``MOST_FRAMES`` frames of a run are kept and the others counted, so that a long run costs no more than
a short one. Each entry holds the beginning of the frame, with all headers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fanin.sim.network import LinkFaults

MOST_FRAMES = 20_000  # limit of logged frames, of both directions together
_MAC_BYTES = 6
HEAD_BYTES = 80  # kept per frame: more than all headers of any system
_FRAMES = struct.Struct("<Q")  # before the entries: number of all frames of the run
_FAULT_BITS = {
    "dropped": int(LinkFaults.DROPPED),
    "reordered": int(LinkFaults.REORDERED),
    "duplicated": int(LinkFaults.DUPLICATED),
}
_ENTRY = struct.Struct(f"<QQIHBBB{HEAD_BYTES}s")


@dataclass(frozen=True)
class LoggedFrame:
    """A frame on one direction of a link.

    - ``port``: port of the link.
    - ``up``: direction to the switch; False: from the switch.
    - ``begin``: time of the first bit of its preamble on the wire, in ps.
    - ``end``: time of the last bit of its FCS on the wire, in ps.
    - ``size``: bytes of the frame.
    - ``head``: its first bytes, at most ``HEAD_BYTES``.
    - ``dropped``, ``reordered``, ``duplicated``: faults of the network.
    - ``corrupted``: number of corrupted copies.
    """

    port: int
    up: bool
    begin: int
    end: int
    size: int
    head: bytes
    dropped: bool = False
    reordered: bool = False
    duplicated: bool = False
    corrupted: int = 0

    @property
    def faults(self) -> list[str]:
        """Names of the faults applied to the frame; *corrupted* once per corrupted copy."""
        if not (self.dropped or self.reordered or self.duplicated or self.corrupted):
            return []
        flags = {"dropped": self.dropped, "reordered": self.reordered, "duplicated": self.duplicated}
        return [name for name, is_set in flags.items() if is_set] + ["corrupted"] * self.corrupted

    @property
    def destination(self) -> int:
        """Destination MAC address."""
        return int.from_bytes(self.head[:_MAC_BYTES], "big")

    @property
    def source(self) -> int:
        """Source MAC address."""
        return int.from_bytes(self.head[_MAC_BYTES : 2 * _MAC_BYTES], "big")


@dataclass(frozen=True)
class LinkLog:
    """The first frames of a run, in the order in which links accepted them; ``left_out`` counts the rest."""

    frames: tuple[LoggedFrame, ...] = ()
    left_out: int = 0

    def shifted(self, time_ps: int) -> LinkLog:
        """Return the log with all times moved by ``time_ps``."""
        frames = (replace(frame, begin=frame.begin + time_ps, end=frame.end + time_ps) for frame in self.frames)
        return LinkLog(tuple(frames), self.left_out)


class LinkLogWriter:
    """Writer of a log file: the ``log`` of a Network."""

    def __init__(self, path: Path):
        self._file = path.open("wb")
        self._frames = 0
        self._file.write(_FRAMES.pack(0))

    def write(
        self, port: int, up: bool, begin: int, end: int, frame: bytes, faults: int, corrupted: int
    ) -> None:
        """Log a frame, or only count it once ``MOST_FRAMES`` frames are logged."""
        self._frames += 1
        if self._frames <= MOST_FRAMES:
            self._file.write(
                _ENTRY.pack(begin, end, len(frame), port, up, faults, corrupted, frame[:HEAD_BYTES])
            )

    def close(self) -> None:
        """Write the number of all frames to the front of the file and close it."""
        self._file.seek(0)
        self._file.write(_FRAMES.pack(self._frames))
        self._file.close()


def read_link_log(path: Path) -> LinkLog:
    """Return the log in a file: empty if the file is absent; all complete entries if it was not closed."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < _FRAMES.size:
        return LinkLog()
    (frames,) = _FRAMES.unpack_from(data)
    complete_entries = (len(data) - _FRAMES.size) // _ENTRY.size
    logged = [
        _logged(_ENTRY.unpack_from(data, _FRAMES.size + n * _ENTRY.size)) for n in range(complete_entries)
    ]
    return LinkLog(tuple(logged), max(frames - len(logged), 0))


def _logged(entry: tuple[Any, ...]) -> LoggedFrame:
    begin, end, size, port, up, faults, corrupted, head = entry
    applied = [name for name, value in _FAULT_BITS.items() if faults & value]
    return LoggedFrame(
        port, bool(up), begin, end, size, head[:size], corrupted=corrupted, **dict.fromkeys(applied, True)
    )
