# amaranth: UnusedElaboratable=no
"""LaneArray and AdderArray against the golden operators, bit for bit, exactly ``latency`` cycles later."""

import random

import numpy as np
import pytest

from fanin.golden import fp32
from fanin.hdl.arith.array import AdderArray, LaneArray
from tests.fp32_values import SPECIAL, close_pairs
from tests.support import new_seed, simulate


def tree_sum(terms):
    """A balanced tree over the last axis: neighbours pairwise, an odd last one passes."""
    while terms.shape[-1] > 1:
        even = terms.shape[-1] // 2 * 2
        sums = fp32.add(terms[..., 0:even:2], terms[..., 1:even:2])
        terms = np.concatenate([sums, terms[..., even:]], axis=-1)
    return terms[..., 0]


def golden_lanes(trees, a, b):
    index = np.array(trees)
    return tree_sum(fp32.multiply(a[:, index[..., 0]], b[:, index[..., 1]]))


def operands(rng, cycles, a_count, b_count):
    """Of each cycle the operands of either side, near each other, some of them special."""
    lanes = max(a_count, b_count)
    pairs = [
        (rng.choice(SPECIAL), b) if rng.random() < 0.05 else (a, b) for a, b in close_pairs(rng, cycles * lanes)
    ]
    a, b = np.array(pairs, dtype=np.uint32).view(np.float32).T.reshape(2, cycles, lanes)
    return a[:, :a_count], b[:, :b_count]


def run(dut, a, b):
    """``o`` as it stands ``latency`` cycles after each row of ``a`` and ``b`` entered, a row a cycle."""
    results = []

    async def process(ctx):
        for cycle in range(len(a) + dut.latency - 1):
            entering = cycle < len(a)
            if entering:
                ctx.set(dut.a, a[cycle].view(np.uint32).tolist())
                ctx.set(dut.b, b[cycle].view(np.uint32).tolist())
            ctx.set(dut.valid, entering)
            await ctx.tick()
            results.append([ctx.get(dut.o[k]) for k in range(len(dut.o))])

    simulate(dut, processes=[process], idle=len(a) + dut.latency + 2)
    assert len(results) == len(a) + dut.latency - 1
    return np.array(results[dut.latency - 1 :], dtype=np.uint32)


ROW_BY_COLUMN = tuple(tuple((k, 3 * j + k) for k in range(3)) for j in range(4))  # a vector by four
CROSSED = (((0, 1), (1, 0), (2, 2), (0, 0), (1, 2)), ((2, 0), (0, 2), (1, 1), (2, 1), (0, 1)))


@pytest.mark.parametrize(
    ("trees", "latency"),
    [
        ((((0, 0),),), 6),
        ((((0, 0), (1, 1)),), 13),
        (ROW_BY_COLUMN, 20),
        (CROSSED, 27),
        ((tuple((k, k) for k in range(8)),), 27),
    ],
    ids=["product", "two", "row by column", "crossed", "eight"],
)
def test_trees_of_products(trees, latency):
    rng = random.Random(new_seed())
    dut = LaneArray(trees=trees)
    assert dut.latency == latency
    a, b = operands(rng, 60, len(dut.a), len(dut.b))
    assert np.array_equal(run(dut, a, b), golden_lanes(trees, a, b).view(np.uint32))


def test_sums_of_lanes():
    rng = random.Random(new_seed())
    dut = AdderArray(lanes=5)
    assert dut.latency == 7
    a, b = operands(rng, 100, 5, 5)
    assert np.array_equal(run(dut, a, b), fp32.add(a, b).view(np.uint32))


@pytest.mark.parametrize("trees", [(), ((),), (((0, 0),), ((0, 0), (1, 1)))])
def test_trees_must_be_equally_large(trees):
    with pytest.raises(ValueError, match="trees must have at least one output"):
        LaneArray(trees=trees)


def test_an_array_of_no_lanes_is_refused():
    with pytest.raises(ValueError, match="lanes must be at least 1, not 0"):
        AdderArray(lanes=0)
