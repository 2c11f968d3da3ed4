"""Arrays with a body in C: the same bits as the golden operators and the RTL, in layers and in nodes."""

import random

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out

from fanin.codec.facts import FLOAT_BITS
from fanin.golden import fp32
from fanin.hdl.arith.array import AdderArray, LaneArray
from fanin.hdl.arith.delay import delayed
from fanin.hdl.emit import emit_verilog, shared
from fanin.sim.cnn.array_bench import ArrayBench
from fanin.sim.cnn.layer_bench import Job, LayerBench
from fanin.sim.cosim import arrays
from fanin.sim.cosim.arrays import Arith, tree_order, with_arrays
from tests.fp32_values import SPECIAL, close_pairs
from tests.hdl.arith.test_array import golden_lanes
from tests.support import new_seed, slow

LANES = 8
MANY = 100_000_000


@pytest.fixture(scope="module")
def in_c():
    return ArrayBench(lanes=LANES, arith=Arith.C)


def special_pairs():
    return np.array([(a, b) for a in SPECIAL for b in SPECIAL], dtype=np.uint32).T


def least_products(rng, count):
    """Pairs whose product is about the least normal number: it may round up to it."""
    a = rng.integers(1 << 23, 1 << 24, count)
    b = ((1 << 47) // a) + rng.integers(-1, 2, count)  # significands whose product is about 2^47
    exponent = rng.integers(2, 126, count)
    first = exponent << 23 | a & 0x7F_FFFF
    second = (127 - exponent) - (b < 1 << 23) << 23 | (b << (b < 1 << 23)) & 0x7F_FFFF
    sign = rng.integers(0, 2, (2, count)) << 31
    return (np.array([first, second]) | sign).astype(np.uint32)


def random_pairs(rng, count):
    """A quarter each: any bits; near-cancelling; of close exponents; products about the least normal number."""
    count //= 4
    any_bits = rng.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    near = rng.integers(0, 1 << 32, count, dtype=np.uint32)
    cancelling = np.array([near, (near ^ 1 << 31) + rng.integers(-3, 4, count)], dtype=np.int64).astype(
        np.uint32
    )
    close = rng.integers(0, 1 << 32, (2, count), dtype=np.uint32)
    exponent = (close[0] >> 23 & 0xFF).astype(np.int64) + rng.integers(-26, 27, count)
    close[1] = close[1] & 0x807F_FFFF | (np.clip(exponent, 0, 255) << 23).astype(np.uint32)
    return np.concatenate([any_bits, cancelling, close, least_products(rng, count)], axis=1)


def golden(pairs):
    a, b = pairs.view(np.float32)
    return fp32.multiply(a, b).view(np.uint32), fp32.add(a, b).view(np.uint32)


def wrong(run, expected):
    """How many results differ, of products and of sums."""
    return [int((got != right).sum()) for got, right in zip((run.products, run.sums), expected, strict=True)]


@pytest.mark.verilator
def test_c_has_the_bits_of_the_golden_operators(in_c):
    pairs = special_pairs()
    assert wrong(in_c.run(*pairs), golden(pairs)) == [0, 0]
    rng = np.random.default_rng(new_seed())
    pairs = random_pairs(rng, 1 << 20)
    assert wrong(in_c.run(*pairs), golden(pairs)) == [0, 0]
    pairs = np.array(close_pairs(random.Random(new_seed()), 10_000), dtype=np.uint32).T
    assert wrong(in_c.run(*pairs), golden(pairs)) == [0, 0]


def test_the_pairs_reach_the_least_normal_number_from_both_sides():
    a, b = least_products(np.random.default_rng(1), 10_000).view(np.float32).astype(np.float64)
    exact = np.abs(a * b)
    assert ((exact < 2.0**-126) & (exact.astype(np.float32) == 2.0**-126)).sum() > 100
    assert (exact == 2.0**-126).sum() + (exact > 2.0**-126).sum() > 100


@pytest.mark.slow
@pytest.mark.verilator
def test_c_and_rtl_agree_on_a_hundred_million_pairs(in_c):
    rtl = ArrayBench(lanes=LANES, arith=Arith.RTL)
    pairs = special_pairs()
    expected = rtl.run(*pairs)
    assert wrong(in_c.run(*pairs), (expected.products, expected.sums)) == [0, 0]
    rng, chunk = np.random.default_rng(new_seed()), 1 << 22
    for _ in range(-(-MANY // chunk)):
        pairs = random_pairs(rng, chunk)
        expected = rtl.run(*pairs)
        assert wrong(in_c.run(*pairs), (expected.products, expected.sums)) == [0, 0]


class Streamed(Component):
    """A LaneArray, or without ``trees`` an AdderArray of five lanes, between streams that never stall."""

    def __init__(self, *, trees):
        self.trees = trees
        self.array = array = LaneArray(trees=trees) if trees else AdderArray(lanes=5)
        self._a_bits, self._b_bits = (FLOAT_BITS * len(side) for side in (array.a, array.b))
        o = stream.Signature(FLOAT_BITS * len(array.o))
        super().__init__({"i": In(stream.Signature(self._a_bits + self._b_bits)), "o": Out(o)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.array = array = shared(self.array)
        operands = self.i.payload
        m.d.comb += [
            array.a.eq(operands[: self._a_bits]),
            array.b.eq(operands[self._a_bits :]),
            array.valid.eq(self.i.valid),
            self.i.ready.eq(1),
            self.o.payload.eq(array.o),
            self.o.valid.eq(delayed(m, self.i.valid, array.latency, name="valid", reset_less=False)[-1]),
        ]
        return m


# Rows by columns of seven, a product, and sums, all at once as late as in Verilog.
TREES = {
    "rows": (tuple(tuple((7 * i + k, 7 * j + k) for k in range(7)) for i in range(2) for j in range(3))),
    "one": (((0, 0),),),
    "many": (tuple((k, k) for k in range(33)),),
    "sums": (),
}


@pytest.mark.verilator
@pytest.mark.parametrize("arith", [Arith.C, *slow(Arith.RTL)])
def test_arrays_of_either_body_in_components(arith):
    components = {name: Streamed(trees=trees) for name, trees in TREES.items()}
    bench = LayerBench(components, arith=arith)
    rng = np.random.default_rng(new_seed())
    for name, component in components.items():
        array, trees = component.array, component.trees
        a, b = (rng.normal(size=(200, len(side))).astype(np.float32) for side in (array.a, array.b))
        expected = golden_lanes(trees, a, b) if trees else fp32.add(a, b)
        feed = np.concatenate([a, b], axis=1).view(np.uint32)
        job = Job(feeds={"i": feed}, expect={"o": expected.size})
        (result,) = bench.run(name, [job], odds={"i": 0.3})
        assert np.array_equal(result.words["o"], expected.view(np.uint32).ravel()), name
        assert (result.cycles_of["o"] - result.cycles_of["i"] == array.latency).all(), name


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize(
    ("text", "mutant"),
    [
        ("x & kExponent ? x : x & kSign", "x"),  # subnormals stay
        ("x & kExponent ? x : x & kSign", "x & kExponent ? x : 0"),  # no zero has a sign
        ("> kExponent ? kNan", "> kExponent ? x"),  # any NaN
        ("if (!least) return;", "return;"),  # flushed after rounding
        ("number(a) + number(b)", "float(number(a) + double(number(b)) * (1 + 0x1p-40))"),  # another rounding
    ],
)
def test_a_mutant_of_c_is_caught(monkeypatch, text, mutant):
    source = arrays.arrays_source

    def mutated(found):
        assert text in source(found)
        return source(found).replace(text, mutant)

    monkeypatch.setattr("fanin.sim.cnn.array_bench.arrays_source", mutated)
    bench = ArrayBench(lanes=LANES, arith=Arith.C)
    pairs = np.concatenate([special_pairs(), random_pairs(np.random.default_rng(1), 1 << 16)], axis=1)
    assert sum(wrong(bench.run(*pairs), golden(pairs))) > 0


def tree(values):
    """A balanced tree, as text: neighbours pairwise, an odd last one passes."""
    while len(values) > 1:
        odd = values[len(values) // 2 * 2 :]
        values = [f"({a}{b})" for a, b in zip(values[::2], values[1::2], strict=False)] + odd
    return values[0]


@pytest.mark.parametrize("terms", [*range(1, 18), 25, 64, 100])
def test_terms_are_placed_so_that_halves_are_added(terms):
    values = [f"<{term}>" for term in tree_order(terms)]
    while len(values) > 1:
        half = len(values) // 2
        odd = values[2 * half :]
        values = [f"({a}{b})" for a, b in zip(values[:half], values[half : 2 * half], strict=True)] + odd
    assert values == [tree([f"<{term}>" for term in range(terms)])]


def test_rtl_is_the_text_that_was_emitted():
    text = emit_verilog(AdderArray(lanes=2))
    assert with_arrays(text, Arith.RTL) == (text, [])
    changed, (array,) = with_arrays(text, Arith.C)
    assert (array.module, array.latency, array.products) == ("adder_array", 7, [])
    assert changed.count("module adder_array(") == 1
    assert "fp32_adder adder" not in changed
