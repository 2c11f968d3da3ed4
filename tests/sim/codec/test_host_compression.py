"""Compression on the host: what comes back, its ratio and its time."""

import numpy as np
import pytest

from fanin.sim.codec import host_compression
from fanin.sim.codec.host_compression import BOUND, HostCodec, cost
from fanin.sim.codec.wire import Truncation, transfer

VALUES = (np.random.default_rng(0).standard_normal(20_000) * 2.0**-8).astype(np.float32)


def _arrived(codec):
    return codec.decompress(codec.compress(VALUES), VALUES.size)


@pytest.mark.parametrize("dropped", [16, 24])
def test_whole_bytes_are_dropped_as_truncation_drops_bits(dropped):
    codec = host_compression.truncation(dropped)
    assert np.array_equal(_arrived(codec), transfer(VALUES, Truncation(dropped)).values)
    assert cost(codec, VALUES, 1).ratio == 32 / (32 - dropped)


def test_snappy_loses_nothing():
    assert np.array_equal(_arrived(host_compression.snappy()), VALUES)
    assert cost(host_compression.snappy(), np.zeros(10_000, np.float32), 1).ratio > 15


def test_sz_keeps_its_bound():
    errors = np.abs(_arrived(host_compression.sz()) - VALUES)
    assert 0 < errors.max() <= BOUND * (1 + 1e-6)
    assert cost(host_compression.sz(), VALUES, 1).ratio > 4


def test_speed_is_bytes_of_floats_by_the_quickest_repetition(monkeypatch):
    ticks = iter([0.0, 4.0, 10.0, 12.0, 20.0, 28.0, 30.0, 34.0])
    monkeypatch.setattr(host_compression.time, "process_time", lambda: next(ticks))
    found = cost(host_compression.truncation(16), VALUES, 2)
    assert (found.compress, found.decompress) == (VALUES.nbytes / 2, VALUES.nbytes / 4)


def test_a_compressor_that_loses_too_much_is_refused():
    broken = HostCodec(lambda values: values.tobytes(), lambda data, count: np.ones(count, np.float32))
    with pytest.raises(ValueError, match="loses"):
        cost(broken, VALUES, 1)
