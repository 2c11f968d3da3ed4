# amaranth: UnusedElaboratable=no
"""Positions of words against nested loops; credits against a counter."""

import random

import pytest

from fanin.hdl.glm.sequence import Sequencer
from tests.support import new_seed, simulate, slow


def _positions(chunks, planes, mini_batch, epoch, epochs):
    for _ in range(epochs):
        for n in range(epoch):
            for chunk in range(chunks):
                for plane in range(planes):
                    yield {
                        "chunk": chunk,
                        "first_plane": plane == 0,
                        "last_plane": plane == planes - 1,
                        "first_chunk": chunk == 0,
                        "last_chunk": chunk == chunks - 1,
                        "first_micro": n % mini_batch == 0,
                        "last_micro": n % mini_batch == mini_batch - 1 or n == epoch - 1,
                        "first_word": plane == chunk == 0,
                        "needs_chunk": plane == 0 and n % mini_batch == 0,
                    }


def _run(*, chunks, planes, mini_batch, epoch, epochs=2, stop=None, odds=0.7, seed=0):
    """Step through everything, at random if ``odds`` < 1; the number of positions that were compared."""
    dut = Sequencer(depth=max(chunks, 2))
    rng = random.Random(seed)
    compared = []

    async def process(ctx):
        await ctx.tick().repeat(4)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        for n, expected in enumerate(_positions(chunks, planes, mini_batch, epoch, epochs)):
            if n == stop:
                break
            while True:
                seen = ctx.get(dut.position)
                assert {name: seen[name] for name in expected} == expected
                go = rng.random() < odds
                ctx.set(dut.step, go)
                await ctx.tick()
                if go:
                    break
            compared.append(n)

    words = min(stop or 10**9, chunks * planes * epoch * epochs)
    simulate(
        dut,
        processes=[process],
        settings={
            "shape.chunks": chunks,
            "shape.planes": planes,
            "shape.mini_batch": mini_batch,
            "shape.epoch": epoch,
        },
        idle=int(3 * words / odds) + 50,
    )
    assert len(compared) == words


@pytest.mark.parametrize("mini_batch", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("chunks", "planes"), [(1, 1), (1, 8), (3, 1), (2, 3)])
def test_positions_are_those_of_the_nested_loops(mini_batch, chunks, planes):
    seed = new_seed()
    _run(chunks=chunks, planes=planes, mini_batch=mini_batch, epoch=5, seed=seed)


@pytest.mark.parametrize("count", [255, 256, 257, *slow(258, 259, 513, 770)])
def test_counts_beyond_a_slice_end_where_they_should(count):
    """With a step in every cycle, across every borrow, and again after a reload."""
    _run(chunks=1, planes=1, mini_batch=count, epoch=2 * count + 3, epochs=1, odds=1)
    _run(chunks=1, planes=1, mini_batch=3, epoch=count, odds=1)
    _run(chunks=count, planes=1, mini_batch=2, epoch=1, odds=1)


@pytest.mark.parametrize("length", [1 << 8, 1 << 16, (1 << 16) + 2, (1 << 16) + 3, (1 << 23) + 2])
def test_a_long_loop_does_not_end_early(length):
    _run(chunks=1, planes=1, mini_batch=length, epoch=length + 1, epochs=1, stop=200, odds=1)


@pytest.mark.parametrize(
    ("component", "arguments", "message"),
    [
        (Sequencer, {"depth": 0}, "depth must be at least 1 chunk, not 0"),
    ],
)
def test_bad_parameters_are_named(component, arguments, message):
    with pytest.raises(ValueError, match=message):
        component(**arguments)
