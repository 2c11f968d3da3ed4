"""Random bits against a register moved bit by bit; stochastic rounding is unbiased."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.codec.facts import Bf16, Fp16, Mx
from fanin.codec.formats import LFSR_BITS, LFSR_TAPS, Element, Rounding
from fanin.codec.golden import codecs
from fanin.codec.golden.minifloat import numbers
from fanin.codec.golden.rounding import (
    advance,
    derived_seed,
    lfsr_state,
    lfsr_taps,
    random_bytes,
    round_stochastic,
)


def serial_bits(state, count):
    """The register of the specification: bit 0 leaves, the XOR of the taps enters at the top."""
    bits = []
    for _ in range(count):
        bits.append(state & 1)
        entering = sum(state >> tap & 1 for tap in LFSR_TAPS) & 1
        state = state >> 1 | entering << LFSR_BITS - 1
    return bits


@pytest.mark.parametrize("seed", [1, 2, 0xDEADBEEF, 2**32 - 1])
@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1000, 20_000])
def test_random_bytes_are_those_of_a_serial_register(seed, count):
    bits = serial_bits(seed, 1024 + 8 * count)[1024:]
    assert (
        random_bytes(count, seed).tobytes()
        == np.packbits(np.array(bits, np.uint8), bitorder="little").tobytes()
    )


def test_the_sequence_has_the_largest_period():
    """The register returns after 2^32 - 1 steps, and after no divisor: the polynomial is primitive."""
    period = 2**32 - 1
    assert lfsr_taps(period) == 1
    assert all(lfsr_taps(period // prime) != 1 for prime in (3, 5, 17, 257, 65537))


def test_a_word_of_random_bits_follows_from_the_register():
    """As hardware computes it: each bit is an XOR of the register's, and so is the next register."""
    state, bits = lfsr_state(7), serial_bits(lfsr_state(7), 512)
    assert [(state & lfsr_taps(n)).bit_count() % 2 for n in range(512)] == bits


@pytest.mark.parametrize("values", [0, 1, 16, 1000])
def test_a_sequence_continues_from_an_advanced_seed(values):
    assert random_bytes(values + 50, 9)[values:].tolist() == random_bytes(50, advance(9, values)).tolist()


def test_round_trips_of_a_sender_continue_the_sequence():
    values = np.random.default_rng(3).standard_normal(96).astype(np.float32)
    config, whole = Mx(Element.E2M1, rounding=Rounding.STOCHASTIC), 77
    sender = codecs.RoundTrips(config, whole)
    parts = np.concatenate([sender(values[:32]), sender(values[32:])])
    assert parts.tobytes() == codecs.roundtrip(values, config, whole).tobytes()
    assert codecs.RoundTrips(None)(values) is values


def test_derived_seeds_are_different_valid_and_give_unrelated_bits():
    seeds = [derived_seed(seed, a, b) for seed in (1, 2, 2**32 - 1) for a in range(30) for b in range(30)]
    assert len(set(seeds)) == len(seeds)
    assert min(seeds) > 0
    assert max(seeds) < 2**32
    tops = np.array([random_bytes(64, seed) >> 7 for seed in seeds], dtype=np.int64)
    assert abs(tops.mean(axis=0) - 0.5).max() < 0.06


@pytest.mark.parametrize("seed", [0, -1, 2**32])
def test_a_seed_out_of_range_is_refused(seed):
    with pytest.raises(ValueError, match=f"seed must be from 1 to 2\\^32 - 1, not {seed}"):
        codecs.encode(np.ones(1, dtype=np.float32), Bf16(Rounding.STOCHASTIC), seed)


def test_the_probability_of_rounding_up_is_the_part_that_is_cut_off():
    """Over all 256 random bytes: exact with 8 bits, at most half of 1/256 off with more."""
    part = np.arange(1 << 12, dtype=np.int64)
    ups = sum(
        round_stochastic(part, np.full_like(part, 12), np.full(part.shape, u, dtype=np.uint8))
        for u in range(256)
    )
    exact = part / (1 << 12)
    assert (ups[:: 1 << 4] / 256 == exact[:: 1 << 4]).all()
    error = ups / 256 - exact
    assert abs(error).max() <= 2**-9
    assert ups[0] == 0
    assert abs(error.mean()) < 2**-12


@pytest.mark.parametrize("config", [*map(Mx, Element), Bf16(), Fp16()], ids=str)
def test_the_mean_over_seeds_is_the_value(config):
    """Within four standard errors and the bias of docs/systems/codec.md; 1.5 is the largest in every format."""
    config, seeds = replace(config, rounding=Rounding.STOCHASTIC), 4096
    values = np.array([1.5, 1.3, -0.71, 1.0001, 2**-4 + 2**-9, -1.1, 0.9, 0.4999], dtype=np.float32)
    received = np.array(
        [codecs.roundtrip(values, config, seed) for seed in range(1, seeds + 1)], dtype=np.float64
    )
    error = np.abs(received.mean(axis=0) - values)
    assert (error <= 4 * received.std(axis=0) / seeds**0.5 + steps_at(values, config) * 2**-9).all()
    assert (received.std(axis=0) > 0).sum() >= 4  # most are between two codes


def steps_at(values, config):
    """Distance of the two codes around each value, in a block whose largest value is 1.5."""
    is_mx = isinstance(config, Mx)
    layout = config.element.layout if is_mx else config.layout
    grid = numbers(layout)[: layout.largest + 1] * 2.0 ** (-layout.max_exponent if is_mx else 0)
    above = np.clip(np.searchsorted(grid, np.abs(values), side="right"), 1, len(grid) - 1)
    return grid[above] - grid[above - 1]


def test_random_bits_of_neighbours_are_independent_over_small_seeds():
    """All pairs of upper bits of a frame's first values occur about equally often over seeds 1 to 4096."""
    tops = np.array([random_bytes(64, seed) >> 7 for seed in range(1, 4097)], dtype=np.int64)
    assert abs(tops.mean(axis=0) - 0.5).max() < 0.04
    both = tops.T @ tops / 4096
    assert abs(both[~np.eye(64, dtype=bool)] - 0.25).max() < 0.04
