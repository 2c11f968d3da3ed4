"""Python binding of the functions in dpi.cpp and hbm.cpp, used in the simulator's own process."""

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
_RATE_UNITS = 65536  # rates are counted in this fraction of a byte
_STALL_UNITS = 256  # a host's stalls are counted in this fraction of all cycles
_MAC, _HOST = 0, 1  # ports through which frames leave a node
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
    """The functions of dpi.cpp and hbm.cpp. Call ``setup`` first, before the simulation starts.

    Nodes have their numbers of the whole run; this rank's top has some of them.
    """

    def __init__(self) -> None:
        self._functions = ctypes.CDLL(None)
        self._first = 0  # number of the top's node 0 in the whole run
        self._wave: WaveWriter | None = None
        self._failed = c_uint64(), c_uint32(), c_uint32(), c_uint32()  # output arguments of ``failure``
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self._functions, name)
            function.restype, function.argtypes = result, arguments

    def setup(
        self,
        *,
        nodes: range,
        single_rank: bool,
        period_ps: int,
        latency: int,
        watchdog: int,
        mac_bytes_per_cycle: float,
        memory_bytes_per_cycle: float,
    ) -> None:
        """Set the top's parameters, before the simulation starts.

        - ``nodes``: the top's nodes, by their numbers in the whole run.
        - ``single_rank``: these are all nodes of the run, and each frame that leaves one wakes Python.
        - ``period_ps``: clock period.
        - ``latency``: latency of memories, in cycles.
        - ``watchdog``: cycles without progress that end the run.
        - ``mac_bytes_per_cycle``, ``memory_bytes_per_cycle``: rates; 0: a beat per cycle.
        """
        self._first = nodes.start
        rates = [round(rate * _RATE_UNITS) for rate in (mac_bytes_per_cycle, memory_bytes_per_cycle)]
        self._functions.cosim_setup(nodes.start, len(nodes), single_rank, period_ps, latency, watchdog, *rates)

    def use_hbm(self, hbm: Hbm, *, nodes: int, period_ps: int) -> None:
        """Make the memories of ``nodes`` nodes HBM; ``period_ps`` is the period of the nodes' clock."""
        numbers = (c_int64 * len(hbm.numbers))(*hbm.numbers)
        self._functions.cosim_hbm(nodes, period_ps, numbers, hbm.address_map.encode())

    def map_memory(self, node: int, path: Path, *, writable: bool = False, repeats: int = 1) -> None:
        """Map a file to a node's next memory port, ``repeats`` times in a row from address 0.

        Writes change the file if ``writable``.
        """
        if not self._functions.cosim_map(node - self._first, str(path).encode(), writable, repeats):
            raise OSError(f"{path} cannot be mapped")

    def open_trace(self, path: Path, *, mask: int, limit: int) -> None:
        """Record the events in ``mask``, at most ``limit`` entries."""
        if not self._functions.cosim_trace(str(path).encode(), mask, limit):
            raise OSError(f"{path} cannot be written")

    def close_trace(self) -> None:
        """Complete the trace file."""
        self._functions.cosim_close_trace()

    def open_wave(self, window: Window, path: Path, *, nodes: int, period_ps: int) -> None:
        """Write a waveform of the window. ``nodes``: nodes of the run. Needs a build for waveforms."""
        from fanin.sim.cosim.wave_writer import WaveWriter  # imports a compressor that nothing else needs

        self._wave = WaveWriter(window, path, nodes=nodes, period_ps=period_ps)

    def close_wave(self) -> int:
        """Complete the waveform; return its number of rising edges."""
        return self._wave.close() if self._wave else 0

    def run_host(self, node: int, program: HostProgram) -> None:
        """Start a program at a node's host; those of one wake-up start together."""
        words = program.words()
        self._functions.cosim_run_host(node - self._first, words.ctypes.data_as(POINTER(c_uint32)), len(words))

    def hosts_busy(self) -> bool:
        """Return whether a program runs. Its end is reported one cycle later, whatever else wakes Python."""
        return bool(self._functions.cosim_hosts_busy())

    def last_end(self) -> int:
        """Return the rising edge at which the last end of a program is reported."""
        return int(self._functions.cosim_last_end())

    def reads(self, node: int) -> npt.NDArray[np.uint32]:
        """Return the words that the program's reads have returned."""
        count = self._functions.cosim_read_count(node - self._first)
        if not count:
            return np.zeros(0, dtype=np.uint32)
        return np.ctypeslib.as_array(self._functions.cosim_reads(node - self._first), (count,)).copy()

    def go_live(self) -> None:
        """Switch to live hosts: each end of a program wakes Python, and memory reads are no progress."""
        self._functions.cosim_go_live()

    def pop_ended(self) -> Iterator[int]:
        """Yield the nodes whose programs have ended since the last call, in order; only when live."""
        node = c_uint32()
        while self._functions.cosim_pop_ended(byref(node)):
            yield self._first + node.value

    def watch(self, node: int, address: int) -> None:
        """Wake Python at each write of the byte, through any port of the node, from now on."""
        self._functions.cosim_watch(node - self._first, address)

    def pop_written(self) -> Iterator[tuple[int, int]]:
        """Yield the watched bytes written since the last call, as (node, address), in order."""
        node, address = c_uint32(), c_uint64()
        while self._functions.cosim_pop_written(byref(node), byref(address)):
            yield self._first + node.value, address.value

    def holds_frames(self) -> bool:
        """Return whether a frame waits at a MAC or a host, or is in flight to a node."""
        return bool(self._functions.cosim_holds_frames())

    def last_progress(self) -> int:
        """Return the last rising edge with progress, as the watchdog counts it."""
        return int(self._functions.cosim_last_progress())

    def note_progress(self, cycle: int) -> None:
        """Note progress at an edge, perhaps at a node of another rank."""
        self._functions.cosim_note_progress(cycle)

    def skip(self, time_ps: int) -> None:
        """Let time pass without clock edges; this counts as progress."""
        self._functions.cosim_skip(time_ps)
        if self._wave:
            self._wave.skip(time_ps)

    def bytes_read(self, node: int, port: int) -> int:
        """Return the bytes that a memory port has delivered."""
        return int(self._functions.cosim_bytes_read(node - self._first, port))

    def bytes_written(self, node: int, port: int) -> int:
        """Return the bytes that a memory port has stored."""
        return int(self._functions.cosim_bytes_written(node - self._first, port))

    def occupied(self, node: int) -> Intervals:
        """Return the intervals in which the link from a node's MAC was occupied."""
        count = self._functions.cosim_interval_count(node - self._first)
        if not count:
            return np.zeros((0, 2), dtype=np.uint64)
        return np.ctypeslib.as_array(self._functions.cosim_intervals(node - self._first), (count, 2)).copy()

    def pop_frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield frames that have left through a MAC since the last call, as (cycle, node, bytes)."""
        return self._pop_frames(_MAC)

    def pop_host_frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield frames that nodes gave to their hosts since the last call, as (cycle, node, bytes).

        When live, each such frame wakes Python.
        """
        return self._pop_frames(_HOST)

    def _pop_frames(self, port: int) -> Iterator[tuple[int, int, bytes]]:
        node, cycle, data, size = c_uint32(), c_uint64(), POINTER(c_uint8)(), c_size_t()
        while self._functions.cosim_pop_frame(port, byref(node), byref(cycle), byref(data), byref(size)):
            yield cycle.value, self._first + node.value, ctypes.string_at(data, size.value)

    def send(self, node: int, frame: bytes) -> None:
        """Queue a frame at a node's host for sending; Python wakes when the node has taken it."""
        self._functions.cosim_send(node - self._first, frame, len(frame))

    def pop_sent(self) -> Iterator[int]:
        """Yield a node for each frame of its host that it has taken since the last call, in order."""
        node = c_uint32()
        while self._functions.cosim_pop_sent(byref(node)):
            yield self._first + node.value

    def stall(self, node: int, share: float) -> None:
        """Make a node's host refuse beats in the given share of cycles, drawn at random, from now on."""
        self._functions.cosim_stall(node - self._first, round(share * _STALL_UNITS))

    def push_frame(self, node: int, frame: bytes, time: int, *, error: bool, tag: int) -> None:
        """Deliver a frame to a node; its last bit arrives at ``time`` ps."""
        self._functions.cosim_push_frame(node - self._first, time, frame, len(frame), error, tag)

    def pop_taken(self) -> Iterator[tuple[int, int]]:
        """Yield received frames whose last beat was taken since the last call, as (cycle, tag)."""
        tag, cycle = c_uint64(), c_uint64()
        while self._functions.cosim_pop_taken(byref(tag), byref(cycle)):
            yield cycle.value, tag.value

    def set_alarm(self, cycle: int | None) -> None:
        """Wake Python at a rising edge; None: at none."""
        self._functions.cosim_set_alarm(_NEVER if cycle is None else cycle)

    def cycle(self) -> int:
        """Return the number of the rising edge at which Python was woken."""
        return int(self._functions.cosim_cycle())

    def failure(self) -> Failure | None:
        """Return the first failure in the top (in one cycle: at the first node), or None."""
        cycle, node, address, value = self._failed
        text = self._functions.cosim_failure(byref(cycle), byref(node)).decode()
        if not text:
            return None
        failure_cycle, failure_node = cycle.value, node.value
        has_check = self._functions.cosim_failed_check(byref(cycle), byref(node), byref(address), byref(value))
        is_first = has_check and (cycle.value, node.value) == (failure_cycle, failure_node)
        check = FailedCheck(node.value, address.value, value.value) if is_first else None
        return Failure(failure_cycle, failure_node, text, check)
