"""Credits beside a counter in Python."""

import random

import pytest

from fanin.hdl.stream.credits import Credits
from tests.support import new_seed, resolve, simulate


@pytest.mark.parametrize("full", [False, True])
def test_credits_count_and_answer_in_the_next_cycle(full):
    seed = new_seed()
    rng = random.Random(seed)
    dut = Credits(limit=5, full=full)
    done = []

    async def process(ctx):
        expected = 5 * full
        for _ in range(1500):
            assert ctx.get(dut.ok) == (expected > 0)
            assert ctx.get(dut.several) == (expected > 1)
            assert ctx.get(dut.count) == expected
            restart = rng.random() < 0.01
            initial = rng.randint(0, 5)
            take = expected > 0 and rng.random() < 0.6
            give = expected < 5 and rng.random() < rng.choice([0.2, 0.9])
            for name, value in {"restart": restart, "initial": initial, "take": take, "give": give}.items():
                ctx.set(resolve(dut, name), value)
            expected = initial if restart else expected + give - take
            await ctx.tick()
        done.append(True)

    simulate(dut, processes=[process], idle=1510)
    assert done


@pytest.mark.parametrize("limit", [0, -1, 1.5])
def test_bad_parameters_are_named(limit):
    with pytest.raises(ValueError, match=f"limit must be at least 1, not {limit}"):
        Credits(limit=limit)
