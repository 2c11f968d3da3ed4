"""Frames for the INCEPTIONN components, and what they must become."""

from __future__ import annotations

import random

import numpy as np

from fanin.codec.facts import TAG_BYTES, Inceptionn, Tag
from fanin.codec.golden import inceptionn
from fanin.codec.golden.packet import LENGTH_BYTES, compress_payload
from fanin.codec.golden.samples import samples


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


def decompressed(data: bytes, length: int, config: Inceptionn) -> tuple[bytes, bool]:
    """``length`` bytes, whatever ``data`` is, and the error.

    The first group that is not all there, and all behind it, are zeros.
    """
    values, at, missing = [], 0, False
    for _ in range(-(-length // (4 * config.group))):
        tags = data[at : at + config.tag_bytes]
        size = config.tag_bytes + sum(TAG_BYTES[Tag(byte >> k & 3)] for byte in tags for k in range(0, 8, 2))
        missing |= at + size > len(data)
        group = bytes(config.tag_bytes) if missing else data[at : at + size]
        values.append(inceptionn.decode(group, config.group, config))
        at += size
    return np.concatenate(values).astype(np.dtype("<f4")).tobytes()[:length], missing
