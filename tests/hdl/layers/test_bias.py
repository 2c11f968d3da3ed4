# amaranth: UnusedElaboratable=no
"""Bias: it learns, batch by batch, as its golden model does, while any side is slow; as fast as it costs."""

import numpy as np
import pytest

from fanin.cnn.golden import layers as golden
from fanin.cnn.golden.image import state_image, state_of_image
from fanin.cnn.layers import bias
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.hdl.layers.bias import Bias
from fanin.hdl.layers.interface import Mode
from fanin.sim.cnn.layer_bench import Job, LayerBench
from tests.hdl.layers.frames import drawn, starts
from tests.support import new_seed

pytestmark = pytest.mark.verilator
FRAMES, BATCH = 7, 3
RATES = {"eta": -0.05 / BATCH, "last_eta": -0.05, "momentum": 0.9}
LAYERS = {
    "many channels": (bias.Bias(inputs=(Shape(3, 2, 20),), gradient=True), 2),
    "all at once": (bias.Bias(inputs=(Shape(1, 2, 3),), gradient=True), 3),
    "first of a network": (bias.Bias(inputs=(Shape(2, 2, 3),)), 1),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


@pytest.fixture(scope="module")
def bench():
    return LayerBench(
        {
            name: Bias(layer=layer, parallelism=Parallelism(pi=lanes, po=lanes))
            for name, (layer, lanes) in LAYERS.items()
        }
    )


def learned(layer, p, state, frames):
    """What leaves the layer if its output is its gradient; ``state`` follows."""
    outputs = []
    for begin in range(0, len(frames), BATCH):
        batch = frames[begin : begin + BATCH]
        output, saved = golden.forward(layer, p, state, [batch])
        golden.backward(layer, p, state, saved, output)
        last = len(batch) < BATCH
        golden.update(
            layer, state, np.float32(RATES["last_eta" if last else "eta"]), np.float32(RATES["momentum"])
        )
        outputs.append(output)
    return np.concatenate(outputs).view(np.uint32).ravel()


def jobs(layer, image, frames):
    back = {"input_gradients0": frames.size} if layer.gradient else {}
    features = {"features0": frames.view(np.uint32).ravel()}
    return [
        Job(mode=Mode.LOAD, feeds={"load": image}),
        Job(mode=Mode.TRAIN, frames=FRAMES, batch=BATCH, feeds=features, expect=back, **RATES),
        Job(mode=Mode.DUMP, expect={"dump": len(image)}),
    ]


@every_layer
def test_it_learns_as_the_golden_model_while_any_side_stalls(bench, name):
    seed = new_seed()
    layer, lanes = LAYERS[name]
    rng, p = np.random.default_rng(seed), Parallelism(pi=lanes, po=lanes)
    frames = drawn(rng, FRAMES, layer.input)
    image = drawn(rng, 2, Shape(1, 1, layer.input.c)).view(np.uint32).ravel()
    state = state_of_image(layer, p, image)
    expected = learned(layer, p, state, frames)
    for odds in (0.0, 0.3):
        _, trained, dumped = bench.run(
            name, jobs(layer, image, frames), loops={"outputs": "gradients"}, odds=odds, seed=seed
        )
        np.testing.assert_array_equal(trained.words["outputs"], expected)
        if layer.gradient:
            np.testing.assert_array_equal(trained.words["input_gradients0"], expected)
        np.testing.assert_array_equal(dumped.words["dump"], state_image(layer, p, state))


@every_layer
def test_in_evaluation_it_adds_and_learns_nothing(bench, name):
    seed = new_seed()
    layer, lanes = LAYERS[name]
    rng, p = np.random.default_rng(seed), Parallelism(pi=lanes, po=lanes)
    frames = drawn(rng, FRAMES, layer.input)
    image = drawn(rng, 2, Shape(1, 1, layer.input.c)).view(np.uint32).ravel()
    output, _ = golden.forward(layer, p, state_of_image(layer, p, image), [frames], train=False)
    feeds = {"features0": frames.view(np.uint32).ravel()}
    load, evaluate, dump = (
        Job(mode=Mode.LOAD, feeds={"load": image}),
        Job(mode=Mode.EVALUATE, frames=FRAMES, batch=BATCH, feeds=feeds, expect={"outputs": frames.size}),
        Job(mode=Mode.DUMP, expect={"dump": len(image)}),
    )
    _, evaluated, dumped = bench.run(name, [load, evaluate, dump], odds=0.3, seed=seed)
    np.testing.assert_array_equal(evaluated.words["outputs"], output.view(np.uint32).ravel())
    np.testing.assert_array_equal(dumped.words["dump"], image)


@every_layer
def test_frames_follow_one_another_as_fast_as_the_cost_says(bench, name):
    layer, lanes = LAYERS[name]
    p = Parallelism(pi=lanes, po=lanes)
    frames = np.ones((FRAMES, layer.input.h, layer.input.w, layer.input.c), np.float32)
    words = frames.view(np.uint32).ravel()
    job = Job(
        mode=Mode.TRAIN,
        frames=FRAMES,
        batch=FRAMES,
        feeds={"features0": words},
        expect={"input_gradients0": words.size} if layer.gradient else {},
    )
    (result,) = bench.run(name, [job], loops={"outputs": "gradients"})
    cycles = {stream: found.tolist() for stream, found in result.cycles_of.items()}
    back = starts(cycles["gradients"], FRAMES)
    assert back == [back[0] + frame * layer.cycles(p) for frame in range(FRAMES)]
    assert cycles["outputs"] == [cycle + 9 for cycle in cycles["features0"]]
    assert cycles["features0"] == list(range(cycles["features0"][0], cycles["features0"][-1] + 1))
    if layer.gradient:
        assert cycles["input_gradients0"] == [cycle + 1 for cycle in cycles["gradients"]]
