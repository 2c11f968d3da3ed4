"""Simulation of a Verilated component that transforms frames: frames to stream ``i``, frames from stream ``o``.

A C++ main program drives the model at hundreds of thousands of cycles a second, without Python. Other inputs
are constant during a run and set at its start, so one build serves all values of a register.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
from amaranth.lib import wiring

from fanin.base.errors import CheckFailed
from fanin.hdl.emission import kept_verilog
from fanin.hdl.emit import FlatPort, flat_ports
from fanin.sim.cosim.build import EXECUTABLE, build
from fanin.sim.cosim.templates import template

UInt32 = npt.NDArray[np.uint32]

_STREAMS = ("i_", "o_", "length_")
_MAX_REGISTER_BITS = 64
_STALL_UNITS = 256


@dataclass(frozen=True)
class StreamRun:
    """Result of a run. Cycles are counted from the reset, one entry per transferred beat."""

    frames: list[bytes]  #: frames that left ``o``, one per input frame
    errors: npt.NDArray[np.bool_]  #: ``error`` of each frame, if ``o`` has it
    input_cycles: UInt32  #: cycle in which each beat entered
    output_cycles: UInt32  #: cycle in which each beat left
    seconds: float

    @property
    def cycles(self) -> int:
        """Cycles from the first beat in to the last beat out, both included."""
        return int(self.output_cycles[-1]) - int(self.input_cycles[0]) + 1


class StreamFile:
    """A built simulation of one component; each ``run`` is a new process.

    The component has packet streams ``i`` and ``o``. It may have a stream ``length``, which receives a number
    per frame. Its other inputs are registers of at most 64 bits. Raises ValueError for other components.
    """

    def __init__(self, component: wiring.Component, *, quiet: bool = False):
        ports = {port.name: port for port in flat_ports(component)}
        for name in ("i_tdata", "i_tvalid", "o_tdata", "o_tvalid", "o_tready"):
            if name not in ports:
                raise ValueError(f"{type(component).__name__} must have packet streams i and o: no {name}")
        self.registers = {
            name: port for name, port in ports.items() if not port.output and not name.startswith(_STREAMS)
        }
        if too_wide := [name for name, port in self.registers.items() if len(port.value) > _MAX_REGISTER_BITS]:
            raise ValueError(f"register {too_wide[0]} must have at most {_MAX_REGISTER_BITS} bits")
        self.has_lengths = "length_payload" in ports
        sources = {"top.v": kept_verilog(component, name="top"), "main.cpp": self._main(ports)}
        self._program = build(sources, own_main=True, quiet=quiet) / EXECUTABLE

    def _main(self, ports: Mapping[str, FlatPort]) -> str:
        return template("stream_file.cpp.j2").render(
            in_bytes=len(ports["i_tdata"].value) // 8,
            out_bytes=len(ports["o_tdata"].value) // 8,
            registers=self.registers.values(),
            length=self.has_lengths,
            ready="i_tready" in ports,
            error="o_tuser" in ports,
        )

    def run(
        self,
        frames: Sequence[bytes],
        *,
        lengths: Sequence[int] = (),
        registers: Mapping[str, int] = MappingProxyType({}),
        stalls: tuple[float, float] = (0.0, 0.0),
        seed: int = 0,
    ) -> StreamRun:
        """Send ``frames`` through the component, which must put out as many.

        - ``lengths``: values for the stream ``length``.
        - ``registers``: values of the other inputs, by name.
        - ``stalls``: share of cycles without an offer to ``i`` and ``length``, and share with ``o`` not ready.
        - ``seed``: seed of the stalls.

        Raises CheckFailed if the component hangs, if ``o`` breaks the stream contract, or if it has more frames
        than ``i``.
        """
        if not frames or not all(frames):
            raise ValueError("frames must be one at least, of one byte at least")
        if self.has_lengths and len(lengths) != len(frames):
            raise ValueError(f"lengths must be as many as frames, {len(frames)}, not {len(lengths)}")
        if unknown := set(registers) - set(self.registers):
            raise ValueError(f"registers must be among {', '.join(self.registers)}, not {min(unknown)}")
        settings = [f"{name}={int(value)}" for name, value in registers.items()]
        units = [str(min(round(share * _STALL_UNITS), _STALL_UNITS - 1)) for share in stalls]
        with tempfile.TemporaryDirectory(prefix="fanin-") as folder:
            work = Path(folder)
            (work / "data").write_bytes(b"".join(frames))
            np.array([len(frame) for frame in frames], dtype=np.uint32).tofile(work / "sizes")
            np.array(lengths, dtype=np.uint32).tofile(work / "lengths")
            start = time.perf_counter()
            command = [str(self._program), folder, str(seed), *units, *settings]
            process = subprocess.run(command, capture_output=True, text=True, check=False)
            if process.returncode:
                raise CheckFailed(f"simulation: {process.stderr.strip() or f'status {process.returncode}'}")
            return _result(work, time.perf_counter() - start)


def _result(work: Path, seconds: float) -> StreamRun:
    data = (work / "output").read_bytes()
    ends = np.cumsum(np.fromfile(work / "output_sizes", dtype=np.uint32), dtype=np.int64).tolist()
    return StreamRun(
        frames=[data[first:end] for first, end in pairwise([0, *ends])],
        errors=np.fromfile(work / "output_errors", dtype=np.bool_),
        input_cycles=np.fromfile(work / "input_cycles", dtype=np.uint32),
        output_cycles=np.fromfile(work / "output_cycles", dtype=np.uint32),
        seconds=seconds,
    )
