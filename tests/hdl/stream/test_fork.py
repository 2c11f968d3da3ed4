"""Everyone gets every payload, once."""

import random

import pytest

from fanin.hdl.stream.fork import StreamFork
from tests.support import new_seed, simulate


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
def test_every_taker_gets_every_payload_in_its_cycle(outputs, stall):
    seed = new_seed()
    items = random.Random(seed).choices(range(256), k=100)
    takers = [f"o[{n}]" for n in range(outputs)]
    collect = dict.fromkeys(takers, len(items))
    log = simulate(
        StreamFork(shape=8, outputs=outputs), drive={"i": items}, collect=collect, stall=stall, seed=seed
    )
    given = [cycle for cycle, _ in log["i"]]
    for name in takers:
        assert [item for _, item in log[name]] == items
        assert all(there <= here for here, (there, _) in zip(given, log[name], strict=True))
    assert given == [
        max(cycles) for cycles in zip(*([c for c, _ in log[name]] for name in takers), strict=True)
    ]
    if not stall:
        assert given == list(range(given[0], given[0] + len(items)))
