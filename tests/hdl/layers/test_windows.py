# amaranth: UnusedElaboratable=no
"""AvgPool, MaxPool, Im2col: bit for bit, both ways, while any side is slow; and as fast as their costs say."""

import numpy as np
import pytest

from fanin.golden.cnn import layers as golden
from fanin.hdl.layers.avg_pool import AvgPool
from fanin.hdl.layers.im2col import Im2col
from fanin.hdl.layers.interface import Mode
from fanin.hdl.layers.max_pool import MaxPool
from fanin.layers import window
from fanin.layers.layer import Parallelism, Shape
from fanin.sim.cnn.layer_bench import Job, LayerBench
from tests.hdl.layers.frames import drawn
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator
KINDS = {
    "avg": (AvgPool, window.AvgPool),
    "max": (MaxPool, window.MaxPool),
    "im2col": (Im2col, window.Im2col),
}
APART = {"kernel": (2, 2), "stride": (2, 2)}
PADDED = {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 1, 1, 1)}
GAPS = {"kernel": (1, 2), "stride": (2, 3)}
WIDE = {"kernel": (1, 3), "stride": (1, 1)}
TALL = {"kernel": (3, 1), "stride": (1, 1), "padding": (2, 0, 0, 0)}
#: shape, words in, words out of im2col (pools give as many as they take), window
QUICK = [(Shape(5, 4, 4), 2, 3, PADDED)]
MORE = [
    (Shape(4, 6, 4), 2, 8, APART),
    (Shape(4, 6, 4), 4, 4, PADDED),
    (Shape(3, 5, 3), 3, 1, GAPS),
    (Shape(4, 3, 10), 1, 6, TALL),
    (Shape(6, 6, 2), 2, 2, PADDED),
    (Shape(2, 2, 1), 1, 4, APART),
    (Shape(5, 1, 1), 1, 3, TALL),
    (Shape(3, 6, 1), 1, 1, WIDE),
]


def built(cases):
    made = {}
    for kind, (component, facts) in KINDS.items():
        for number, (shape, pi, po, where) in enumerate(cases):
            layer, p = (
                facts(inputs=(shape,), gradient=True, **where),
                Parallelism(pi=pi, po=po if kind == "im2col" else pi),
            )
            made[f"{kind}{number}"] = layer, p, component(layer=layer, parallelism=p)
    return made, LayerBench({name: component for name, (*_, component) in made.items()})


@pytest.fixture(scope="module")
def quick():
    return built(QUICK)


@pytest.fixture(scope="module")
def more():
    return built(MORE)


def names(cases):
    return [f"{kind}{number}" for kind in KINDS for number in range(len(cases))]


every_layer = pytest.mark.parametrize(
    ("benches", "name"),
    [*(("quick", name) for name in names(QUICK)), *slow(*(("more", name) for name in names(MORE)))],
)


@pytest.fixture
def bench(benches, request):
    return request.getfixturevalue(benches)


def words(frames):
    return np.ascontiguousarray(frames).view(np.uint32).ravel()


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
    loops = {"save": "replay"} if layer.saved else {}
    job = Job(mode=mode, feeds=feeds, expect={stream: found.size for stream, found in expected.items()})
    for odds in (0.0, 0.3):
        (result,) = layer_bench.run(name, [job], loops=loops, odds=odds, seed=seed)
        for stream, found in expected.items():
            np.testing.assert_array_equal(result.words[stream], found, err_msg=stream)
        if layer.saved:
            np.testing.assert_array_equal(result.words["save"], saved.ravel())


@every_layer
def test_frames_follow_one_another_as_fast_as_the_cost_says(bench, name):
    made, layer_bench = bench
    layer, p, _ = made[name]
    frames = 40
    feeds = {
        "features0": np.ones(frames * layer.input.words),
        "gradients": np.ones(frames * layer.output.words),
    }
    expect = {"outputs": frames * layer.output.words, "input_gradients0": frames * layer.input.words}
    loops = {"save": "replay"} if layer.saved else {}
    (result,) = layer_bench.run(name, [Job(mode=Mode.TRAIN, feeds=feeds, expect=expect)], loops=loops)
    for way, shape, lanes in (("outputs", layer.output, p.po), ("input_gradients0", layer.input, p.pi)):
        begins = result.cycles_of[way][:: shape.words // lanes][frames // 2 :].astype(int)
        assert begins[-1] - begins[0] == layer.cycles(p) * (len(begins) - 1), way
