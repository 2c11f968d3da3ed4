"""Memories in HBM: the simulator's model has each word when the golden one has it."""

import ctypes
import random
import subprocess
from ctypes import c_char_p, c_int, c_int64, c_longlong, c_ubyte, c_uint32, c_uint64
from dataclasses import replace
from importlib.resources import files
from itertools import islice

import pytest

from fanin.golden.hbm import Burst, serve
from fanin.hbm import HBM2
from tests.support import new_seed

PERIODS = {225: 4444, 250: 4000, 450: 2222}


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """hbm.cpp alone."""
    built = tmp_path_factory.mktemp("hbm") / "hbm.so"
    source = files("fanin.sim.cosim") / "hbm.cpp"
    flags = ["-std=gnu++20", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, "-o", built, str(source)], check=True)
    loaded = ctypes.CDLL(str(built))
    loaded.cosim_hbm.argtypes = c_uint32, c_uint64, ctypes.POINTER(c_int64), c_char_p
    loaded.fanin_hbm_burst.argtypes = c_int, c_int, c_longlong, c_int, c_int, c_longlong
    loaded.fanin_hbm_word.argtypes = c_int, c_int, c_ubyte, c_longlong
    loaded.fanin_hbm_word.restype = c_ubyte
    return loaded


def edges(library, hbm, bursts, period_ps, port):
    """The rising edge at which each word of each port's bursts is there, taken at once, a word an edge.

    ``port``: the first one's number.
    """
    numbers = hbm.numbers
    library.cosim_hbm(1, period_ps, (c_int64 * len(numbers))(*numbers), hbm.address_map.encode())
    left = [iter(own) for own in bursts]
    coming = [next(own, None) for own in left]
    counts = [sum(burst.beats for burst in own) for own in bursts]
    found = [[] for _ in bursts]
    taken = [False] * len(bursts)
    edge = 0
    while any(len(own) < count for own, count in zip(found, counts, strict=True)):
        for index, burst in enumerate(coming):
            if burst and burst.edge == edge:
                what = burst.address, burst.beats, burst.word_bytes
                library.fanin_hbm_burst(0, port + index, *what, edge)
                coming[index] = next(left[index], None)
        edge += 1
        for index in range(len(bursts)):
            taken[index] = bool(library.fanin_hbm_word(0, port + index, taken[index], edge))
            if taken[index]:
                found[index].append(edge)
        assert edge < 1_000_000
    return found


def expected(hbm, bursts, period_ps, number):
    """The same, by the golden model."""
    found = []
    for own in serve(hbm, bursts, period_ps=period_ps, number=number):
        last, each = -1, []
        for time in own:
            last = max(-(-time // period_ps), last + 1)
            each.append(last)
        found.append(each)
    return found


def random_bursts(rng, count):
    """In a row, anywhere, or in the same few rows; with pauses now and then."""
    edge = block = 0
    word = rng.choice([4, 8, 32])
    while True:
        edge += 1 + rng.choice([0, 0, rng.randrange(20), rng.randrange(3000) * (rng.random() < 0.1)])
        beats = rng.choice([1, 4, 16, rng.randrange(1, 128)])
        block = rng.choice([block, rng.randrange(1 << 23), rng.randrange(8) << 9])
        address = 32 * block + word * rng.randrange(32 // word)
        yield Burst(edge, address, beats, word)
        block += (beats * word + 31) // 32


@pytest.mark.parametrize("ports_per_channel", [1, 2, 3])
@pytest.mark.parametrize("clock", PERIODS)
def test_every_word_comes_when_the_golden_model_has_it(library, clock, ports_per_channel):
    rng = random.Random(new_seed())
    hbm = replace(HBM2, ports_per_channel=ports_per_channel)
    bursts = [list(islice(random_bursts(rng, 60), 60)) for _ in range(ports_per_channel)]
    number = rng.randrange(20)
    period = PERIODS[clock]
    assert edges(library, hbm, bursts, period, number * ports_per_channel) == expected(
        hbm, bursts, period, number
    )
