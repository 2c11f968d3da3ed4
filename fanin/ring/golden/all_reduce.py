"""Arithmetic of the ring all-reduce, bit for bit: order of additions, and codec on every hop
(docs/systems/ring.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import Half
from fanin.codec.golden import half
from fanin.golden import fp32
from fanin.ring.facts import MAX_NODES, MIN_NODES, RingConfig
from fanin.ring.golden.random_bits import RandomBits, Send

Float32 = npt.NDArray[np.float32]
Array = npt.NDArray[Any]


def all_reduce(
    gradients: Sequence[Array],
    config: RingConfig,
    hop: Callable[[Float32], Float32] | None = None,
    *,
    bits: RandomBits | None = None,
) -> Array:
    """Return the sum that every node ends with; ``gradients`` are the nodes' vectors in ring order.

    With a ``tensor``, vectors and sum are the codes of their values, in uint16. Nodes add in binary32 and round
    a total once.

    - ``hop``: maps values that a node sends to those that arrive, by default with ``config``'s codec. It is
      called with the N - 1 partial sums of a slice in order, then with the total.
    - ``bits``: random bits of the nodes' job, by default those of a new one; the call advances them.

    Raises ValueError unless there are 2 to 255 gradients of one length, at least 1.
    """
    nodes, count = len(gradients), np.size(gradients[0]) if len(gradients) else 0
    if nodes not in range(MIN_NODES, MAX_NODES + 1):
        raise ValueError(f"nodes must be {MIN_NODES} to {MAX_NODES}, not {nodes}")
    if count < 1 or any(np.size(gradient) != count for gradient in gradients):
        raise ValueError(f"gradients must have one length, at least 1, not {[np.size(g) for g in gradients]}")
    bits = bits or RandomBits()
    send = bits.sender(config.codec) if hop is None else lambda values, node, offset: hop(values)
    vectors = [values_of(gradient, config.tensor) for gradient in gradients]
    padded = np.stack([padded_to_words(vector, config, nodes) for vector in vectors])
    total = np.empty_like(padded[0])
    for node, node_slices in enumerate(slices_by_owner(count, config, nodes)):
        for part in node_slices:
            total[part] = slice_total(padded[:, part], node, part.start, send)
    bits.values += total.size
    return codes_of(total[:count], config.tensor)


def value_type(config: RingConfig) -> np.dtype[Any]:
    """Return the type of a vector's elements in memory: binary32 values, or codes of 16 bits."""
    return np.dtype("<u2" if config.tensor else "<f4")


def values_of(vector: Array, tensor: Half | None) -> Float32:
    """Return the values of a vector as it is in memory."""
    return half.decompress(vector, tensor) if tensor else vector


def codes_of(values: Float32, tensor: Half | None) -> Array:
    """Return a vector as it is stored in memory, rounded to nearest even if its values have 16 bits."""
    return half.compress(values, tensor) if tensor else values


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
    padded = np.zeros(config.padded_values(np.size(gradient), nodes), dtype=gradient.dtype)
    padded[: np.size(gradient)] = np.reshape(gradient, -1)
    return padded


def slice_total(words: Float32, node: int, start: int, send: Send) -> Float32:
    """Return the total of a slice that ``node`` computes; ``words`` has a row of values per node.

    The slice starts at the node after ``node``; each further node adds its own words to those that arrive by
    ``send``. ``start`` is the slice's first value in the padded vector. A node encodes a slice in each of a
    segment's first N steps, so it has encoded the values of earlier segments and those of its earlier steps.
    """
    nodes, size = words.shape
    first = (node + 1) % nodes
    segment = start - first * size
    partial_sum = words[first]
    for step in range(nodes):
        sender = (first + step) % nodes
        arriving = send(partial_sum, sender, segment + step * size)
        if step < nodes - 1:
            partial_sum = fp32.add(arriving, words[(sender + 1) % nodes])
    return arriving


def striped(gradients: Sequence[Array], config: RingConfig, engines: int) -> Array:
    """Return the sum computed by ``engines`` rings, each a new job that reduces one stripe of the vector.

    Raises ValueError as ``all_reduce`` does.
    """
    flat = [np.reshape(gradient, -1) for gradient in gradients]
    stripes = config.stripes(max(map(len, flat), default=0), engines)
    sums = []
    for engine, stripe in enumerate(stripes):
        part = slice(stripe.start, stripe.start + stripe.count)
        if stripe.count:
            bits = RandomBits(1 + engine)
            sums.append(all_reduce([vector[part] for vector in flat], config, bits=bits))
    return np.concatenate(sums)
