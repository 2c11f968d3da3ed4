"""INCEPTIONN's all-reduce on MPI: algorithm 1's ring, a codec on every hop (docs/systems/inceptionn-mpi.md).

    from mpi4py import MPI
    from fanin.codec import Inceptionn
    from fanin.host.mpi import allreduce

    total = allreduce(MPI.COMM_WORLD, gradient, codec=Inceptionn(bound=10))

What the paper's ``MPI_allreduce_comp`` does by NICs, the hosts do here: their bits are
:func:`fanin.golden.codec.exchange.host_ring`'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from fanin.codec import CodecConfig
from fanin.golden.codec.codecs import decode, encode
from fanin.inceptionn import blocks

Float32 = npt.NDArray[np.float32]
_TAG = 0x28  # of our messages: ToS' value of compressed packets


def allreduce(comm: MPI.Comm, array: Float32, *, codec: CodecConfig | None = None) -> Float32:
    """The sum of all ranks' arrays, with ``array``'s shape; the same bits on every rank.

    ``codec``: what each hop sends is compressed, so that each addition sees what it leaves of a partial sum;
    None sends float32. Every rank sends 2·(n - 1)/n of the array. A block of the array is added up in the order
    of ranks, from its own rank on.

    Raises ValueError on every rank, naming one that differs, unless all give float32 arrays of one shape and
    the same codec.
    """
    _check(comm, array, codec)
    nodes = comm.size
    flat = np.ascontiguousarray(array).reshape(-1)
    total = flat.copy()
    if nodes == 1 or not flat.size:
        return total.reshape(array.shape)
    parts = blocks(flat.size, nodes)
    with _Hops(comm, codec) as hops:
        _add_up(hops, flat, total, parts)
    return total.reshape(array.shape)


def _add_up(hops: _Hops, flat: Float32, total: Float32, parts: list[slice]) -> None:
    nodes, rank = hops.size, hops.rank
    for step in range(nodes - 1):  # each block gathers what the next rank adds
        sent, got = parts[(rank - step) % nodes], parts[(rank - step - 1) % nodes]
        stream = hops.exchange(hops.encoded(total[sent]))
        total[got] = hops.decoded(stream, got.stop - got.start) + flat[got]
    stream = hops.encoded(total[parts[(rank + 1) % nodes]])
    for block in _from(rank + 1, nodes):  # each total goes round as it was encoded
        at = parts[block]
        total[at] = hops.decoded(stream, at.stop - at.start)
        if block != (rank + 2) % nodes:
            stream = hops.exchange(stream)


def _from(first: int, nodes: int) -> Iterator[int]:
    """All blocks, backwards from ``first``: the order in which totals come by."""
    return ((first - step) % nodes for step in range(nodes))


class _Hops:
    """To the next rank and from the one before, with or without a codec."""

    def __init__(self, comm: MPI.Comm, codec: CodecConfig | None):
        self._comm = comm.Dup()  # of our own, so that no message of the program's is taken for ours
        self._codec = codec
        self.rank, self.size = comm.rank, comm.size
        self._next, self._before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._comm.Free()

    def encoded(self, values: Float32) -> bytes:
        return values.tobytes() if self._codec is None else encode(values, self._codec)

    def decoded(self, stream: bytes, count: int) -> Float32:
        if self._codec is None:
            return np.frombuffer(stream, dtype=np.float32)
        return decode(stream, count, self._codec)

    def exchange(self, stream: bytes) -> bytes:
        """What the rank before sends while the next one gets ``stream``; its length travels with it."""
        sending = self._comm.Isend([stream, MPI.BYTE], dest=self._next, tag=_TAG)
        status = MPI.Status()
        self._comm.Probe(source=self._before, tag=_TAG, status=status)
        received = bytearray(status.Get_count(MPI.BYTE))
        self._comm.Recv([received, MPI.BYTE], source=self._before, tag=_TAG)
        sending.Wait()
        return bytes(received)


def _check(comm: MPI.Comm, array: Any, codec: CodecConfig | None) -> None:
    """Raise ValueError on every rank where the ranks disagree, so that no rank waits for another."""
    own = (type(array).__name__, str(getattr(array, "dtype", "")), getattr(array, "shape", ()), str(codec))
    others = comm.allgather(own)
    if any(kind != "ndarray" or dtype != "float32" for kind, dtype, _, _ in others):
        rank = next(
            r for r, (kind, dtype, _, _) in enumerate(others) if (kind, dtype) != ("ndarray", "float32")
        )
        raise ValueError(f"rank {rank}: array must be of float32, not {' of '.join(others[rank][:2])}")
    for name, index in (("shape", 2), ("codec", 3)):
        different = [rank for rank, of in enumerate(others) if of[index] != others[0][index]]
        if different:
            rank = different[0]
            raise ValueError(
                f"rank {rank}: {name} must be that of rank 0, {others[0][index]}, not {others[rank][index]}"
            )
