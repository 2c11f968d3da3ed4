"""INCEPTIONN's algorithm 1 over any transport, and the check that ranks agree first (section V-B)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import CodecConfig
from fanin.inceptionn.facts import blocks

Float32 = npt.NDArray[np.float32]
Facts = tuple[str, str, list[int], str]


class Hops(Protocol):
    """Transport of a ring: sends to the next rank and receives from the previous one.

    ``rank``: this rank's number. ``size``: number of ranks.
    """

    rank: int
    size: int

    def encoded(self, values: Float32) -> bytes:
        """Return a partial sum in the form that is sent."""

    def settled(self, values: Float32) -> bytes:
        """Return a total in the form that is sent. All ranks decode the same values, regardless of hops."""

    def decoded(self, stream: bytes, count: int) -> Float32:
        """Return the values of a stream."""

    def exchange(self, stream: bytes, count: int) -> bytes:
        """Send ``stream`` to the next rank; return the stream of ``count`` values from the previous one."""


def all_reduce(hops: Hops, own: Float32) -> Float32:
    """Return the sum of all ranks' arrays: each block collects the ranks' values, then its total is
    forwarded.
    """
    flat = np.ascontiguousarray(own).reshape(-1)
    total, parts, nodes = flat.copy(), blocks(flat.size, hops.size), hops.size
    if nodes > 1 and flat.size:
        for step in range(nodes - 1):
            sent, got = (parts[(hops.rank - step - more) % nodes] for more in (0, 1))
            stream = hops.exchange(hops.encoded(total[sent]), got.stop - got.start)
            total[got] = hops.decoded(stream, got.stop - got.start) + flat[got]
        stream = hops.settled(total[parts[(hops.rank + 1) % nodes]])
        for step in range(nodes):
            at = parts[(hops.rank + 1 - step) % nodes]
            if step:
                stream = hops.exchange(stream, at.stop - at.start)
            total[at] = hops.decoded(stream, at.stop - at.start)
    return total.reshape(own.shape)


def facts(array: Any, codec: CodecConfig | None) -> Facts:
    """Return the properties of an array that must be equal on all ranks."""
    shape = list(getattr(array, "shape", ()))
    return type(array).__name__, str(getattr(array, "dtype", "")), shape, str(codec)


def check(said: Sequence[Facts]) -> None:
    """Raise ValueError that names a rank unless all have float32 arrays of one shape and the same codec."""
    for rank, own in enumerate(said):
        if not _are_facts(own):
            raise ValueError(f"rank {rank}: must say type, shape and codec of its array, not {own!r}")
    for rank, (kind, dtype, *_) in enumerate(said):
        if (kind, dtype) != ("ndarray", "float32"):
            raise ValueError(f"rank {rank}: array must be of float32, not {kind} of {dtype}")
    for rank, (_, _, shape, codec) in enumerate(said):
        if shape != said[0][2]:
            raise ValueError(
                f"rank {rank}: shape must be that of rank 0, {tuple(said[0][2])}, not {tuple(shape)}"
            )
        if codec != said[0][3]:
            raise ValueError(f"rank {rank}: codec must be that of rank 0, {said[0][3]}, not {codec}")


def _are_facts(said: Any) -> bool:
    """Return whether a peer sent a value in the form that :func:`facts` returns."""
    if not isinstance(said, (tuple, list)) or len(said) != 4:
        return False
    kind, dtype, shape, codec = said
    texts = all(isinstance(text, str) and text.isprintable() for text in (kind, dtype, codec))
    return texts and isinstance(shape, list) and all(isinstance(size, int) for size in shape)
