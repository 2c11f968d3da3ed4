"""INCEPTIONN's all-reduce on MPI: algorithm 1's ring, a codec on every hop (docs/systems/inceptionn-mpi.md).

    from mpi4py import MPI
    from fanin.codec.facts import Inceptionn
    from fanin.host.mpi import allreduce

    total = allreduce(MPI.COMM_WORLD, gradient, codec=Inceptionn(bound=10))

The codec of the paper's ``MPI_allreduce_comp`` is in the NICs; here it is in the hosts. The bits are those of
:func:`fanin.codec.golden.exchange.host_ring`.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import numpy.typing as npt
from mpi4py import MPI

from fanin.codec.facts import CodecConfig
from fanin.codec.golden.codecs import decode, encode
from fanin.codec.golden.rounding import derived_seed
from fanin.host.algorithm1 import all_reduce, array_facts, check_facts

Float32 = npt.NDArray[np.float32]
_TAG = 0x28  # MPI tag of these messages: the ToS of compressed packets


def allreduce(comm: MPI.Comm, array: Float32, *, codec: CodecConfig | None = None, seed: int = 1) -> Float32:
    """Return the sum of all ranks' arrays, with ``array``'s shape; the same bits on every rank.

    ``codec``: codec of each hop; each addition uses a partial sum after its round trip. None sends float32.
    Every rank sends 2·(n - 1)/n of the array. Block b of the array is added up in the order of ranks, starting
    at rank b. ``seed``, 1 to 2^32 - 1, selects the random bits of a codec with stochastic rounding; each call
    should have another.

    Raises ValueError on every rank, naming a rank that differs, unless all have float32 arrays of one shape and
    the same codec.
    """
    check_facts(comm.allgather(array_facts(array, codec)))
    with _Hops(comm, codec, seed) as hops:
        return all_reduce(hops, array)


class _Hops:
    """Transport of the ring on MPI, with or without a codec: :class:`fanin.host.algorithm1.Hops`."""

    def __init__(self, comm: MPI.Comm, codec: CodecConfig | None, seed: int):
        self._comm = comm.Dup()  # a communicator of our own, separate from the program's messages
        self._codec = codec
        self._seed, self._step = seed, 0
        self.rank, self.size = comm.rank, comm.size
        self._next, self._previous = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._comm.Free()

    def encode(self, values: Float32) -> bytes:
        if self._codec is None:
            return values.tobytes()
        seed = derived_seed(self._seed, self.rank, self._step)
        self._step += 1
        return encode(values, self._codec, seed)

    encode_total = encode  # a total is forwarded as it was first encoded

    def decode(self, stream: bytes, count: int) -> Float32:
        if self._codec is None:
            return np.frombuffer(stream, dtype=np.float32)
        return decode(stream, count, self._codec)

    def exchange(self, stream: bytes, count: int) -> bytes:
        """Exchange streams of any length, which depends on the values; MPI transmits it with the message."""
        sending = self._comm.Isend([stream, MPI.BYTE], dest=self._next, tag=_TAG)
        status = MPI.Status()
        self._comm.Probe(source=self._previous, tag=_TAG, status=status)
        received = bytearray(status.Get_count(MPI.BYTE))
        self._comm.Recv([received, MPI.BYTE], source=self._previous, tag=_TAG)
        sending.Wait()
        return bytes(received)
