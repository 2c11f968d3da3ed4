"""Adders of the ranks' vectors: the golden models, of which each rank computes a share."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import SPECIAL_EXPONENT
from fanin.codec.golden.codecs import RoundTrips
from fanin.codec.golden.rounding import derived_seed
from fanin.golden import scaled
from fanin.ring.golden.all_reduce import padded_to_words, slice_total, slices_by_owner
from fanin.torch.options import Options
from fanin.torch.wire import Wire

Float32 = npt.NDArray[np.float32]


class Sum(NamedTuple):
    """Sum of all ranks' vectors, and its time in RTL; None without RTL."""

    values: Float32
    seconds: float | None


class Adder(Protocol):
    """All-reduces of float32 vectors of one length, at least 1; all ranks must make the same calls."""

    def all_reduce(self, vector: Float32) -> Sum:
        """Return the sum. Raises RuntimeError as gloo does, DistBackendError for a failure at rank 0."""

    def close(self) -> None:
        """End the processes that it has started."""


class GoldenRing:
    """Golden model of the ring; each slice is added by the rank whose node has its total first."""

    def __init__(self, options: Options, wire: Wire):
        self._config, self._wire = options.ring, wire
        self._hop = RoundTrips(options.codec, derived_seed(1, wire.rank))

    def all_reduce(self, vector: Float32) -> Sum:
        """Return the sum of :func:`fanin.ring.golden.all_reduce.all_reduce`.

        Each rank owns some slices. The ranks send each owner their values of its slices, the owner computes the
        totals in the ring's order, and all ranks gather the totals.
        """
        wire, config = self._wire, self._config
        padded = padded_to_words(vector, config, wire.size)
        owned_slices = slices_by_owner(vector.size, config, wire.size)
        words = np.stack(
            wire.exchange(
                [np.concatenate([padded[position] for position in slices]) for slices in owned_slices]
            )
        )
        totals = np.concatenate(
            [
                slice_total(words[:, position], wire.rank, self._hop)
                for position in _packed(owned_slices[wire.rank])
            ]
        )
        for slices, received in zip(owned_slices, wire.all_gather(totals), strict=True):
            for position, packed in zip(slices, _packed(slices), strict=True):
                padded[position] = received[packed]
        return Sum(padded[: vector.size], None)

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

    def all_reduce(self, vector: Float32) -> Sum:
        """Return the sum of :func:`fanin.golden.scaled.all_reduce`."""
        wire = self._wire
        exponent = int(np.max(wire.all_gather(np.array([scaled.largest_exponent(vector)]))))
        if exponent == SPECIAL_EXPONENT:
            return Sum(scaled.not_finite(vector.size), None)
        contributions = wire.all_gather(scaled.integers(vector, exponent, wire.size))
        return Sum(scaled.floats(np.sum(contributions, axis=0, dtype=np.int32), exponent, wire.size), None)

    def close(self) -> None:
        """Do nothing."""
