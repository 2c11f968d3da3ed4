# amaranth: UnusedElaboratable=no
"""A convolution learns as its golden model does, and takes the cycles that its cost function says."""

import random
from itertools import product

import numpy as np
import pytest

from fanin.cnn.layers.layer import ceil_div
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.hdl.layers.input_gradient import InputGradient
from tests.hdl.layers.convolutions import LOOPS, Learner, build, conv, dense, parallel
from tests.support import new_seed

pytestmark = pytest.mark.verilator

# What a network of digits has, and one each of what it does not have.
LAYERS = {
    "first": (conv((8, 8, 1), 8, 3, padding=1, gradient=False), parallel(1, 4, 2, 1, 2)),
    "same": (conv((8, 8, 4), 4, 3, padding=1), parallel(2, 2, 2, 1, 1)),
    "wide": (conv((3, 16, 2), 4, 3, padding=1), parallel(1, 1, 2, 1, 1)),
    "half": (conv((8, 8, 4), 8, 3, stride=2, padding=1), parallel(2, 4, 2, 4, 2)),
    "skip": (conv((8, 8, 4), 8, 1, stride=2), parallel(2, 4, 2, 4, 2)),
    "dense": (dense(16, 10), parallel(2, 5, 1, 2, 1)),
    "groups": (conv((5, 6, 4), 8, (3, 2), padding=(1, 0, 1, 0), groups=2), parallel(1, 2, 5, 2, 4)),
    "depthwise": (conv((7, 6, 4), 4, 5, stride=2, padding=2, groups=4), parallel(1, 2, 3, 2, 2)),
}
GRID = list(product((1, 3, 5), (1, 2), (0, 1), (1, 2, 4)))  # kernel, stride, padding, groups
AHEAD = 3  # frames, at most, by which a way back may be before the other, and the replay before both
every_layer = pytest.mark.parametrize("name", LAYERS)


@pytest.fixture(scope="module")
def bench():
    return build(LAYERS)


@every_layer
@pytest.mark.parametrize("odds", [0.0, 0.4])
def test_it_learns_as_its_golden_model(bench, name, odds):
    seed = new_seed()
    learner = Learner(*LAYERS[name], seed=seed)
    learner.train(frames=7, batch=3)
    learner.dump()
    learner.train(frames=2, batch=1)
    learner.dump()
    learner.check(bench, name, loops=LOOPS, loop_latency=1 + seed % 100, odds=odds, seed=seed)


@every_layer
def test_evaluation_saves_and_changes_nothing(bench, name):
    seed = new_seed()
    learner = Learner(*LAYERS[name], seed=seed)
    learner.evaluate(frames=5)
    learner.dump()
    learner.evaluate(frames=1)
    learner.check(bench, name, odds=0.3, seed=seed)


@every_layer
def test_a_frame_takes_the_cycles_of_its_cost(bench, name):
    """All three ways at once, each on another frame."""
    _check_cycles(bench, name, *LAYERS[name], seed=new_seed())


def _check_cycles(bench, name, layer, p, *, seed):
    """Of the ways back, that take as many cycles as the slowest way; forward may be ahead, into the loops.

    Full buffers make even cycles, after some frames: a faster way gets ahead by what it saves a frame, until it
    is ``AHEAD`` frames ahead.
    """
    schedule, period = Schedule(layer, p), Schedule(layer, p).period
    saved = [period - schedule.blocks * schedule.block_cycles(way) for way in schedule.ways]
    even = 6 + max(ceil_div(AHEAD * period, cycles) for cycles in (*saved, period) if cycles)
    frames = even + 6
    learner = Learner(layer, p, seed=seed)
    learner.train(frames, frames)
    _, result = learner.check(bench, name, loops=LOOPS, seed=seed)

    def cycles(stream):
        return np.diff(result.cycles_of[stream].reshape(frames, -1)[even:, -1]).tolist()

    assert max(cycles("outputs")) <= period
    for stream in ["replay", *layer.gradient * ["input_gradients0"]]:
        assert cycles(stream) == 5 * [period], stream


def test_latency_of_the_input_gradient(bench):
    """From the last word of a frame of one block to the first that leaves."""
    layer, p = LAYERS["dense"]
    schedule, way = Schedule(layer, p), Way.INPUT_GRADIENT
    learner = Learner(layer, p, seed=new_seed())
    learner.train(1, 1)
    _, result = learner.check(bench, "dense", loops=LOOPS)
    begin = 3  # until the first step: the block is written, counted, taken
    steps = schedule.block_cycles(way) - schedule.round_cycles(way) + schedule.round_steps(way)
    expected = begin + steps - 1 + InputGradient(schedule=schedule).latency
    assert result.cycles_of["input_gradients0"][0] - result.cycles_of["gradients"][-1] == expected


def _in_grid(number):
    """A layer of the grid, and one of the parallelisms that it can have."""
    kernel, stride, padding, groups = GRID[number]
    layer = conv((7, 8, 4), 4 if groups == 4 else 8, kernel, stride=stride, padding=padding, groups=groups)
    choices = [p for p in layer.parallelisms() if layer.lanes(p) <= 32]
    return layer, random.Random(number).choice(choices)


BUILDS = {
    f"kernel {kernel}": {str(case): _in_grid(n) for n, case in enumerate(GRID) if case[0] == kernel}
    for kernel in (1, 3, 5)
} | {
    "odd ones": {
        "gaps both ways": (conv((8, 9, 2), 4, (2, 2), stride=(3, 4)), parallel(2, 2, 1, 2, 2)),
        "rows and columns differ": (
            conv((6, 9, 2), 6, (1, 3), stride=(2, 1), padding=(0, 2, 1, 0)),
            parallel(1, 3, 3, 1, 3),
        ),
        "wide streams": (conv((4, 12, 8), 8, 3, padding=1), parallel(2, 2, 4, 8, 8)),
        "all columns": (conv((3, 6, 2), 3, 3, padding=1), parallel(2, 3, 6, 2, 3)),
        "one position": (conv((3, 3, 4), 8, 3), parallel(2, 2, 1, 1, 1)),
        "flat": (conv((5, 3, 4), 8, 1), parallel(2, 4, 3, 4, 8)),
        "dense, first": (dense(64, 10, gradient=False), parallel(8, 2, 1, 8, 2)),
        "dense, all at once": (dense(4, 4), parallel(4, 4, 1, 4, 4)),
    }
}


@pytest.mark.slow
@pytest.mark.parametrize("cases", BUILDS.values(), ids=BUILDS)
def test_the_grid(cases):
    bench, seed = build(cases), new_seed()
    for name, (layer, p) in cases.items():
        learner = Learner(layer, p, seed=seed)
        learner.train(frames=5, batch=3)
        learner.dump()
        learner.check(bench, name, loops=LOOPS, odds=0.4, seed=seed)
        _check_cycles(bench, name, layer, p, seed=seed)
