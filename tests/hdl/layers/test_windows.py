# amaranth: UnusedElaboratable=no
"""AvgPool, MaxPool, Im2col: bit for bit, both ways, while any side is slow; and as fast as their costs say."""

import numpy as np
import pytest

from fanin.cnn.golden import layers as golden
from fanin.cnn.layers import avg_pool, im2col, max_pool
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.hdl.layers.avg_pool import AvgPool
from fanin.hdl.layers.im2col import Im2col
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.max_pool import MaxPool
from fanin.sim.cnn.layer_bench import Job, LayerBench
from tests.hdl.layers.frames import check, drawn
from tests.support import new_seed

KINDS = {
    "avg": (AvgPool, avg_pool.AvgPool),
    "max": (MaxPool, max_pool.MaxPool),
    "im2col": (Im2col, im2col.Im2col),
}
APART = {"kernel": (2, 2), "stride": (2, 2)}
PADDED = {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 1, 1, 1)}
GAPS = {"kernel": (1, 2), "stride": (2, 3)}
TALL = {"kernel": (3, 1), "stride": (1, 1), "padding": (2, 0, 0, 0)}
#: shape, words in, words out of im2col (pools give as many as they take), window
CASES = [
    (Shape(4, 6, 4), 2, 8, APART),
    (Shape(5, 4, 4), 2, 3, PADDED),
    (Shape(3, 5, 3), 3, 1, GAPS),
    (Shape(4, 3, 10), 1, 6, TALL),
    (Shape(5, 1, 1), 1, 3, TALL),
]
ALL = [f"{kind}{number}" for kind in KINDS for number in range(len(CASES))]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_layer = pytest.mark.parametrize("name", ALL)


def parallelism(kind, pi, po):
    return Parallelism(pi=pi, po=po if kind == "im2col" else pi)


@every_kind
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVALUATE])
def test_small_windows_equal_the_golden_model_while_any_side_stalls(kind, mode):
    make, facts = KINDS[kind]
    overlapping = {"kernel": (2, 2), "stride": (1, 1), "padding": (1, 0, 0, 1)}
    layer = facts(inputs=(Shape(3, 2, 2),), gradient=mode is Mode.TRAIN, **overlapping)
    check(make, layer, parallelism(kind, 1, 2), mode=mode, seed=new_seed(), frames=4)


@pytest.mark.parametrize("kind", ["avg", "im2col"])
def test_windows_of_nothing_but_padding_equal_the_golden_model(kind):
    make, facts = KINDS[kind]
    outside = {"kernel": (1, 1), "stride": (1, 1), "padding": (1, 0, 0, 1)}
    layer = facts(inputs=(Shape(2, 3, 2),), gradient=True, **outside)
    check(make, layer, parallelism(kind, 2, 2), seed=new_seed(), frames=3)


@every_kind
def test_small_windows_follow_one_another_as_fast_as_the_cost_says(kind):
    make, facts = KINDS[kind]
    layer, p = facts(inputs=(Shape(2, 4, 2),), gradient=True, **APART), parallelism(kind, 2, 4)
    frames = 10
    cycles = check(make, layer, p, seed=new_seed(), stall=0, frames=frames)
    assert period(layer, p, cycles, frames) == layer.cycles(p)


def period(layer, p, cycles, frames):
    """Cycles of a frame, of the slower way, in the second half of a run."""
    found = []
    for way, shape, lanes in (("outputs", layer.output, p.po), ("input_gradients", layer.input, p.pi)):
        (stream,) = [cycles[name] for name in cycles if name.startswith(way)]
        begins = [int(cycle) for cycle in stream[:: shape.words // lanes]][frames // 2 :]
        found.append((begins[-1] - begins[0]) / (len(begins) - 1))
    return max(found)


@pytest.fixture(scope="module")
def bench():
    """All layers, and the program that has them."""
    made = {}
    for kind, (component, facts) in KINDS.items():
        for number, (shape, pi, po, where) in enumerate(CASES):
            layer, p = facts(inputs=(shape,), gradient=True, **where), parallelism(kind, pi, po)
            made[f"{kind}{number}"] = layer, p, component(layer=layer, parallelism=p)
    return made, LayerBench({name: component for name, (*_, component) in made.items()})


def words(frames):
    return np.ascontiguousarray(frames).view(np.uint32).ravel()


@pytest.mark.slow
@pytest.mark.verilator
@every_layer
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVALUATE])
def test_it_equals_the_golden_model_while_any_side_stalls(bench, name, mode):
    seed = new_seed()
    rng = np.random.default_rng(seed)
    made, layer_bench = bench
    layer, p, _ = made[name]
    train = mode is Mode.TRAIN
    features, gradients = (drawn(rng, 20, shape) for shape in (layer.input, layer.output))
    outputs, saved = golden.forward(layer, p, {}, [features], train=train)
    feeds, expected = {"features0": words(features)}, {"outputs": words(outputs)}
    if train:
        feeds["gradients"] = words(gradients)
        (dx,) = golden.backward(layer, p, {}, saved, gradients)
        expected["input_gradients0"] = words(dx)
    loops = {"save": "replay"} if layer.saved_words else {}
    job = Job(mode=mode, feeds=feeds, expect={stream: found.size for stream, found in expected.items()})
    for odds in (0.0, 0.3):
        (result,) = layer_bench.run(name, [job], loops=loops, odds=odds, seed=seed)
        for stream, found in expected.items():
            np.testing.assert_array_equal(result.words[stream], found, err_msg=stream)
        if layer.saved_words:
            np.testing.assert_array_equal(result.words["save"], saved.ravel())


@pytest.mark.slow
@pytest.mark.verilator
@every_layer
def test_frames_follow_one_another_as_fast_as_the_cost_says(bench, name):
    made, layer_bench = bench
    layer, p, _ = made[name]
    frames = 40
    sizes = {"features0": layer.input.words, "gradients": layer.output.words}
    feeds = {stream: np.ones(frames * size, np.uint32) for stream, size in sizes.items()}
    expect = {"outputs": frames * layer.output.words, "input_gradients0": frames * layer.input.words}
    loops = {"save": "replay"} if layer.saved_words else {}
    (result,) = layer_bench.run(name, [Job(mode=Mode.TRAIN, feeds=feeds, expect=expect)], loops=loops)
    assert period(layer, p, result.cycles_of, frames) == layer.cycles(p)
