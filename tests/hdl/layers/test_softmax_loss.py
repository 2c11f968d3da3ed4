# amaranth: UnusedElaboratable=no
"""Softmax and its gradient beside the golden model; and as fast as their cost says."""

import numpy as np
import pytest

from fanin.cnn.golden import layers as golden
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.softmax_loss import SoftmaxLoss
from fanin.sim.cnn.layer_bench import Job, LayerBench
from fanin.sim.cosim.arrays import Arith
from tests.fp32_values import SPECIAL
from tests.hdl.layers.operators import check_cost
from tests.support import new_seed

SHAPES = {"10 by 1": ((1, 1, 10), 1), "3 by 3": ((1, 1, 3), 3)}
GRID = {
    "classes": ((1, 1, 96), 8),
    "map": ((2, 3, 4), 2),
    "one": ((1, 1, 1), 1),
    "no gradient": ((1, 1, 10), 2),
}


def made(shape, lanes, *, gradient=True):
    layer = SoftCrossLoss(inputs=2 * (Shape(*shape),), gradient=gradient)
    return SoftmaxLoss(layer=layer, parallelism=Parallelism(pi=lanes, po=lanes))


@pytest.fixture(scope="module")
def bench():
    return LayerBench({name: made(*what) for name, what in SHAPES.items()})


@pytest.fixture(scope="module")
def large_bench():
    return LayerBench({name: made(*what, gradient=name != "no gradient") for name, what in GRID.items()})


def words(values):
    return np.ascontiguousarray(values, np.float32).view(np.uint32).ravel()


def frames_of(rng, layer, frames, odd):
    """Logits of all sizes, and one-hot labels."""
    shape = (frames, layer.input.h, layer.input.w, layer.input.c)
    x = (rng.normal(0, 1, shape) * rng.choice([0.01, 1, 30, 300], (frames, 1, 1, 1))).astype(np.float32)
    special = rng.choice(np.array(SPECIAL, np.uint32), shape).view(np.float32)
    x = np.where(rng.random(shape) < odd, special, x)
    labels = np.eye(layer.input.words, dtype=np.float32)[rng.integers(0, layer.input.words, frames)]
    return x, labels.reshape(shape)


def check(bench, name, component, seed, *, frames=8, odds=0.0, odd=0.0):
    """Frames that train, that do not, and that do again."""
    layer = component.layer
    rng = np.random.default_rng(seed)
    jobs, expected = [], []
    for mode in (Mode.TRAIN, Mode.EVALUATE, Mode.TRAIN):
        x, labels = frames_of(rng, layer, frames, odd)
        p, gradient = golden.forward(layer, component.parallelism, {}, [x, labels])
        found = {"outputs": words(p)}
        if mode is Mode.TRAIN and layer.gradient:
            found["input_gradients0"] = gradient.ravel()
        feeds = {"features0": words(x), "features1": words(labels)}
        expect = {stream: len(values) for stream, values in found.items()}
        jobs.append(Job(mode=mode, frames=frames, feeds=feeds, expect=expect))
        expected.append(found)
    results = bench.run(name, jobs, odds=odds, seed=seed)
    for number, (result, wanted) in enumerate(zip(results, expected, strict=True)):
        for stream, values in wanted.items():
            assert result.words[stream].tolist() == values.tolist(), (number, stream)
    return results


def check_cycles(component, results, *, frames):
    layer, p = component.layer, component.parallelism
    for result in results:
        found = result.cycles_of["outputs"].astype(int)
        starts = found[:: len(found) // frames]
        assert np.diff(starts).tolist() == [layer.cycles(p)] * (frames - 1)
        assert (result.cycles_of["features1"] + 8).tolist() == found.tolist()
    assert (results[0].cycles_of["features1"] + 15).tolist() == results[0].cycles_of[
        "input_gradients0"
    ].tolist()


@pytest.mark.verilator
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "odds",
    [0.3, {"features0": 0.9}, {"features1": 0.9}, {"outputs": 0.998}, {"input_gradients0": 0.998}],
    ids=["phases", "logits", "labels", "outputs", "gradients"],
)
def test_it_equals_the_golden_model_whichever_side_stalls(bench, name, odds):
    check(bench, name, made(*SHAPES[name]), new_seed(), odds=odds)


@pytest.mark.verilator
@pytest.mark.parametrize("name", SHAPES)
def test_special_values(bench, name):
    check(bench, name, made(*SHAPES[name]), new_seed(), frames=150, odd=0.1)


@pytest.mark.verilator
@pytest.mark.parametrize("name", SHAPES)
def test_it_takes_exactly_the_cycles_of_its_cost_and_is_as_late_as_it_says(bench, name):
    component = made(*SHAPES[name])
    check_cycles(component, check(bench, name, component, new_seed(), frames=5), frames=5)


@pytest.mark.verilator
@pytest.mark.slow
@pytest.mark.parametrize("name", GRID)
@pytest.mark.parametrize("odds", [0.0, 0.3, 0.8])
def test_other_shapes(large_bench, name, odds):
    component = made(*GRID[name], gradient=name != "no gradient")
    results = check(large_bench, name, component, new_seed(), frames=30, odds=odds, odd=0.01)
    if not odds and component.layer.gradient:
        check_cycles(component, results, frames=30)


@pytest.mark.verilator
@pytest.mark.slow
def test_operators_in_gates_give_the_same_bits():
    component = made(*SHAPES["3 by 3"])
    check(LayerBench({"gates": component}, arith=Arith.RTL), "gates", component, new_seed(), odds=0.3)


@pytest.mark.parametrize("gradient", [True, False])
def test_its_operators_and_memories_are_those_of_its_cost(gradient, monkeypatch):
    check_cost(made((1, 1, 10), 5, gradient=gradient), monkeypatch)


@pytest.mark.parametrize(("pi", "po"), [(2, 5), (4, 4)])
def test_lanes_that_do_not_divide_the_classes_are_refused(pi, po):
    layer = SoftCrossLoss(inputs=2 * (Shape(1, 1, 10),))
    with pytest.raises(ValueError, match=f"pi and po must be one divisor of 10 channels, not {pi} and {po}"):
        SoftmaxLoss(layer=layer, parallelism=Parallelism(pi=pi, po=po))
