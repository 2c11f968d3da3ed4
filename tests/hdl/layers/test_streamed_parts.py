"""Parts of a dense layer with parameters in memory: words that wait for a pipeline, and the update."""

import random

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from fanin.golden.fp32 import add, multiply
from fanin.hdl.arith.delay import delayed
from fanin.hdl.layers.interface import word_stream
from fanin.hdl.layers.streamed_update import StreamedUpdate
from fanin.hdl.layers.word_supply import WordSupply
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.pipeline_queue import PipelineQueue
from tests.fp32_values import SPECIAL
from tests.support import new_seed, simulate

stalls = pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])


class Pipeline(wiring.Component):
    """Takes a word whenever there is one and room for it, and hands it on when it is to be used."""

    def __init__(self, *, lanes, latency):
        self.lanes, self.latency = lanes, latency
        super().__init__({"i": In(word_stream(lanes)), "o": Out(word_stream(lanes))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.supply = supply = WordSupply(lanes=self.lanes, latency=self.latency)
        m.submodules.queue = queue = PipelineQueue(shape=supply.o.shape(), latency=1 + self.latency)
        connect_typed(m, wiring.flipped(self.i), supply.i)
        connect_typed(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [
            supply.take.eq(supply.ok & queue.ok),
            queue.enter.eq(supply.take),
            queue.result.eq(delayed(m, supply.o, 1, name="used")[-1]),
        ]
        return m


@pytest.mark.parametrize("latency", [0, 1, 7])
@stalls
def test_a_word_comes_so_many_cycles_after_it_is_taken(latency, stall):
    seed = new_seed()
    rng = random.Random(seed)
    words = [[rng.getrandbits(32) for _ in range(2)] for _ in range(150)]
    log = simulate(
        Pipeline(lanes=2, latency=latency), drive={"i": words}, collect={"o": 150}, stall=stall, seed=seed
    )
    assert [list(word) for _, word in log["o"]] == words
    if not stall:  # a cycle to ``ok``, and 1 + latency + 1 to the queue
        entered, left = ([cycle for cycle, _ in log[name]] for name in ("i", "o"))
        assert entered == list(range(entered[0], entered[0] + 150))
        assert left == [cycle + 3 + latency for cycle in entered]


@pytest.mark.parametrize(("lanes", "depth"), [(1, 7), (3, 5), (4, 1)])
@stalls
def test_an_update_of_several_passes(lanes, depth, stall):
    """Ordinary words, and those on which arithmetic goes wrong."""
    seed = new_seed()
    rng = np.random.default_rng(seed)
    passes, eta, momentum = 3, np.float32(-0.0123), np.float32(0.9)
    drawn = rng.standard_normal((2, passes * depth, lanes)).astype(np.float32).view(np.uint32)
    special = rng.choice(np.array(SPECIAL, np.uint32), drawn.shape)
    weights, velocities = np.where(rng.random(drawn.shape) < 0.3, special, drawn)
    log = simulate(
        StreamedUpdate(lanes=lanes, parameters=lanes * depth),
        drive={"weights": weights.tolist(), "velocities": velocities.tolist()},
        collect={"new_weights": len(weights), "new_velocities": len(weights)},
        settings={"eta": int(eta.view(np.uint32)), "momentum": int(momentum.view(np.uint32))},
        stall=stall,
        seed=seed,
    )
    w, v = weights.view(np.float32), velocities.view(np.float32)
    new_weights, new_velocities = add(w, multiply(eta, v)), multiply(momentum, v)
    assert [list(word) for _, word in log["new_weights"]] == new_weights.view(np.uint32).tolist()
    assert [list(word) for _, word in log["new_velocities"]] == new_velocities.view(np.uint32).tolist()
    if not stall:
        entered, left = ([cycle for cycle, _ in log[name]] for name in ("weights", "new_weights"))
        assert left[0] == entered[0] + lanes + 15
        assert left == list(range(left[0], left[0] + lanes * len(left), lanes))
