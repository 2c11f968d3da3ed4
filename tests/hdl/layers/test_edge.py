# amaranth: UnusedElaboratable=no
"""EdgeLink: words in order both ways, and as many of them wait as it says."""

import random

import pytest

from fanin.hdl.layers.edge import EdgeLink
from tests.support import new_seed, simulate


def payloads(words, lanes):
    return [words[at : at + lanes] for at in range(0, len(words), lanes)]


@pytest.mark.parametrize(
    "depths",
    [{}, {"waiting": 12, "returning": 5}, {"waiting": 3, "resized": True}],
    ids=["direct", "queues", "resized"],
)
@pytest.mark.parametrize(("source", "target"), [(2, 2), (2, 6), (6, 1)])
def test_words_go_forward_and_gradients_back(source, target, depths):
    seed = new_seed()
    rng = random.Random(seed)
    there, back = ([rng.getrandbits(32) for _ in range(60)] for _ in range(2))
    log = simulate(
        EdgeLink(words=12, source=source, target=target, trains=True, **depths),
        drive={"features": payloads(there, source), "gradients": payloads(back, target)},
        collect={"outputs": 60 // target, "input_gradients": 60 // source},
        seed=seed,
    )
    assert [list(p) for _, p in log["outputs"]] == payloads(there, target)
    assert [list(p) for _, p in log["input_gradients"]] == payloads(back, source)


@pytest.mark.parametrize(("stream", "queue"), [("features", "waiting"), ("gradients", "returning")])
def test_as_many_transfers_wait_as_it_says(stream, queue):
    dut = EdgeLink(words=12, source=2, target=2, trains=True, **{queue: 24})
    taken, levels = 0, []

    async def offer(ctx):
        nonlocal taken
        port = getattr(dut, stream)
        ctx.set(port.valid, 1)
        for _ in range(100):
            _, _, ready = await ctx.tick().sample(port.ready)
            taken += ready
            levels.append(ctx.get(getattr(dut, f"{queue}_level")))

    simulate(dut, processes=[offer], idle=120)
    assert taken == 24
    assert levels == [*range(1, 25), *[24] * 76]


@pytest.mark.parametrize("resized", [False, True])
def test_what_waits_forward_is_as_wide_as_the_source_or_as_the_target(resized):
    """Three transfers wait, of two words or of four; Resize holds six words more."""
    dut = EdgeLink(words=12, source=2, target=4, trains=False, waiting=3, resized=resized)
    taken = 0

    async def offer(ctx):
        nonlocal taken
        ctx.set(dut.features.valid, 1)
        for _ in range(60):
            _, _, ready = await ctx.tick().sample(dut.features.ready)
            taken += 2 * ready

    simulate(dut, processes=[offer], idle=80)
    assert taken == 3 * (4 if resized else 2) + 6
