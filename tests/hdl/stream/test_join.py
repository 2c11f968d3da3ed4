# amaranth: UnusedElaboratable=no
"""StreamJoin takes one of each; PipelineQueue has a place for whatever enters the pipeline in front of it."""

import random

import pytest
from amaranth import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from fanin.hdl.arith.delay import delayed
from fanin.hdl.stream.connect import connect_typed
from fanin.hdl.stream.join import StreamJoin
from fanin.hdl.stream.pipeline_queue import PipelineQueue
from tests.support import new_seed, simulate


@pytest.mark.parametrize("inputs", [1, 2, 3])
@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
def test_payloads_of_all_streams_leave_together(inputs, stall):
    seed = new_seed()
    rng = random.Random(seed)
    items = [[rng.randrange(256) for _ in range(100)] for _ in range(inputs)]
    drive = {f"i[{n}]": each for n, each in enumerate(items)}
    log = simulate(StreamJoin(shape=8, inputs=inputs), drive=drive, collect={"o": 100}, stall=stall, seed=seed)
    assert [tuple(payload) for _, payload in log["o"]] == list(zip(*items, strict=True))
    left = [cycle for cycle, _ in log["o"]]
    assert all([cycle for cycle, _ in log[name]] == left for name in drive)
    if not stall:
        assert left == list(range(left[0], left[0] + 100))


class Pipeline(wiring.Component):
    """What enters leaves ``latency`` cycles later, inverted, into a queue."""

    def __init__(self, *, latency):
        self.latency = latency
        super().__init__({"i": In(stream.Signature(8)), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.queue = queue = PipelineQueue(shape=8, latency=self.latency)
        connect_typed(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [
            self.i.ready.eq(queue.ok),
            queue.enter.eq(self.i.valid & queue.ok),
            queue.result.eq(~delayed(m, self.i.payload, self.latency, name="payload")[-1]),
        ]
        return m


@pytest.mark.parametrize("latency", [0, 1, 7])
@pytest.mark.parametrize("stall", [0.0, 0.4], ids=["full rate", "stalls"])
def test_a_pipeline_loses_nothing_and_never_pauses_by_itself(latency, stall):
    seed = new_seed()
    items = random.Random(seed).choices(range(256), k=200)
    log = simulate(
        Pipeline(latency=latency), drive={"i": items}, collect={"o": len(items)}, stall=stall, seed=seed
    )
    assert [payload for _, payload in log["o"]] == [item ^ 0xFF for item in items]
    if not stall:
        entered, left = ([cycle for cycle, _ in log[name]] for name in ("i", "o"))
        assert left == [cycle + latency + 1 for cycle in entered]
        assert left == list(range(left[0], left[0] + len(items)))
