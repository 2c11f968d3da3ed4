"""Waveforms of simulated nodes: files to be, and what runs have put into them."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from fanin.base.errors import InputError
from fanin.sim.cosim.ports import NodePorts
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.window import Window

_BLOCK = struct.Struct(">BQ")  # of FST: its type, its length from there on
_HEADER = struct.Struct(">BQQQ")  # the first block: type, length, first and last time
_BLOCKS = range(9)  # types that there are


@dataclass(frozen=True)
class ShownNode:
    """A node of a waveform: its scope, ports, module, Verilog, and the format of its frames."""

    scope: str
    ports: NodePorts
    module: str
    verilog: str
    frames: FrameFormat | None


@dataclass
class Waveform:
    """A file to be, and what the runs of a cluster have put into it.

    Cycles are counted through all of these runs, one after the other; the file is of the one in which the
    window begins, and ends with it at the latest.
    """

    window: Window
    path: Path  # where the simulator writes it
    cycles: int = 0  # of all runs
    recorded: int = 0  # rising edges in the file
    shown: list[ShownNode] = field(default_factory=list)  # nodes that it has

    def ahead(self) -> Window | None:
        """The window as the next run counts its cycles; None behind it."""
        first = self.window.first - self.cycles
        return None if self.recorded or first < 0 else replace(self.window, first=first)

    def ended(self, cycles: int, recorded: int) -> None:
        """A run is over."""
        self.cycles += cycles
        self.recorded += recorded


def span(path: Path) -> int:
    """Picoseconds from the first to the last change of an FST file: its header says when they are."""
    with path.open("rb") as file:
        *_, begin, end = _HEADER.unpack(file.read(_HEADER.size))
    return int(end - begin)


def check_whole(path: Path, target: Path) -> None:
    """Raise InputError for an FST file, to be ``target``, that was not written to its end, as on a full disk.

    The writer does not say so: it is a chain of blocks, of which the last one must end where the file does.
    """
    size, place = path.stat().st_size, 0
    with path.open("rb") as file:
        while place < size:
            file.seek(place)
            block = file.read(_BLOCK.size)
            kind, length = _BLOCK.unpack(block) if len(block) == _BLOCK.size else (-1, 0)
            if kind not in _BLOCKS or length < _BLOCK.size - 1:
                break
            place += 1 + length
    if not size or place != size:
        raise InputError(f"{target}: the waveform could not be written to its end; is the disk full?")
