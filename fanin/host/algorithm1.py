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

    def encode(self, values: Float32) -> bytes:
        """Return a partial sum in the form that is sent."""

    def encode_total(self, values: Float32) -> bytes:
        """Return a total in the form that is sent. All ranks decode the same values, regardless of hops."""

    def decode(self, stream: bytes, count: int) -> Float32:
        """Return the values of a stream."""

    def exchange(self, stream: bytes, count: int) -> bytes:
        """Send ``stream`` to the next rank; return the stream of ``count`` values from the previous one."""


def all_reduce(hops: Hops, array: Float32) -> Float32:
    """Return the sum of all ranks' arrays, of which ``array`` is this rank's.

    The array is cut into one block per rank. In the first n - 1 steps, rank r sends the partial sum of block
    r - step and adds its own values to block r - step - 1, which arrives. It then has the total of block r + 1.
    In n - 1 further steps each total travels around the ring, as its first sender encoded it.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    total, parts, nodes = flat.copy(), blocks(flat.size, hops.size), hops.size
    if nodes > 1 and flat.size:
        for step in range(nodes - 1):
            sent, received = parts[(hops.rank - step) % nodes], parts[(hops.rank - step - 1) % nodes]
            stream = hops.exchange(hops.encode(total[sent]), received.stop - received.start)
            total[received] = hops.decode(stream, received.stop - received.start) + flat[received]
        stream = hops.encode_total(total[parts[(hops.rank + 1) % nodes]])
        for step in range(nodes):
            block = parts[(hops.rank + 1 - step) % nodes]
            if step:  # the own total, in step 0, is only decoded, so that all ranks have the same bits
                stream = hops.exchange(stream, block.stop - block.start)
            total[block] = hops.decode(stream, block.stop - block.start)
    return total.reshape(array.shape)


def array_facts(array: Any, codec: CodecConfig | None) -> Facts:
    """Return type, element type, shape and codec of an array, which must be equal on all ranks."""
    shape = list(getattr(array, "shape", ()))
    return type(array).__name__, str(getattr(array, "dtype", "")), shape, str(codec)


def check_facts(facts_by_rank: Sequence[Facts]) -> None:
    """Raise ValueError that names a rank unless all have float32 arrays of one shape and the same codec."""
    for rank, rank_facts in enumerate(facts_by_rank):
        if not _are_facts(rank_facts):
            raise ValueError(f"rank {rank}: must say type, shape and codec of its array, not {rank_facts!r}")
    for rank, (kind, dtype, *_) in enumerate(facts_by_rank):
        if (kind, dtype) != ("ndarray", "float32"):
            raise ValueError(f"rank {rank}: array must be of float32, not {kind} of {dtype}")
    for rank, (_, _, shape, codec) in enumerate(facts_by_rank):
        if shape != facts_by_rank[0][2]:
            raise ValueError(
                f"rank {rank}: shape must be that of rank 0, {tuple(facts_by_rank[0][2])}, not {tuple(shape)}"
            )
        if codec != facts_by_rank[0][3]:
            raise ValueError(f"rank {rank}: codec must be that of rank 0, {facts_by_rank[0][3]}, not {codec}")


def _are_facts(candidate: Any) -> bool:
    """Return whether a peer sent a value in the form that :func:`array_facts` returns."""
    if not isinstance(candidate, (tuple, list)) or len(candidate) != 4:
        return False
    kind, dtype, shape, codec = candidate
    texts = all(isinstance(text, str) and text.isprintable() for text in (kind, dtype, codec))
    return texts and isinstance(shape, list) and all(isinstance(size, int) for size in shape)
