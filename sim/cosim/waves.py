"""Waveforms of simulated nodes: their files, and the cycles recorded so far."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

from fanin.base.errors import InputError
from fanin.sim.cosim.ports import NodePorts
from fanin.sim.cosim.view import FrameFormat
from fanin.sim.cosim.window import Window

_BLOCK = struct.Struct(">BQ")  # head of an FST block: its type, and its length from the length field on
_HEADER = struct.Struct(">BQQQ")  # the first block: type, length, first and last time
_BLOCKS = range(9)  # valid block types


@dataclass(frozen=True)
class WaveNode:
    """A node in a waveform: its scope, ports, module, Verilog, and the format of its frames."""

    scope: str
    ports: NodePorts
    module: str
    verilog: str
    frames: FrameFormat | None


@dataclass
class Waveform:
    """A waveform file, and the cycles of a cluster's runs so far.

    The window's cycles are counted through all runs of the cluster. The file covers only the run in which the
    window begins, and ends with that run at the latest.
    """

    window: Window
    path: Path  # file that the simulator writes
    cycles: int = 0  # cycles of all runs so far
    recorded: int = 0  # rising edges in the file
    nodes: list[WaveNode] = field(default_factory=list)  # nodes in the file

    def next_window(self) -> Window | None:
        """Return the window in the next run's cycles; None once its start has passed."""
        first = self.window.first - self.cycles
        return None if self.recorded or first < 0 else replace(self.window, first=first)

    def count_run(self, cycles: int, recorded: int) -> None:
        """Count a finished run."""
        self.cycles += cycles
        self.recorded += recorded


def span(path: Path) -> int:
    """Return the picoseconds from the first to the last change in an FST file, read from its header."""
    with path.open("rb") as file:
        *_, begin, end = _HEADER.unpack(file.read(_HEADER.size))
    return int(end - begin)


def check_complete(path: Path, target: Path) -> None:
    """Raise InputError if an FST file, to be named ``target``, is incomplete, as after a full disk.

    The writer reports no error. The file is a chain of blocks, whose last one must end at the file's end.
    """
    size, position = path.stat().st_size, 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            block = file.read(_BLOCK.size)
            kind, length = _BLOCK.unpack(block) if len(block) == _BLOCK.size else (-1, 0)
            if kind not in _BLOCKS or length < _BLOCK.size - 1:
                break
            position += 1 + length
    if not size or position != size:
        raise InputError(f"{target}: the waveform could not be written to its end; is the disk full?")
