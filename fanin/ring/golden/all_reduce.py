"""Arithmetic of the ring all-reduce, bit for bit: order of additions, and codec on every hop
(docs/systems/ring.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.codec.golden.codecs import RoundTrips
from fanin.golden import fp32
from fanin.ring.facts import MAX_NODES, MIN_NODES, RingConfig

Float32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


def all_reduce(
    gradients: Sequence[Float32], config: RingConfig, hop: Callable[[Float32], Float32] | None = None
) -> Float32:
    """Return the sum that every node ends with; ``gradients`` are the nodes' vectors in ring order.

    ``hop``: maps values that a node sends to those that arrive; by default the round trips of ``config``'s
    codec, with the same random bits in each all-reduce. It is called with the N - 1 partial sums of a slice in
    order, then with the total.

    Raises ValueError unless there are 2 to 255 gradients of one length, at least 1.
    """
    nodes, count = len(gradients), np.size(gradients[0]) if len(gradients) else 0
    if nodes not in range(MIN_NODES, MAX_NODES + 1):
        raise ValueError(f"nodes must be {MIN_NODES} to {MAX_NODES}, not {nodes}")
    if count < 1 or any(np.size(gradient) != count for gradient in gradients):
        raise ValueError(f"gradients must have one length, at least 1, not {[np.size(g) for g in gradients]}")
    hop = hop or RoundTrips(config.codec)
    padded = np.stack([padded_to_words(gradient, config, nodes) for gradient in gradients])
    total = np.empty_like(padded[0])
    for node, node_slices in enumerate(slices_by_owner(count, config, nodes)):
        for part in node_slices:
            total[part] = slice_total(padded[:, part], node, hop)
    return total[:count]


def slices_by_owner(count: int, config: RingConfig, nodes: int) -> list[list[slice]]:
    """Return per node the slices of the padded vector whose totals the node computes.

    A slice starts at the node of its number and is complete after N - 1 hops, at the node before that one.
    """
    slices: list[list[slice]] = [[] for _ in range(nodes)]
    for segment in config.segments(count, nodes):
        for first, part in enumerate(segment):
            end = part.start + part.words
            slices[first - 1].append(slice(part.start * config.lanes, end * config.lanes))
    return slices


def padded_to_words(gradient: Array, config: RingConfig, nodes: int) -> Array:
    """Return a node's vector, padded with zeros of its type to the end of the last slice."""
    *_, segment = config.segments(np.size(gradient), nodes)
    padded = np.zeros((segment[-1].start + segment[-1].words) * config.lanes, dtype=gradient.dtype)
    padded[: np.size(gradient)] = np.reshape(gradient, -1)
    return padded


def slice_total(words: Float32, node: int, hop: Callable[[Float32], Float32]) -> Float32:
    """Return the total of a slice that ``node`` computes; ``words`` has a row of values per node.

    The slice starts at the node after ``node``; each further node adds its own words to those that arrive over
    ``hop``.
    """
    order = np.roll(words, -(node + 1), axis=0)
    partial_sum = order[0]
    for node_words in order[1:]:
        partial_sum = fp32.add(hop(partial_sum), node_words)
    return hop(partial_sum)


def striped(gradients: Sequence[Float32], config: RingConfig, engines: int) -> Float32:
    """Return the sum computed by ``engines`` rings, each an all-reduce of one stripe of the vector.

    Raises ValueError as ``all_reduce`` does.
    """
    flat = [np.reshape(gradient, -1) for gradient in gradients]
    stripes = config.stripes(max(map(len, flat), default=0), engines)
    parts = [slice(stripe.start, stripe.start + stripe.count) for stripe in stripes if stripe.count]
    return np.concatenate([all_reduce([vector[part] for vector in flat], config) for part in parts])
