"""Frames for the INCEPTIONN components, and what they must become."""

from __future__ import annotations

import random

import numpy as np

from fanin.codec import Inceptionn
from fanin.sim.golden.codec.packet import LENGTH_BYTES, compress_payload
from fanin.sim.golden.codec.samples import samples


def compressed(frame: bytes, config: Inceptionn) -> bytes:
    """A frame compressed, by the golden model."""
    return compress_payload(frame, config)[LENGTH_BYTES:]


def incompressible(size: int, rng: random.Random) -> bytes:
    """A frame of values that no form but the raw one holds."""
    return b"".join((0x3F800000 + rng.randrange(1 << 24)).to_bytes(4, "little") for _ in range(-(-size // 4)))[
        :size
    ]


def mixed(size: int, rng: random.Random) -> bytes:
    """A frame of values of every kind: corners, random bits, gradients of runs of sizes."""
    return samples(-(-size // 4), rng.randrange(1 << 32)).astype(np.dtype("<f4")).tobytes()[:size]


def zeros(size: int, rng: random.Random) -> bytes:
    """A frame that shrinks to its tags."""
    return bytes(size)


KINDS = (mixed, mixed, incompressible, zeros)


def frames_of(sizes: list[int], rng: random.Random) -> list[bytes]:
    """Frames of the given sizes, of random kinds."""
    return [rng.choice(KINDS)(size, rng) for size in sizes]
