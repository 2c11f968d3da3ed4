"""Who adds the ranks' vectors up: the golden model, shared by the ranks."""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt

from fanin.golden.codec.codecs import roundtrip
from fanin.golden.ring.all_reduce import owned, padded_to_words, slice_total
from fanin.ring import RingConfig
from fanin.torch.wire import Wire

Float32 = npt.NDArray[np.float32]


class Adder(Protocol):
    """All-reduces of float32 vectors; all ranks call alike."""

    def all_reduce(self, own: Float32) -> Float32:
        """The sum of all ranks' vectors, which are of one length, at least 1."""

    def close(self) -> None:
        """End what it has started."""


class GoldenRing:
    """The ring's sums, bit for bit, each slice added by the rank whose node has its total first."""

    def __init__(self, config: RingConfig, wire: Wire):
        self._config, self._wire = config, wire
        self._hop = partial(roundtrip, config=config.codec)

    def all_reduce(self, own: Float32) -> Float32:
        """As :func:`fanin.golden.ring.all_reduce.all_reduce`."""
        wire, config = self._wire, self._config
        padded = padded_to_words(own, config, wire.size)
        parts = owned(own.size, config, wire.size)
        words = np.stack(wire.exchange([_taken(padded, slices) for slices in parts]))
        totals, begin = np.empty_like(words[0]), 0
        for at in parts[wire.rank]:
            end = begin + at.stop - at.start
            totals[begin:end] = slice_total(words[:, begin:end], wire.rank, self._hop)
            begin = end
        for slices, theirs in zip(parts, wire.all_gather(totals), strict=True):
            begin = 0
            for at in slices:
                end = begin + at.stop - at.start
                padded[at] = theirs[begin:end]
                begin = end
        return padded[: own.size]

    def close(self) -> None:
        """There is nothing."""


def _taken(padded: Float32, slices: list[slice]) -> Float32:
    return np.concatenate([padded[at] for at in slices])
