# amaranth: UnusedElaboratable=no
"""StreamFIFO, RegisterSlice and SkidBuffer: order, rate, latency, capacity."""

import random

import pytest
from amaranth.hdl import unsigned
from amaranth.lib import data

from fanin.hdl.stream.buffer import RegisterSlice, SkidBuffer
from fanin.hdl.stream.fifo import DISTRIBUTED_DEPTH, StreamFIFO
from tests.support import simulate

DEPTHS = (1, 2, 3, 4, 7, DISTRIBUTED_DEPTH, DISTRIBUTED_DEPTH + 1, 128)
STALLS = {"full rate": 0.0, "idle": {"i": 0.7}, "backpressure": {"o": 0.7}, "both": 0.4}

SLICES = [
    pytest.param(lambda shape: RegisterSlice(shape=shape), id="register slice"),
    pytest.param(lambda shape: SkidBuffer(shape=shape), id="skid buffer"),
]
BUFFERS = [
    *(
        pytest.param(
            lambda shape, d=depth: StreamFIFO(shape=shape, depth=d),
            id=f"depth {depth}",
        )
        for depth in DEPTHS
    ),
    *SLICES,
]


QUICK = {"backpressure", "both"}  # stalls: a queue that is mostly full, and one that is anything


@pytest.mark.parametrize(
    "stall",
    [pytest.param(stall, marks=() if name in QUICK else pytest.mark.slow) for name, stall in STALLS.items()],
    ids=STALLS,
)
@pytest.mark.parametrize("make", BUFFERS)
def test_nothing_is_lost_or_reordered(make, stall):
    rng = random.Random(1)
    items = [rng.randrange(256) for _ in range(300)]
    log = simulate(make(8), drive={"i": items}, collect={"o": len(items)}, stall=stall)
    assert [item for _, item in log["o"]] == items


@pytest.mark.parametrize("make", BUFFERS)
def test_one_transfer_a_cycle_in_and_out(make):
    log = simulate(make(8), drive={"i": list(range(200))}, collect={"o": 200}, stall=0)
    cycles = [cycle for cycle, _ in log["o"]]
    assert cycles == list(range(cycles[0], cycles[0] + 200))


@pytest.mark.parametrize("make", BUFFERS)
def test_full_rate_resumes_after_the_queue_was_full(make):
    dut = make(8)
    log = simulate(dut, drive={"i": [n % 256 for n in range(500)]}, stall=0, processes=[hold(dut, 150)])
    cycles = [cycle for cycle, _ in log["i"]]
    resumed = cycles[-300:]
    assert resumed == list(range(resumed[0], resumed[0] + 300))


def hold(dut, cycles):
    """Stall the output for some cycles, then take at full rate."""

    async def process(ctx):
        await ctx.tick().repeat(cycles)
        ctx.set(dut.o.ready, 1)

    return process


@pytest.mark.parametrize("make", BUFFERS)
def test_latency_is_as_documented(make):
    dut = make(8)
    expected = 0 if isinstance(dut, SkidBuffer) else 1
    log = simulate(dut, drive={"i": [1, 2, 3]}, collect={"o": 3}, stall={"i": 0.8})
    assert [o - i for (i, _), (o, _) in zip(log["i"], log["o"], strict=True)] == [expected] * 3


@pytest.mark.parametrize("depth", DEPTHS)
def test_holds_exactly_depth_and_level_counts_them(depth):
    dut = StreamFIFO(shape=8, depth=depth)
    assert len(dut.level) == depth.bit_length()
    levels = []

    async def observe(ctx):
        async for _, _, level in ctx.tick().sample(dut.level):
            levels.append(level)

    simulate(dut, drive={"i": [0] * depth}, stall=0, processes=[observe])
    assert levels[: depth + 2] == [*range(depth + 1), depth]
    with pytest.raises(AssertionError, match="'i': 1"):
        simulate(dut, drive={"i": [0] * (depth + 1)}, stall=0, limit=2 * depth + 20)


@pytest.mark.parametrize("make", [lambda s: StreamFIFO(shape=s, depth=100), *SLICES])
def test_structured_payloads_pass(make):
    layout = data.StructLayout({"a": unsigned(3), "b": unsigned(5)})
    items = [{"a": n % 8, "b": n % 32} for n in range(40)]
    log = simulate(make(layout), drive={"i": items}, collect={"o": 40})
    assert [{"a": p.a, "b": p.b} for _, p in log["o"]] == items


@pytest.mark.parametrize("depth", [0, -1, 1.5])
def test_a_depth_below_one_is_refused(depth):
    with pytest.raises(ValueError, match=rf"depth must be at least 1, not {depth}"):
        StreamFIFO(shape=8, depth=depth)
