# amaranth: UnusedElaboratable=no
"""Words of 16-bit values, widened as they are read and rounded as they are stored, against other libraries."""

import ml_dtypes
import numpy as np
import pytest

from fanin.codec.facts import Bf16, Fp16
from fanin.hdl.ring.halves import HalfReader, HalfWriter
from tests.support import new_seed, simulate

LANES = 8
TYPES = {Bf16(): ml_dtypes.bfloat16, Fp16(): np.float16}
NAN = 0x7FC00000


def number(values):
    """The number that a word's values make."""
    return int.from_bytes(values.tobytes(), "little")


def codes_of(rng, count):
    """Codes of every kind: all exponents, subnormal numbers, zeros, infinities, NaN."""
    codes = rng.integers(0, 1 << 16, count, dtype=np.uint16)
    codes[rng.random(count) < 0.1] &= 0x8007
    codes[rng.random(count) < 0.1] |= 0x7C00
    return codes


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("tensor", TYPES, ids=str)
def test_words_become_the_same_values_in_binary32(tensor, stall):
    rng = np.random.default_rng(new_seed())
    words = codes_of(rng, 300 * LANES).reshape(-1, LANES)
    dut = HalfReader(lanes=LANES, tensor=tensor)
    log = simulate(dut, drive={"i": [number(word) for word in words]}, collect={"o": len(words)}, stall=stall)
    values = words.view(TYPES[tensor]).astype(np.float32)
    expected = np.where(np.isnan(values), NAN, values.view(np.uint32)).astype("<u4")
    assert [word for _, word in log["o"]] == [number(word) for word in expected]
    if not stall:
        cycles = [cycle for cycle, _ in log["o"]]
        assert cycles == list(range(cycles[0], cycles[0] + len(words)))


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("tensor", TYPES, ids=str)
def test_words_are_rounded_to_nearest_even_and_keep_their_masks(tensor, stall):
    rng = np.random.default_rng(new_seed())
    bits = rng.integers(0, 1 << 32, 300 * LANES, dtype=np.uint32)
    bits[::3] = (codes_of(rng, len(bits[::3])).view(TYPES[tensor]).astype(np.float32)).view(np.uint32)
    bits[1::3] = rng.normal(0, 1, len(bits[1::3])).astype(np.float32).view(np.uint32)
    bits[2::6] &= rng.choice(np.array([0xFFFF8000, 0xFFFFF000], np.uint32), len(bits[2::6]))  # ties
    words = bits.view(np.float32).reshape(-1, LANES)
    masks = rng.integers(0, 1 << LANES, len(words)).tolist()
    dut = HalfWriter(lanes=LANES, tensor=tensor)
    sent = [{"data": number(word), "mask": mask} for word, mask in zip(words, masks, strict=True)]
    log = simulate(dut, drive={"i": sent}, collect={"o": len(words)}, stall=stall)
    with np.errstate(over="ignore", invalid="ignore"):
        codes = words.astype(TYPES[tensor]).view(np.uint16)
    expected = np.where(np.isnan(words), 0x7FC0 if tensor == Bf16() else 0x7E00, codes).astype("<u2")
    assert [payload.data for _, payload in log["o"]] == [number(word) for word in expected]
    assert [payload.mask for _, payload in log["o"]] == masks
    if not stall:
        cycles = [cycle for cycle, _ in log["o"]]
        assert cycles == list(range(cycles[0], cycles[0] + len(words)))
