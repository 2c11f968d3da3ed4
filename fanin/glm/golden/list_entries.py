"""Entries of a sparse node's lists, and their encoding (docs/systems/sparse.md, "Layout")."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fanin.glm.facts import ENTRY_ALLOW_BITS, ENTRY_CHUNK_BITS, ENTRY_KIND_BITS

Bool = npt.NDArray[np.bool_]

MAX_CHUNKS = 1 << ENTRY_CHUNK_BITS
MAX_ALLOW = (1 << ENTRY_ALLOW_BITS) - 1


class Entries(NamedTuple):
    """Fields of a list's entries, each as an array with a place per entry."""

    chunk: npt.NDArray[np.uint32]  #: chunk of the engine; 0 if EMPTY
    allow: npt.NDArray[np.uint32]  #: most missing final writes of earlier mini-batches
    kind: npt.NDArray[np.uint32]  #: a ``EntryKind``
    last: Bool  #: True for the last entry of a micro-batch


def encode_entries(
    chunk: npt.ArrayLike, allow: npt.ArrayLike, kind: npt.ArrayLike, last: npt.ArrayLike
) -> npt.NDArray[np.uint32]:
    """Return the entries of these fields, uint32. Raises ValueError if a field exceeds its bits."""
    word = np.zeros(np.shape(chunk), dtype=np.uint32)
    start = 0
    fields = {"chunk": (chunk, ENTRY_CHUNK_BITS), "allow": (allow, ENTRY_ALLOW_BITS)}
    fields |= {"kind": (kind, ENTRY_KIND_BITS), "last": (last, 1)}
    for name, (values, bits) in fields.items():
        field = np.asarray(values, dtype=np.int64)
        if field.size and (field.min() < 0 or field.max() >> bits):
            raise ValueError(f"{name} must be in 0…{(1 << bits) - 1}, not {field.min()}…{field.max()}")
        word |= field.astype(np.uint32) << np.uint32(start)
        start += bits
    return word


def decode_entries(entries: npt.NDArray[np.uint32]) -> Entries:
    """Return the fields of a list's entries."""
    starts = (0, ENTRY_CHUNK_BITS, ENTRY_CHUNK_BITS + ENTRY_ALLOW_BITS)
    chunk, allow, kind = (
        (entries >> np.uint32(start) & np.uint32((1 << bits) - 1)).astype(np.uint32)
        for start, bits in zip(starts, (ENTRY_CHUNK_BITS, ENTRY_ALLOW_BITS, ENTRY_KIND_BITS), strict=True)
    )
    return Entries(chunk, allow, kind, entries >> np.uint32(31) == 1)
