# amaranth: UnusedElaboratable=no
"""One bank: sums of selected terms over words, split in halves, gaps anywhere."""

import random

import pytest

from fanin.hdl.glm.bank import Bank, bank_latency
from tests.support import new_seed, simulate, slow

EXTREMES = [-(2**30), 2**30 - 1, 0, -1]


def _word(rng, lanes):
    shifted = [rng.choice([*EXTREMES, rng.randint(-(2**30), 2**30 - 1)]) for _ in range(lanes)]
    if rng.random() < 0.2:
        shifted = [rng.choice(EXTREMES[:2])] * lanes
    bits = rng.choice([0, 2**lanes - 1, rng.getrandbits(lanes)])
    terms = [{"first": a, "second": b, "both": a + b} for a, b in zip(shifted[::2], shifted[1::2], strict=True)]
    return terms, bits, sum(x for k, x in enumerate(shifted) if bits >> k & 1)


def _run(lanes, words, *, gaps, rng):
    """Feed ``(first, word)``; the sum behind each word, ``latency`` cycles later."""
    dut = Bank(lanes=lanes)
    seen = []

    async def process(ctx):
        waiting, due, cycle = list(words), set(), 0
        while waiting or due:
            if cycle in due:
                due.discard(cycle)
                total = ctx.get(dut.o)
                seen.append(total.high * 2**24 + total.low)
            go = bool(waiting) and rng.random() >= gaps
            first, (terms, bits, _) = waiting.pop(0) if go else (rng.getrandbits(1), _word(rng, lanes))
            ctx.set(dut.valid, go)
            ctx.set(dut.first, first)
            ctx.set(dut.bits, bits)
            ctx.set(dut.terms, terms)
            if go:
                due.add(cycle + bank_latency(lanes))
            await ctx.tick()
            cycle += 1

    simulate(dut, processes=[process], idle=5 * len(words) + 20)
    return seen


@pytest.mark.parametrize("lanes", [2, 16, *slow(4, 64)])
@pytest.mark.parametrize("gaps", [0.4, *slow(0)])
def test_every_partial_sum_is_exact_and_on_time(lanes, gaps):
    rng = random.Random(new_seed())
    words, expected, total = [], [], 0
    for n in range(40):
        first = n == 0 or rng.random() < 0.2
        word = _word(rng, lanes)
        words.append((first, word))
        total = word[2] + (0 if first else total)
        expected.append(total)
    assert _run(lanes, words, gaps=gaps, rng=rng) == expected


@pytest.mark.parametrize(("lanes", "latency"), [(2, 2), (4, 2), (8, 3), (16, 4), (32, 4), (64, 5)])
def test_latency_is_the_one_of_the_docstring(lanes, latency):
    assert bank_latency(lanes) == Bank(lanes=lanes).latency == latency


def test_bad_lanes_are_named():
    with pytest.raises(ValueError, match="lanes must be a power of two from 2 to 64, not 6"):
        Bank(lanes=6)
