"""Rows as words of 64 bits, and back."""

import numpy as np
import pytest

from fanin.sim.checker.packing import Packing, chunks, hash_words
from fanin.sim.checker.tables import Interned


@pytest.mark.parametrize(
    ("bits", "words"),
    [([0], 1), ([31, 31, 2], 1), ([31, 31, 2, 0], 1), ([31, 31, 3], 2), ([20] * 7 + [0, 1], 3)],
)
def test_rows_come_back(bits, words):
    random = np.random.default_rng(5)
    rows = np.stack([random.integers(1 << width, size=1000, dtype=np.int64) for width in bits], axis=1)
    rows[0], rows[1] = 0, [(1 << width) - 1 for width in bits]
    packing = Packing(bits)
    packed = packing.pack(rows.astype(np.int32))
    assert len(packed) == packing.words == words
    assert (packing.unpack(packed) == rows).all()
    distinct = len({tuple(row) for row in rows.tolist()})
    assert len(set(zip(*(word.tolist() for word in packed), strict=True))) == distinct
    assert len(np.unique(hash_words(packed))) == distinct


def test_a_column_takes_the_bits_of_its_values():
    few, many = Interned(), Interned()
    few("one")
    for value in range(257):
        many(value)
    assert Packing.for_values([many, few, many]).bits == (9, 0, 9)


def test_chunks_cover_a_range_once():
    assert [range(10)[part] for part in chunks(10, 4)] == [range(4), range(4, 8), range(8, 10)]
    assert not list(chunks(0, 4))


@pytest.mark.parametrize("bits", [-1, 32])
def test_a_column_has_at_most_the_bits_of_a_rows_number(bits):
    with pytest.raises(ValueError, match=f"bits of column 1 must be 0 to 31, not {bits}"):
        Packing([4, bits])
