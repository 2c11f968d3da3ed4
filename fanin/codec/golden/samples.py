"""Test values for codecs: all exponents, special values, and values at which a codec's choices change."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
UInt32 = npt.NDArray[np.uint32]

_FRACTION_BITS, _SIGN = 23, 1 << 31
_ENDS = 4  # fractions at each end of an exponent's range that are always included


def corners() -> UInt32:
    """Return bits of values with every exponent and sign: the first and last fractions, single ones, runs of
    ones.

    They include zeros, subnormals, infinities and NaN, and every power of two with its neighbours.
    """
    top = 1 << _FRACTION_BITS
    powers = [1 << bit for bit in range(_FRACTION_BITS)]
    fractions = {*range(_ENDS), *range(top - _ENDS, top), *powers, *(top - power for power in powers)}
    fractions |= {power - 1 for power in powers} | {power + 1 for power in powers}
    exponents = np.arange(1 << 8, dtype=np.uint32) << _FRACTION_BITS
    positive = (exponents[:, None] | np.array(sorted(fractions), dtype=np.uint32)).reshape(-1)
    return np.concatenate([positive, positive | _SIGN])


def samples(count: int, seed: int) -> Float32:
    """Return ``count`` values: corners, up to half of the count, random bits, and values like gradients.

    The latter have runs of equal magnitude, from compressible to incompressible, as layers of a network have.
    """
    rng = np.random.default_rng(seed)
    corner = rng.permutation(corners())[: count // 2]
    remaining = count - len(corner)
    bits = rng.integers(0, 1 << 32, remaining // 2, dtype=np.uint32)
    count_of_gradients = remaining - len(bits)
    scales = np.exp2(rng.uniform(-24, 2, -(-count_of_gradients // 256))).repeat(256)[:count_of_gradients]
    gradients = (rng.standard_normal(len(scales)) * scales).astype(np.float32)
    scattered = rng.permutation(np.concatenate([corner, bits]))
    position = rng.integers(0, len(scattered) + 1)  # gradients stay together, but begin anywhere
    parts = [scattered[:position], gradients.view(np.uint32), scattered[position:]]
    return np.concatenate(parts).view(np.float32)
