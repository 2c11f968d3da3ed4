"""Adders of the ranks' vectors: the golden models, of which each rank computes a share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import SPECIAL_EXPONENT
from fanin.golden import scaled
from fanin.ring.facts import TENSORS
from fanin.ring.golden.all_reduce import codes_of, padded_to_words, slice_total, slices_by_owner, values_of
from fanin.ring.golden.random_bits import RandomBits
from fanin.torch.halves import HalfFormat
from fanin.torch.options import Options
from fanin.torch.wire import Wire

Float32 = npt.NDArray[np.float32]
Vector = npt.NDArray[Any]  # float32, or codes of 16 bits


class Sum(NamedTuple):
    """Sum of all ranks' vectors, with the type of their elements, and its time in RTL; None without RTL."""

    values: Vector
    seconds: float | None


class Adder(Protocol):
    """All-reduces of vectors of one length, at least 1; all ranks must make the same calls."""

    def all_reduce(self, vector: Vector, tensor: HalfFormat | None = None) -> Sum:
        """Return the sum, of codes of ``tensor``, which only rings add, or of float32.

        Raises RuntimeError as gloo does, DistBackendError for a failure at rank 0.
        """

    def close(self) -> None:
        """End the processes that it has started."""


class GoldenRing:
    """Golden model of the ring; each slice is added by the rank whose node has its total first."""

    def __init__(self, options: Options, wire: Wire):
        self._config, self._wire = options.ring, wire
        self._bits = {tensor: RandomBits() for tensor in TENSORS.values()}  # a node of its own for each format

    def all_reduce(self, vector: Vector, tensor: HalfFormat | None = None) -> Sum:
        """Return the sum of :func:`fanin.ring.golden.all_reduce.all_reduce`.

        Vectors travel between ranks as they are. The owner of a slice adds in binary32, in the ring's order and
        with the codec on its hops, and rounds once.
        """
        bits = self._bits[tensor]
        send = bits.sender(self._config.codec)

        def total(words: Vector, start: int) -> Vector:
            sums = slice_total(values_of(words, tensor), self._wire.rank, start, send)
            return codes_of(sums, tensor)

        result = self._reduce(vector, total)
        bits.values += self._config.padded_values(vector.size, self._wire.size)
        return Sum(result, None)

    def _reduce(self, vector: Vector, total: Callable[[Vector, int], Vector]) -> Vector:
        """Return the totals of all slices.

        Each rank owns some slices. The ranks send each owner their values of its slices, the owner computes the
        totals, and all ranks gather the totals. ``total`` maps the ranks' values of a slice, in a row each, and
        the slice's first value in the vector to the slice's total.
        """
        wire, config = self._wire, self._config
        padded = padded_to_words(vector, config, wire.size)
        owned_slices = slices_by_owner(vector.size, config, wire.size)
        parts = [np.concatenate([padded[position] for position in slices]) for slices in owned_slices]
        received_parts = wire.exchange([part.view(np.uint8) for part in parts])
        words = np.stack([part.view(vector.dtype) for part in received_parts])
        own = owned_slices[wire.rank]
        parts = [total(words[:, part], slice_.start) for slice_, part in zip(own, _packed(own), strict=True)]
        totals = np.concatenate(parts)
        for slices, part in zip(owned_slices, wire.all_gather(totals.view(np.uint8)), strict=True):
            received = part.view(vector.dtype)
            for position, packed in zip(slices, _packed(slices), strict=True):
                padded[position] = received[packed]
        return padded[: vector.size]

    def close(self) -> None:
        """Do nothing."""


def _packed(slices: list[slice]) -> list[slice]:
    """Return the positions of slices after they are concatenated."""
    ends = np.cumsum([0, *(position.stop - position.start for position in slices)]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]


class GoldenSwitch:
    """Golden model of the switch: sums of scaled integers, which do not depend on the order."""

    def __init__(self, wire: Wire):
        self._wire = wire

    def all_reduce(self, vector: Vector, tensor: HalfFormat | None = None) -> Sum:
        """Return the sum of :func:`fanin.golden.scaled.all_reduce`; ``tensor``: None."""
        assert tensor is None
        wire = self._wire
        exponent = int(np.max(wire.all_gather(np.array([scaled.largest_exponent(vector)]))))
        if exponent == SPECIAL_EXPONENT:
            return Sum(scaled.not_finite(vector.size), None)
        contributions = wire.all_gather(scaled.integers(vector, exponent, wire.size))
        return Sum(scaled.floats(np.sum(contributions, axis=0, dtype=np.int32), exponent, wire.size), None)

    def close(self) -> None:
        """Do nothing."""
