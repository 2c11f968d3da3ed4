"""Shares of INCEPTIONN's forms: measured, published (table III), and estimated for strict mode."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fanin.codec.facts import FLOAT_BITS, TAG_BITS, TAG_BYTES, Inceptionn, Tag
from fanin.codec.golden import inceptionn

Float32 = npt.NDArray[np.float32]

FORM_BITS = tuple(TAG_BITS + 8 * TAG_BYTES[tag] for tag in Tag)  # 2, 10, 18, 34
BOUNDS = (10, 8, 6)
# Range of exponents per form, in the order of Tag, at a bound of 2^-10; sums of up to 8 values keep the form.
_EXPONENTS = ((-20, -14), (-9.9, -8.1), (-4.9, -3.1), (0.1, 2))

# Per cent of the values in each form, for each of BOUNDS (table III).
TABLE_III: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "AlexNet": ((74.9, 3.9, 21.1, 0.1), (82.5, 14.8, 2.6, 0.1), (93.0, 7.0, 0.0, 0.1)),
    "HDC": ((92.0, 6.5, 1.5, 0.0), (95.7, 3.4, 0.9, 0.0), (98.1, 1.6, 0.4, 0.0)),
    "ResNet-50": ((81.6, 17.9, 0.5, 0.0), (92.3, 7.7, 0.1, 0.0), (97.6, 2.4, 0.0, 0.0)),
    "VGG-16": ((94.2, 0.9, 4.9, 0.0), (96.2, 3.8, 0.0, 0.0), (97.3, 2.7, 0.0, 0.0)),
}


def shares(values: Float32, config: Inceptionn) -> tuple[float, ...]:
    """Return the per cent of ``values`` in each form, in the order of ``Tag``."""
    tags, _ = inceptionn.compress(values, config)
    return tuple((100 * np.bincount(tags, minlength=len(Tag)) / len(tags)).tolist())


def bits(form_shares: Sequence[float]) -> float:
    """Return the bits of a value with its tag, for these shares."""
    return sum(share * size for share, size in zip(form_shares, FORM_BITS, strict=True)) / sum(form_shares)


def ratio(form_shares: Sequence[float]) -> float:
    """Return the compression ratio for these shares."""
    return FLOAT_BITS / bits(form_shares)


def gradients(form_shares: Sequence[float], count: int, workers: int, seed: int = 0) -> list[Float32]:
    """Return ``count`` values for up to 8 workers each, with these shares of forms in published mode at 2^-10.

    The workers' values at one place have the same form and sign, and so does any sum of them.
    """
    rng = np.random.default_rng(seed)
    form = rng.choice(len(Tag), size=count, p=np.array(form_shares) / sum(form_shares))
    sign = rng.choice([-1, 1], size=count)
    low, high = np.array(_EXPONENTS).T
    exponents = rng.uniform(low[form], high[form], size=(workers, count))
    return list((sign * 2.0**exponents).astype(np.float32))
