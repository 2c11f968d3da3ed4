# amaranth: UnusedElaboratable=no
"""The reducer: exact sums of split halves over engines, clamped once, lanes counted."""

import random

import pytest

from fanin import fixed
from fanin.hdl.glm.reducer import SUMS, ActivationReducer
from fanin.hdl.glm.shapes import ActivationSignature
from tests.hdl.glm.activations import Credited
from tests.support import new_seed, simulate, slow

BANKS = 4
LOW, HIGH = 2**40 - 1, 2**26


def _split(rng):
    """Halves of a PA: ends of both ranges, both ends of the clamp, and what lies between."""
    high = rng.choice([-HIGH, HIGH - 1, 0, -1, rng.randrange(-HIGH, HIGH), rng.randint(-130, 130)])
    low = rng.choice([0, LOW, 2**24 - 1, 2**24, rng.randrange(LOW), rng.randrange(2**24)])
    return {"high": high, "low": low}


def _run(engines, clamp_bits, *, micros=40, stall=0.4):
    seed = new_seed()
    rng = random.Random(seed)
    pas = [[[_split(rng) for _ in range(BANKS)] for _ in range(micros)] for _ in range(engines)]
    dut = ActivationReducer(engines=engines, banks=BANKS)
    counted = []

    async def count(ctx):
        async for _, _, clamped in ctx.tick().sample(dut.clamped):
            counted.append(clamped)

    log = simulate(
        Credited(dut),
        drive={f"i[{e}]": pas[e] for e in range(engines)},
        collect={"o": micros},
        settings={"clamp_bits": clamp_bits},
        stall=stall,
        processes=[count],
        seed=seed,
    )
    sums = [
        [sum(pas[e][n][b]["high"] * 2**24 + pas[e][n][b]["low"] for e in range(engines)) for b in range(BANKS)]
        for n in range(micros)
    ]
    over = [sum(not -(2**clamp_bits) <= x < 2**clamp_bits for x in lanes) for lanes in sums]
    return dut, log, sums, counted, over


@pytest.mark.parametrize("engines", [1, 3, *slow(8)])
@pytest.mark.parametrize("workers", [32, 65_535, *slow(1, 1_024)])
def test_sums_are_exact_and_clamped_once(engines, workers):
    c = fixed.clamp_bits(workers)
    _, log, sums, counted, over = _run(engines, c)
    assert [list(payload) for _, payload in log["o"]] == [[int(x) for x in fixed.clamp(s, c)] for s in sums]
    assert sum(over) > 0
    assert [n for n in counted if n] == [n for n in over if n]


@pytest.mark.slow
def test_sums_that_nobody_takes_hold_the_engines_back():
    """Of 100 micro-batches, what the queues on either side hold is taken; the rest follows, nothing is lost."""
    _, log, sums, *_ = _run(3, 28, micros=100, stall={"o": 0.97})
    assert [list(payload) for _, payload in log["o"]] == [[int(x) for x in fixed.clamp(s, 28)] for s in sums]
    into, out = [cycle for cycle, _ in log["i[0]"]], [cycle for cycle, _ in log["o"]]
    ahead = [n - sum(leaves < enters for leaves in out) for n, enters in enumerate(into)]
    assert max(ahead) == ActivationSignature.QUEUE + SUMS - 1


def test_the_ends_of_the_range_pass_unclamped():
    c = fixed.clamp_bits(8)
    values = [2**c - 1, 2**c, -(2**c), -(2**c) - 1]
    pa = [{"high": v >> 24, "low": v & (2**24 - 1)} for v in values]
    log = simulate(
        Credited(ActivationReducer(engines=1, banks=4)),
        drive={"i[0]": [pa]},
        collect={"o": 1},
        settings={"clamp_bits": c},
        stall=0,
    )
    assert list(log["o"][0][1]) == [2**c - 1, 2**c - 1, -(2**c), -(2**c)]


@pytest.mark.parametrize(("engines", "latency"), [(1, 5), (3, 6), *slow((4, 7), (8, 7), (9, 7))])
def test_one_micro_batch_a_cycle_as_late_as_it_says(engines, latency):
    dut, log, _, counted, over = _run(engines, 28, stall=0)
    assert dut.latency == latency
    late = {out - into for (into, _), (out, _) in zip(log["i[0]"], log["o"], strict=True)}
    assert late == {latency}
    assert log["o"][-1][0] - log["o"][0][0] == len(log["o"]) - 1
    assert [counted[cycle - 1 + dut.count_latency] for cycle, _ in log["o"]] == over


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engines": 0}, "engines must be from 1 to 9, not 0"),
        ({"engines": 10}, "engines must be from 1 to 9, not 10"),
        ({"banks": 3}, "banks must be even and at least 2, not 3"),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        ActivationReducer(**arguments)
