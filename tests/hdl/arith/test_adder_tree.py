# amaranth: UnusedElaboratable=no
"""Adder trees: exact whatever the operands, one sum a cycle, as late as they say."""

import random

import pytest
from amaranth import Shape, signed, unsigned

from fanin.hdl.arith.adder_tree import AdderTree, SumTree, tree_levels, tree_plan
from tests.support import new_seed, simulate

SIZES = [(1, 2), (2, 2), (3, 3), (5, 2), (7, 4), (8, 3), (11, 3), (13, 4), (32, 3)]


def _operands(rng, inputs, width, count):
    low, high = -(1 << width - 1), (1 << width - 1) - 1
    special = [[low] * inputs, [high] * inputs, [low, high] * (inputs // 2) + [0] * (inputs % 2), [0] * inputs]
    return special + [[rng.randint(low, high) for _ in range(inputs)] for _ in range(count)]


@pytest.mark.parametrize(("inputs", "radix"), SIZES)
@pytest.mark.parametrize("width", [1, 5, 32])
def test_sums_are_exact_under_stalls(inputs, radix, width):
    seed = new_seed()
    sets = _operands(random.Random(seed), inputs, width, 20)
    log = simulate(
        AdderTree(inputs=inputs, width=width, radix=radix),
        drive={"i": sets},
        collect={"o": len(sets)},
        seed=seed,
        stall=0.4,
    )
    assert [total for _, total in log["o"]] == [sum(s) for s in sets]


@pytest.mark.parametrize(("inputs", "radix"), SIZES)
def test_one_sum_a_cycle_one_cycle_a_level(inputs, radix):
    sets = _operands(random.Random(1), inputs, 8, 20)
    tree = AdderTree(inputs=inputs, width=8, radix=radix)
    log = simulate(tree, drive={"i": sets}, collect={"o": len(sets)}, stall=0)
    latency = {out - into for (into, _), (out, _) in zip(log["i"], log["o"], strict=True)}
    assert latency == {tree.levels}
    assert log["o"][-1][0] - log["o"][0][0] == len(sets) - 1


def test_levels_are_the_logarithm_to_the_radix():
    for radix in 2, 3, 4:
        for inputs in range(1, 200):
            levels = tree_levels(inputs, radix)
            assert radix**levels >= inputs
            assert levels == 0 or radix ** (levels - 1) < inputs
    assert tree_plan(32, 3, 2) == [32, 11, 4, 2]


@pytest.mark.parametrize("operand", [signed(7), unsigned(7)])
@pytest.mark.parametrize(("inputs", "outputs"), [(32, 2), (4, 2), (2, 2), (9, 4), (1, 1)])
def test_partial_sums_add_up_and_cover_neighbours(operand, inputs, outputs):
    rng = random.Random(new_seed())
    tree = SumTree(inputs=inputs, operand=operand, radix=3, outputs=outputs)
    low, high = (-64, 63) if operand.signed else (0, 127)
    sets = [[low] * inputs, [high] * inputs]
    sets += [[rng.randint(low, high) for _ in range(inputs)] for _ in range(10)]

    async def process(ctx):
        for values in sets:
            ctx.set(tree.i, values)
            for _ in range(tree.levels):
                await ctx.tick()
            partial = list(ctx.get(tree.o))
            assert sum(partial) == sum(values)
            if tree.levels == 0:
                assert partial == values
            await ctx.tick()
        done.append(True)

    done: list[bool] = []
    simulate(tree, processes=[process], idle=len(sets) * (tree.levels + 1) + 4)
    assert done


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": 0, "width": 4}, "inputs must be at least 1, not 0"),
        ({"inputs": 4, "width": 0}, "width must be at least 1 bit, not 0"),
        ({"inputs": 4, "width": 4, "radix": 5}, "radix must be from 2 to 4, not 5"),
        ({"inputs": 4, "width": 4, "radix": 1}, "radix must be from 2 to 4, not 1"),
    ],
)
def test_bad_parameters_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        AdderTree(**arguments)


def test_more_outputs_than_inputs_are_refused():
    with pytest.raises(ValueError, match="outputs must be from 1 to inputs"):
        SumTree(inputs=2, operand=Shape(4), outputs=3)
