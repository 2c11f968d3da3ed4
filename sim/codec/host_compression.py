"""Measured cost of compressing gradients on a host (INCEPTIONN, figure 7): Snappy, SZ, and dropped bytes.

Snappy is cramjam's, SZ is pysz's (SZ3, the successor of the paper's SZ). Both are optional: pip install
'fanin[compressors]'.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.sim.codec.wire import Truncation, transfer

Float32 = npt.NDArray[np.float32]

BOUND = 2.0**-10  # SZ's absolute error bound, INCEPTIONN's default
REPEATS = 7


@dataclass(frozen=True)
class HostCodec:
    """A compressor: values to bytes, and bytes back to a number of values."""

    compress: Callable[[Float32], Any]
    decompress: Callable[[Any, int], Float32]


@dataclass(frozen=True)
class Cost:
    """Compression ratio, and bytes of floats that a core compresses and decompresses per second."""

    ratio: float
    compress: float
    decompress: float


def snappy() -> HostCodec:
    """Return Google's lossless compressor. Raises ImportError without cramjam."""
    from cramjam import snappy as library

    def decompress(data: Any, count: int) -> Float32:
        return np.frombuffer(memoryview(library.decompress_raw(data)), np.float32, count)

    return HostCodec(lambda values: library.compress_raw(values.tobytes()), decompress)


def sz() -> HostCodec:
    """Return SZ3 with an absolute error bound. Raises ImportError without pysz."""
    import pysz

    config = pysz.szConfig()
    config.errorBoundMode = pysz.szErrorBoundMode.ABS
    config.absErrorBound = BOUND
    return HostCodec(
        lambda values: pysz.sz.compress(values, config)[0],
        lambda data, count: pysz.sz.decompress(data, np.float32, (count,))[0],
    )


def truncation(dropped: int) -> HostCodec:
    """Return a codec that keeps two (``dropped`` 16) or one (24) upper bytes: whole bytes are cheapest."""
    size = 4 - dropped // 8
    kind, step = np.dtype(f"<u{size}"), 4 // size

    def decompress(data: npt.NDArray[Any], count: int) -> Float32:
        padded = np.zeros(count * step, kind)
        padded[step - 1 :: step] = data
        return padded.view("<f4")

    return HostCodec(lambda values: values.view(kind)[step - 1 :: step].copy(), decompress)


CODECS: dict[str, Callable[[], HostCodec]] = {
    "Snappy": snappy,
    "SZ3, 2^-10": sz,
    "16 LSBs truncated": lambda: truncation(16),
    "24 LSBs truncated": lambda: truncation(24),
}


def cost(codec: HostCodec, values: Float32, repeats: int = REPEATS) -> Cost:
    """Time both directions on one core, as the best of ``repeats``. Raises ValueError if too much is lost."""
    data = codec.compress(values)
    received = codec.decompress(data, values.size)
    lost = float(np.abs(received - values).max())
    if lost > max(BOUND, float(np.abs(transfer(values, Truncation(24)).values - values).max())):
        raise ValueError(f"a compressor that loses {lost:g} of a value")
    seconds = (
        _best(lambda: codec.compress(values), repeats),
        _best(lambda: codec.decompress(data, values.size), repeats),
    )
    return Cost(values.nbytes / memoryview(data).nbytes, values.nbytes / seconds[0], values.nbytes / seconds[1])


def _best(work: Callable[[], object], repeats: int) -> float:
    """Return the least CPU seconds of some repetitions."""
    seconds = []
    for _ in range(repeats):
        begin = time.process_time()
        work()
        seconds.append(time.process_time() - begin)
    return min(seconds)
