"""Python binding of wave.cpp, used in the simulator's own process, and the compressor that wave.cpp calls."""

from __future__ import annotations

import ctypes
import zlib
from ctypes import CFUNCTYPE, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

import lz4.block

from fanin.sim.cosim.window import Window, scope_of

_LEVEL = 4  # zlib's compression level


@CFUNCTYPE(c_size_t, c_int, c_void_p, c_size_t, c_void_p, c_size_t)
def _compress(method: int, source: int, size: int, target: int, capacity: int) -> int:
    """Implement ``fanin_compress`` of wave_compress.h."""
    data = ctypes.string_at(source, size)
    packed = zlib.compress(data, _LEVEL) if method else lz4.block.compress(data, store_size=False)
    if len(packed) > capacity:
        return 0
    ctypes.memmove(target, packed, len(packed))
    return len(packed)


class WaveWriter:
    """Writer of a run's waveform, made before the simulation begins, in a simulator built for waveforms."""

    def __init__(self, window: Window, path: Path, *, nodes: int, period_ps: int):
        self._functions = functions = ctypes.CDLL(None)
        functions.cosim_wave_node.argtypes = (c_char_p,)
        functions.cosim_wave.argtypes = (c_char_p, *[c_uint64] * 4, type(_compress))
        functions.cosim_wave_skip.argtypes = (c_uint64,)
        functions.cosim_close_wave.restype = c_uint64
        for node in window.selected_nodes(nodes):
            functions.cosim_wave_node(scope_of(node).encode())
        functions.cosim_wave(str(path).encode(), period_ps, window.first, window.count, window.depth, _compress)

    def skip(self, time_ps: int) -> None:
        """Let time pass without clock edges."""
        self._functions.cosim_wave_skip(time_ps)

    def close(self) -> int:
        """Complete the file, if the window was reached; return its number of rising edges."""
        return int(self._functions.cosim_close_wave())
