"""INCEPTIONN's all-reduce over TCP sockets, compressed by NICs on the path (docs/systems/inceptionn-mpi.md).

    with Ring(rank, [("10.28.0.1", 34998), ("10.28.0.2", 34998)]) as ring:
        total = ring.allreduce(gradient)

The hosts send float32 and mark the packets (ToS 0x28). Any host that can reach a rank's port can take part: the
network is trusted, as with MPI.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from fanin.base.errors import InputError
from fanin.codec.facts import Inceptionn
from fanin.codec.golden.codecs import roundtrip
from fanin.host.algorithm1 import all_reduce, array_facts, check_facts
from fanin.host.neighbours import Address, Neighbours
from fanin.host.sockets import compressed
from fanin.inceptionn.facts import VALUE_BYTES

Float32 = npt.NDArray[np.float32]


class Ring:
    """A rank in the ring of ``addresses``, which are host and port of each rank in order.

    - ``codec``: codec of the NICs on the path; None leaves packets unmarked, and sums are exact.
    - ``timeout``: longest wait for another rank, in seconds.
    - ``mss``: bytes per segment, as in :func:`fanin.host.sockets.compressed`.

    Raises InputError if there is no such rank or it cannot listen at its address. Raises ConnectionError of one
    line that names the rank if another rank does not connect or has another number of ranks.
    """

    def __init__(
        self,
        rank: int,
        addresses: Sequence[Address],
        *,
        codec: Inceptionn | None = Inceptionn(),  # noqa: B008 (immutable)
        timeout: float = 60.0,
        mss: int | None = None,
    ):
        if not 0 <= rank < len(addresses):
            raise InputError(f"rank must be 0 to {len(addresses) - 1}, not {rank}")
        self.rank, self.size, self._codec = rank, len(addresses), codec
        self._neighbours = None
        if self.size > 1:
            self._neighbours = Neighbours(rank, addresses, timeout=timeout, mss=mss)
            if codec:
                compressed(self._neighbours.data)

    def allreduce(self, array: Float32) -> Float32:
        """Return the sum of all ranks' arrays, with ``array``'s shape; the same bits on every rank.

        Every rank sends 2·(n - 1)/n of the array. Block b of the array is added up in the order of ranks,
        starting at rank b. With NICs each hop keeps the codec's error bound; the total has at most twice the
        bound in addition.

        Raises ValueError on every rank, naming a rank that differs, unless all have float32 arrays of one shape
        and the same codec. Raises ConnectionError that names the rank if a rank has ended or does not answer;
        all later calls then raise the same error.
        """
        own_facts = array_facts(array, self._codec)
        check_facts(self._neighbours.all_gather(own_facts) if self._neighbours else [own_facts])
        return all_reduce(_Hops(self.rank, self.size, self._neighbours, self._codec), array)

    def close(self) -> None:
        """Close the connections."""
        if self._neighbours:
            self._neighbours.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class _Hops:
    """Transport of the ring on TCP, without a codec: NICs compress the values on the wire."""

    def __init__(self, rank: int, size: int, neighbours: Neighbours | None, codec: Inceptionn | None):
        self.rank, self.size = rank, size
        self._neighbours, self._codec = neighbours, codec

    def encode(self, values: Float32) -> bytes:
        return values.astype("<f4", copy=False).tobytes()

    def encode_total(self, values: Float32) -> bytes:
        """Return the values after two round trips, which pass NICs unchanged
        (``fanin.codec.golden.exchange``).
        """
        return self.encode(roundtrip(roundtrip(values, self._codec), self._codec))

    def decode(self, stream: bytes, count: int) -> Float32:
        return np.frombuffer(stream, "<f4", count).astype(np.float32, copy=False)

    def exchange(self, stream: bytes, count: int) -> bytes:
        assert self._neighbours is not None  # a single rank has nothing to exchange
        return self._neighbours.exchange(stream, count * VALUE_BYTES)
