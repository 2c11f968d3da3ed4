# amaranth: UnusedElaboratable=no
"""A convolution learns as its golden model does, and takes the cycles that its cost function says."""

import random
from itertools import product

import numpy as np
import pytest

from fanin.layers.schedule import Schedule
from tests.hdl.layers.convolutions import LOOPS, Learner, build, conv, dense, parallel
from tests.support import new_seed

pytestmark = pytest.mark.verilator

# What a network of digits has, and one each of what it does not have.
LAYERS = {
    "first": (conv((8, 8, 1), 8, 3, padding=1, gradient=False), parallel(1, 4, 2, 1, 2)),
    "same": (conv((8, 8, 4), 4, 3, padding=1), parallel(2, 2, 2, 1, 1)),
    "half": (conv((8, 8, 4), 8, 3, stride=2, padding=1), parallel(2, 4, 2, 4, 2)),
    "skip": (conv((8, 8, 4), 8, 1, stride=2), parallel(2, 4, 2, 4, 2)),
    "dense": (dense(16, 10), parallel(2, 5, 1, 2, 1)),
    "groups": (conv((5, 6, 4), 8, (3, 2), padding=(1, 0, 1, 0), groups=2), parallel(1, 2, 5, 2, 4)),
    "depthwise": (conv((7, 6, 4), 4, 5, stride=2, padding=2, groups=4), parallel(1, 2, 3, 2, 2)),
}
GRID = list(product((1, 3, 5), (1, 2), (0, 1), (1, 2, 4)))  # kernel, stride, padding, groups
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
    frames = 8
    learner = Learner(layer, p, seed=seed)
    learner.train(frames, frames)
    _, result = learner.check(bench, name, loops=LOOPS, seed=seed)
    for stream in ["outputs", *layer.gradient * ["input_gradients0"]]:
        ends = result.cycles_of[stream].reshape(frames, -1)[2:, -1]
        assert np.diff(ends).tolist() == (frames - 3) * [Schedule(layer, p).period]


def _in_grid(number):
    """A layer of the grid, and one of the parallelisms that it can have."""
    kernel, stride, padding, groups = GRID[number]
    layer = conv((7, 8, 4), 4 if groups == 4 else 8, kernel, stride=stride, padding=padding, groups=groups)
    rng = random.Random(number)
    choices = [p for p in layer.parallelisms() if layer.lanes(p) <= 32]
    return layer, rng.choice(choices)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_the_grid(kernel):
    numbers = [number for number, case in enumerate(GRID) if case[0] == kernel]
    bench = build({str(number): _in_grid(number) for number in numbers})
    seed = new_seed()
    for number in numbers:
        layer, p = _in_grid(number)
        learner = Learner(layer, p, seed=seed)
        learner.train(frames=5, batch=3)
        learner.dump()
        learner.check(bench, str(number), loops=LOOPS, odds=0.4, seed=seed)
        _check_cycles(bench, str(number), layer, p, seed=seed)
