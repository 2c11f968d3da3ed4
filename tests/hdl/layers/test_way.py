"""Loops of the three ways, beside the schedule that the cost model reads."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator

from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.hdl.layers.way import WayLoops
from tests.support import new_seed

SCHEDULES = {
    "rows": Schedule(
        Conv(inputs=(Shape(4, 4, 4),), gradient=True, kernel=(3, 2), stride=(1, 1), output_channels=4),
        Parallelism(pic=2, poc=2, ph=1, pi=2, po=2),
    ),
    "waits": Schedule(
        Conv(inputs=(Shape(1, 3, 2),), gradient=True, kernel=(1, 1), stride=(1, 1), output_channels=3),
        Parallelism(pic=2, poc=1, ph=1, pi=1, po=1),
    ),
    "groups": Schedule(
        Conv(
            inputs=(Shape(3, 6, 4),), gradient=True, kernel=(1, 3), stride=(2, 1), output_channels=8, groups=2
        ),
        Parallelism(pic=1, poc=2, ph=2, pi=1, po=2),
    ),
    "depthwise": Schedule(
        DepthwiseConv(
            inputs=(Shape(3, 3, 6),), gradient=True, kernel=(2, 2), stride=(1, 1), output_channels=6, groups=6
        ),
        Parallelism(poc=2, ph=2, pi=2, po=2),
    ),
}
FRAMES = 2


def _run(schedule, way, odds):
    """Of each block: whether a row and a frame begin, cycles and values of its steps, which one ends what."""
    rng = random.Random(new_seed())
    m = Module()
    go = Signal()
    loops = WayLoops(m, schedule, way, go=go)
    weight, window = loops.weight_address(), loops.output_window()
    outputs = {name: window[name] for name in ("column", "address", "rotate")}
    count = FRAMES * schedule.blocks
    blocks = []

    async def main(ctx):
        cycle = over = 0
        while len(blocks) < count or cycle < over:
            ctx.set(go, len(blocks) < count and rng.random() >= odds)
            if ctx.get(loops.step):
                values = {name: ctx.get(value) for name, value in outputs.items()} | {"weight": ctx.get(weight)}
                ends = [ctx.get(flag) for flag in (loops.ends, loops.row_ends, loops.frame_ends)]
                rounds = [ctx.get(loops.first), ctx.get(loops.last)]
                blocks[-1]["steps"].append((cycle - blocks[-1]["cycle"], values, rounds, ends))
            if ctx.get(loops.start):
                begins = [ctx.get(loops.row_begins), ctx.get(loops.frame_begins)]
                blocks.append({"cycle": cycle + 1, "begins": begins, "steps": []})
                over = cycle + 1 + schedule.block_cycles(way)
            await ctx.tick()
            cycle += 1

    m.d.sync += Signal().eq(0)  # a domain
    sim = Simulator(m)
    sim.add_clock(4e-9)
    sim.add_testbench(main)
    sim.run()
    return blocks


def _expected(schedule, way):
    raster, steps = schedule.outputs, list(schedule.steps(way))
    rounds, length = schedule.rounds(way), schedule.round_steps(way)
    found = []
    for index, (cycle, step) in enumerate(steps):
        group = step.g * schedule.ogs + step.og
        values = {
            "column": step.p * schedule.p.ph,
            "address": raster.address(0, step.p * schedule.p.ph, group),
            "rotate": raster.memory(step.p * schedule.p.ph, group),
            "weight": schedule.weight_address(step.ky, step.kx, step.g, step.ig, step.og),
        }
        found.append((cycle, values, [index < length, index >= (rounds - 1) * length], index == len(steps) - 1))
    return found


@pytest.mark.parametrize("odds", [0.0, 0.9])
@pytest.mark.parametrize("way", Way, ids=lambda way: way.value)
@pytest.mark.parametrize("name", SCHEDULES)
def test_steps_are_those_of_the_schedule(name, way, odds):
    schedule = SCHEDULES[name]
    expected, row = _expected(schedule, way), schedule.row_blocks
    for index, block in enumerate(_run(schedule, way, odds)):
        number = index % schedule.blocks
        assert block["begins"] == [number % row == 0, number == 0]
        last = [True, (number + 1) % row == 0, number == schedule.blocks - 1]
        assert block["steps"] == [
            (cycle, values, rounds, [ends and flag for flag in last])
            for cycle, values, rounds, ends in expected
        ]


@pytest.mark.parametrize("way", Way, ids=lambda way: way.value)
@pytest.mark.parametrize("name", SCHEDULES)
def test_blocks_follow_at_once(name, way):
    starts = [block["cycle"] for block in _run(SCHEDULES[name], way, 0.0)]
    cycles = SCHEDULES[name].block_cycles(way)
    assert starts == [starts[0] + n * cycles for n in range(len(starts))]
