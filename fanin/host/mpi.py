"""INCEPTIONN's all-reduce on MPI: algorithm 1's ring, a codec on every hop (docs/systems/inceptionn-mpi.md).

    from mpi4py import MPI
    from fanin.codec.facts import Inceptionn
    from fanin.host.mpi import allreduce

    total = allreduce(MPI.COMM_WORLD, gradient, codec=Inceptionn(bound=10))

What the paper's ``MPI_allreduce_comp`` does by NICs, the hosts do here: their bits are
:func:`fanin.codec.golden.exchange.host_ring`'s.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from fanin.codec.facts import CodecConfig
from fanin.codec.golden.codecs import decode, encode
from fanin.host.algorithm1 import all_reduce, check, facts

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
    check(comm.allgather(facts(array, codec)))
    with _Hops(comm, codec) as hops:
        return all_reduce(hops, array)


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

    settled = encoded  # a total goes round as it was encoded once

    def decoded(self, stream: bytes, count: int) -> Float32:
        if self._codec is None:
            return np.frombuffer(stream, dtype=np.float32)
        return decode(stream, count, self._codec)

    def exchange(self, stream: bytes, count: int) -> bytes:
        """Its length travels with a message: a codec's depends on the values."""
        sending = self._comm.Isend([stream, MPI.BYTE], dest=self._next, tag=_TAG)
        status = MPI.Status()
        self._comm.Probe(source=self._before, tag=_TAG, status=status)
        received = bytearray(status.Get_count(MPI.BYTE))
        self._comm.Recv([received, MPI.BYTE], source=self._before, tag=_TAG)
        sending.Wait()
        return bytes(received)
