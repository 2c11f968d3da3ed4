"""The ring all-reduce's arithmetic, bit for bit: order of additions, codec on every hop
(docs/systems/ring.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from fanin.golden import fp32
from fanin.golden.codec.codecs import roundtrip
from fanin.ring import MAX_NODES, MIN_NODES, RingConfig

Float32 = npt.NDArray[np.float32]


def all_reduce(
    gradients: Sequence[Float32], config: RingConfig, hop: Callable[[Float32], Float32] | None = None
) -> Float32:
    """The sum that every node ends with; ``gradients`` are theirs, in the order of the ring.

    ``hop``: what arrives of what a node sends, instead of the round trip of ``config``'s codec. It is called
    with the N - 1 partial sums of a slice in order, then with the total.

    Raises ValueError unless there are 2 to 255 of them, of one length, at least 1.
    """
    nodes, count = len(gradients), np.size(gradients[0]) if len(gradients) else 0
    if nodes not in range(MIN_NODES, MAX_NODES + 1):
        raise ValueError(f"nodes must be {MIN_NODES} to {MAX_NODES}, not {nodes}")
    if count < 1 or any(np.size(gradient) != count for gradient in gradients):
        raise ValueError(f"gradients must have one length, at least 1, not {[np.size(g) for g in gradients]}")
    hop = hop or partial(roundtrip, config=config.codec)
    segments = list(config.segments(count, nodes))
    last = segments[-1][-1]
    padded = np.zeros((nodes, (last.start + last.words) * config.lanes), dtype=np.float32)
    for own, gradient in zip(padded, gradients, strict=True):
        own[:count] = np.reshape(gradient, -1)
    total = np.empty_like(padded[0])
    for segment in segments:
        for first, piece in enumerate(segment):
            at = slice(piece.start * config.lanes, (piece.start + piece.words) * config.lanes)
            total[at] = _slice(np.roll(padded[:, at], -first, axis=0), hop)
    return total[:count]


def striped(gradients: Sequence[Float32], config: RingConfig, engines: int) -> Float32:
    """The sum of ``engines`` rings that share the vector: each stripe is an all-reduce of its own.

    Raises ValueError as ``all_reduce``.
    """
    flat = [np.reshape(gradient, -1) for gradient in gradients]
    stripes = config.stripes(max(map(len, flat), default=0), engines)
    parts = [slice(stripe.start, stripe.start + stripe.count) for stripe in stripes if stripe.count]
    return np.concatenate([all_reduce([own[part] for own in flat], config) for part in parts])


def _slice(own: Float32, hop: Callable[[Float32], Float32]) -> Float32:
    """One slice round the ring: ``own`` are the nodes' words, that of the slice's first node first."""
    travelling = own[0]
    for mine in own[1:]:
        travelling = fp32.add(hop(travelling), mine)
    return hop(travelling)
