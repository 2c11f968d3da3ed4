"""The functions of dpi.cpp and hbm.cpp, as Python in the simulator's own process calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_bool, c_char_p, c_int, c_int64, c_size_t, c_uint8, c_uint32, c_uint64
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fanin.hbm import Hbm
from fanin.sim.cosim.program import HostProgram
from fanin.sim.cosim.run import Intervals
from fanin.sim.cosim.state import FailedCheck, Failure
from fanin.sim.cosim.window import Window

if TYPE_CHECKING:
    from fanin.sim.cosim.wave_writer import WaveWriter

_NEVER = 2**64 - 1
_RATE_UNITS = 65536  # parts of a byte, in which rates are counted
_STALL_UNITS = 256  # parts of all cycles, in which a host's stalls are
_MAC, _HOST = 0, 1  # the ports through which frames leave a node
_SIGNATURES: dict[str, tuple[object, Sequence[object]]] = {
    "cosim_setup": (None, (c_uint32, c_uint32, c_bool, c_uint64, c_int, c_uint64, c_int, c_int)),
    "cosim_hbm": (None, (c_uint32, c_uint64, POINTER(c_int64), c_char_p)),
    "cosim_map": (c_bool, (c_uint32, c_char_p, c_bool, c_uint64)),
    "cosim_trace": (c_bool, (c_char_p, c_uint64, c_uint64)),
    "cosim_close_trace": (None, ()),
    "cosim_run_host": (None, (c_uint32, POINTER(c_uint32), c_size_t)),
    "cosim_hosts_busy": (c_bool, ()),
    "cosim_last_end": (c_uint64, ()),
    "cosim_read_count": (c_size_t, (c_uint32,)),
    "cosim_go_live": (None, ()),
    "cosim_pop_ended": (c_bool, (POINTER(c_uint32),)),
    "cosim_watch": (None, (c_uint32, c_uint64)),
    "cosim_pop_written": (c_bool, (POINTER(c_uint32), POINTER(c_uint64))),
    "cosim_holds_frames": (c_bool, ()),
    "cosim_last_progress": (c_uint64, ()),
    "cosim_note_progress": (None, (c_uint64,)),
    "cosim_skip": (None, (c_uint64,)),
    "cosim_reads": (POINTER(c_uint32), (c_uint32,)),
    "cosim_bytes_read": (c_uint64, (c_uint32, c_uint32)),
    "cosim_bytes_written": (c_uint64, (c_uint32, c_uint32)),
    "cosim_interval_count": (c_size_t, (c_uint32,)),
    "cosim_intervals": (POINTER(c_uint64), (c_uint32,)),
    "cosim_pop_frame": (
        c_bool,
        (c_uint32, POINTER(c_uint32), POINTER(c_uint64), POINTER(POINTER(c_uint8)), POINTER(c_size_t)),
    ),
    "cosim_push_frame": (None, (c_uint32, c_uint64, c_char_p, c_size_t, c_bool, c_uint64)),
    "cosim_send": (None, (c_uint32, c_char_p, c_size_t)),
    "cosim_pop_sent": (c_bool, (POINTER(c_uint32),)),
    "cosim_stall": (None, (c_uint32, c_uint32)),
    "cosim_pop_taken": (c_bool, (POINTER(c_uint64), POINTER(c_uint64))),
    "cosim_set_alarm": (None, (c_uint64,)),
    "cosim_cycle": (c_uint64, ()),
    "cosim_failure": (c_char_p, (POINTER(c_uint64), POINTER(c_uint32))),
    "cosim_failed_check": (c_bool, (POINTER(c_uint64), *(POINTER(c_uint32),) * 3)),
}


class Library:
    """dpi.cpp and hbm.cpp. ``setup`` first, before the simulation starts.

    Nodes have the numbers that they have in the whole run; this rank's top has some of them.
    """

    def __init__(self) -> None:
        self._functions = ctypes.CDLL(None)
        self._first = 0  # the number of the top's node 0
        self._wave: WaveWriter | None = None
        self._failed = c_uint64(), c_uint32(), c_uint32(), c_uint32()  # what ``failure`` is told
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._functions, name)
            function.restype, function.argtypes = result, arguments

    def setup(
        self,
        *,
        nodes: range,
        alone: bool,
        period_ps: int,
        latency: int,
        watchdog: int,
        mac_bytes_per_cycle: float,
        memory_bytes_per_cycle: float,
    ) -> None:
        """Which nodes the top has, clock period, cycles of a memory's latency, cycles without progress, rates.

        ``alone``: those are all, and each frame that leaves one wakes Python.
        """
        self._first = nodes.start
        rates = [round(rate * _RATE_UNITS) for rate in (mac_bytes_per_cycle, memory_bytes_per_cycle)]
        self._functions.cosim_setup(nodes.start, len(nodes), alone, period_ps, latency, watchdog, *rates)

    def use_hbm(self, hbm: Hbm, *, nodes: int, period_ps: int) -> None:
        """Let the memories of so many nodes be HBM; ``period_ps``: of the nodes' clock."""
        numbers = (c_int64 * len(hbm.numbers))(*hbm.numbers)
        self._functions.cosim_hbm(nodes, period_ps, numbers, hbm.address_map.encode())

    def map_memory(self, node: int, path: Path, *, writable: bool = False, repeats: int = 1) -> None:
        """Let a node's next memory port access a file, ``repeats`` times in a row from address 0.

        Writes change it if ``writable``.
        """
        if not self._functions.cosim_map(node - self._first, str(path).encode(), writable, repeats):
            raise OSError(f"{path} cannot be mapped")

    def open_trace(self, path: Path, *, mask: int, limit: int) -> None:
        """Record events under ``mask``, at most ``limit`` entries."""
        if not self._functions.cosim_trace(str(path).encode(), mask, limit):
            raise OSError(f"{path} cannot be written")

    def close_trace(self) -> None:
        """Complete the trace file."""
        self._functions.cosim_close_trace()

    def open_wave(self, window: Window, path: Path, *, nodes: int, period_ps: int) -> None:
        """Write a waveform when its window has come, of so many nodes, in a simulator built for it."""
        from fanin.sim.cosim.wave_writer import WaveWriter  # its compressor is for nothing else

        self._wave = WaveWriter(window, path, nodes=nodes, period_ps=period_ps)

    def close_wave(self) -> int:
        """Complete the waveform; how many rising edges it has."""
        return self._wave.close() if self._wave else 0

    def run_host(self, node: int, program: HostProgram) -> None:
        """Start a program on a node's bus; those started in one wake start in the same cycle."""
        words = program.words()
        self._functions.cosim_run_host(node - self._first, words.ctypes.data_as(POINTER(c_uint32)), len(words))

    def hosts_busy(self) -> bool:
        """Whether a program runs. An end is seen in the cycle behind it, whatever else has woken Python."""
        return bool(self._functions.cosim_hosts_busy())

    def last_end(self) -> int:
        """The rising edge at which the last end of a program is seen."""
        return int(self._functions.cosim_last_end())

    def reads(self, node: int) -> npt.NDArray[np.uint32]:
        """What the program's reads have returned."""
        count = self._functions.cosim_read_count(node - self._first)
        if not count:
            return np.zeros(0, dtype=np.uint32)
        return np.ctypeslib.as_array(self._functions.cosim_reads(node - self._first), (count,)).copy()

    def go_live(self) -> None:
        """From now on each end of a program wakes Python, and reading memory is no progress."""
        self._functions.cosim_go_live()

    def ended(self) -> Iterator[int]:
        """Nodes whose programs have ended since the last call, once live; in order."""
        node = c_uint32()
        while self._functions.cosim_pop_ended(byref(node)):
            yield self._first + node.value

    def watch(self, node: int, address: int) -> None:
        """From now on each write of the byte, through any port of the node, wakes Python."""
        self._functions.cosim_watch(node - self._first, address)

    def written(self) -> Iterator[tuple[int, int]]:
        """Watched bytes that were written since the last call, as (node, address), in order."""
        node, address = c_uint32(), c_uint64()
        while self._functions.cosim_pop_written(byref(node), byref(address)):
            yield self._first + node.value, address.value

    def holds_frames(self) -> bool:
        """Whether a frame waits at a MAC or a host, or one is in flight to a node."""
        return bool(self._functions.cosim_holds_frames())

    def last_progress(self) -> int:
        """The last rising edge at which something happened, as the watchdog sees it."""
        return int(self._functions.cosim_last_progress())

    def note_progress(self, cycle: int) -> None:
        """Something has happened at that edge, perhaps at a node of another rank."""
        self._functions.cosim_note_progress(cycle)

    def skip(self, time_ps: int) -> None:
        """Let time pass without the clock; that counts as progress."""
        self._functions.cosim_skip(time_ps)
        if self._wave:
            self._wave.skip(time_ps)

    def bytes_read(self, node: int, port: int) -> int:
        """Bytes that a memory port has delivered."""
        return int(self._functions.cosim_bytes_read(node - self._first, port))

    def bytes_written(self, node: int, port: int) -> int:
        """Bytes that a memory port has stored."""
        return int(self._functions.cosim_bytes_written(node - self._first, port))

    def occupied(self, node: int) -> Intervals:
        """When the link from a node's MAC was occupied."""
        count = self._functions.cosim_interval_count(node - self._first)
        if not count:
            return np.zeros((0, 2), dtype=np.uint64)
        return np.ctypeslib.as_array(self._functions.cosim_intervals(node - self._first), (count, 2)).copy()

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Frames that have left through a MAC since the last call, as (cycle, node, bytes)."""
        return self._frames(_MAC)

    def handed(self) -> Iterator[tuple[int, int, bytes]]:
        """Frames that nodes have handed to their hosts since the last call, likewise; once live, each wakes."""
        return self._frames(_HOST)

    def _frames(self, port: int) -> Iterator[tuple[int, int, bytes]]:
        node, cycle, data, size = c_uint32(), c_uint64(), POINTER(c_uint8)(), c_size_t()
        while self._functions.cosim_pop_frame(port, byref(node), byref(cycle), byref(data), byref(size)):
            yield cycle.value, self._first + node.value, ctypes.string_at(data, size.value)

    def send(self, node: int, frame: bytes) -> None:
        """Let a node's host send a frame, after those that it already has; Python wakes when it is taken."""
        self._functions.cosim_send(node - self._first, frame, len(frame))

    def sent(self) -> Iterator[int]:
        """Nodes that have taken a frame of their host since the last call, once for each frame, in order."""
        node = c_uint32()
        while self._functions.cosim_pop_sent(byref(node)):
            yield self._first + node.value

    def stall(self, node: int, share: float) -> None:
        """From now on a node's host takes nothing in that share of the cycles, which are drawn at random."""
        self._functions.cosim_stall(node - self._first, round(share * _STALL_UNITS))

    def push_frame(self, node: int, frame: bytes, time: int, *, error: bool, tag: int) -> None:
        """Let a node receive a frame whose last bit arrives at ``time`` ps."""
        self._functions.cosim_push_frame(node - self._first, time, frame, len(frame), error, tag)

    def taken(self) -> Iterator[tuple[int, int]]:
        """Received frames whose last beat has been taken since the last call, as (cycle, tag)."""
        tag, cycle = c_uint64(), c_uint64()
        while self._functions.cosim_pop_taken(byref(tag), byref(cycle)):
            yield cycle.value, tag.value

    def set_alarm(self, cycle: int | None) -> None:
        """Wake Python at the rising edge of that number."""
        self._functions.cosim_set_alarm(_NEVER if cycle is None else cycle)

    def cycle(self) -> int:
        """The number of the rising edge at which Python was woken."""
        return int(self._functions.cosim_cycle())

    def failure(self) -> Failure | None:
        """The first thing that went wrong in the top; of those of one cycle that of the first node."""
        cycle, node, address, value = self._failed
        text = self._functions.cosim_failure(byref(cycle), byref(node)).decode()
        if not text:
            return None
        failed_at, place = cycle.value, node.value
        failed = self._functions.cosim_failed_check(byref(cycle), byref(node), byref(address), byref(value))
        same = failed and (cycle.value, node.value) == (failed_at, place)
        check = FailedCheck(node.value, address.value, value.value) if same else None
        return Failure(failed_at, place, text, check)
