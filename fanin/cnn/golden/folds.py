"""Sums of binary32 numbers in the order of the hardware."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from fanin.golden.fp32 import Float32, add


def tree(terms: Sequence[Float32]) -> Float32:
    """Return T: neighbours are added in pairs, level by level; an odd last term passes to the next level."""
    while len(terms) > 1:
        unpaired = terms[len(terms) // 2 * 2 :]
        terms = [*map(add, terms[::2], terms[1::2]), *unpaired]
    return terms[0]


def fold(terms: Float32, start: npt.ArrayLike = 0.0) -> Float32:
    """Return ((start ⊕ terms[0]) ⊕ terms[1]) …, along the first axis."""
    total = np.broadcast_to(np.asarray(start, np.float32), terms.shape[1:])
    for term in terms:
        total = add(total, term)
    return total
