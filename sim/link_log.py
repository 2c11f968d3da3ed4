"""A log of the links: when each frame was on its wire, and what the network did to it, as a file.

Of a run's frames the first ``MOST_FRAMES`` are kept and the others counted, so that a long run costs no more
than a short one. Of each frame the beginning is kept, with all headers.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fanin.sim.network import Crossing

MOST_FRAMES = 20_000  # on the way to the switch, and on that from it
HEAD_BYTES = 80  # of a frame: more than all headers of any system
_FRAMES = struct.Struct("<Q")  # in front of the entries: frames of the run
_ENTRY = struct.Struct(f"<QQIHHBBBBB{HEAD_BYTES}s")


@dataclass(frozen=True)
class LinkLog:
    """The first frames of a run, in the order in which links took them; ``left_out`` came behind them."""

    crossings: tuple[Crossing, ...] = ()
    left_out: int = 0

    def later(self, time_ps: int) -> LinkLog:
        """The same frames, so much later."""
        moved = (replace(one, begin=one.begin + time_ps, end=one.end + time_ps) for one in self.crossings)
        return LinkLog(tuple(moved), self.left_out)


class LinkLogWriter:
    """Writes a log; ``write`` is what a Network is given."""

    def __init__(self, path: Path):
        self._file = path.open("wb")
        self._frames = 0
        self._file.write(_FRAMES.pack(0))

    def write(self, crossing: Crossing) -> None:
        """Keep a frame, or count it."""
        self._frames += 1
        if self._frames > MOST_FRAMES:
            return
        one, head = crossing, crossing.head[:HEAD_BYTES]
        fates = (one.dropped, one.reordered, one.duplicated, one.corrupted)
        self._file.write(_ENTRY.pack(one.begin, one.end, one.size, one.port, len(head), one.up, *fates, head))

    def close(self) -> None:
        """End the file with the number of all frames in front."""
        self._file.seek(0)
        self._file.write(_FRAMES.pack(self._frames))
        self._file.close()


def read_link_log(path: Path) -> LinkLog:
    """The log in a file: an empty one where it is absent, and what there is of one that was not closed."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < _FRAMES.size:
        return LinkLog()
    (frames,) = _FRAMES.unpack_from(data)
    whole = (len(data) - _FRAMES.size) // _ENTRY.size
    found = [_crossing(_ENTRY.unpack_from(data, _FRAMES.size + n * _ENTRY.size)) for n in range(whole)]
    return LinkLog(tuple(found), max(frames - len(found), 0))


def _crossing(entry: tuple[Any, ...]) -> Crossing:
    begin, end, size, port, kept, up, dropped, reordered, duplicated, corrupted, head = entry
    return Crossing(
        port,
        bool(up),
        begin,
        end,
        size,
        head[:kept],
        dropped=bool(dropped),
        reordered=bool(reordered),
        duplicated=bool(duplicated),
        corrupted=corrupted,
    )
