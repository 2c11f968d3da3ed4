"""The forward way of a convolution alone, beside a plain memory of weights."""

import numpy as np
import pytest
from amaranth import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from fanin.cnn.golden import layers as golden
from fanin.cnn.golden.image import state_image
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.hdl.layers.forward import Forward
from fanin.hdl.layers.interface import word_stream
from tests.fp32_values import SPECIAL
from tests.support import new_seed, simulate, slow

FRAMES = 3


def conv(shape, channels, kernel, stride, padding, *, groups=1):
    """A convolution; depthwise where every channel is a group."""
    kind = DepthwiseConv if groups == channels == shape[2] else Conv
    return kind(
        inputs=(Shape(*shape),),
        output_channels=channels,
        kernel=kernel,
        stride=stride,
        padding=padding,
        groups=groups,
    )


NONE, ONE = (0, 0, 0, 0), (1, 1, 1, 1)
LAYERS = {
    "columns": (conv((4, 4, 2), 4, (3, 3), (1, 1), ONE), Parallelism(pic=1, poc=2, ph=2, pi=2, po=2)),
    "rows": (conv((6, 3, 2), 1, (3, 3), (1, 1), ONE), Parallelism(pic=2, poc=1, ph=1, pi=1, po=1)),
    "blocks in a row": (conv((3, 8, 1), 8, (3, 3), (2, 1), ONE), Parallelism(pic=1, poc=2, ph=2, pi=1, po=4)),
    "stride": (conv((4, 5, 3), 2, (3, 3), (2, 2), ONE), Parallelism(pic=3, poc=1, ph=3, pi=1, po=1)),
    "1×1": (conv((3, 4, 4), 4, (1, 1), (1, 1), NONE), Parallelism(pic=2, poc=1, ph=2, pi=4, po=1)),
    "1×1, stride": (conv((5, 4, 2), 4, (1, 1), (2, 2), NONE), Parallelism(pic=1, poc=2, ph=2, pi=1, po=2)),
    "dense": (Dense(inputs=(Shape(1, 2, 4),), output_channels=6), Parallelism(pic=2, poc=3, pi=2, po=1)),
    "groups": (conv((3, 4, 4), 8, (2, 2), (1, 1), NONE, groups=2), Parallelism(pic=1, poc=2, ph=3, pi=2, po=4)),
    "depthwise": (conv((4, 4, 4), 4, (3, 3), (1, 1), ONE, groups=4), Parallelism(poc=2, ph=4, pi=4, po=2)),
    "padding alone": (
        conv((2, 2, 1), 2, (1, 1), (1, 1), (2, 2, 2, 2)),
        Parallelism(pic=1, poc=1, ph=6, pi=1, po=1),
    ),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


class WithWeights(wiring.Component):
    """The forward way, and a memory of weights; every frame is admitted."""

    def __init__(self, schedule, words):
        self.forward, self.words = Forward(schedule=schedule), words
        super().__init__(
            {"features": In(word_stream(schedule.p.pi)), "outputs": Out(word_stream(schedule.p.po))}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.forward = forward = self.forward
        m.submodules.memory = memory = Memory(
            shape=forward.weights.shape(), depth=len(self.words), init=self.words
        )
        read = memory.read_port()
        wiring.connect(m, wiring.flipped(self.features), forward.features)
        wiring.connect(m, forward.outputs, wiring.flipped(self.outputs))
        m.d.comb += [
            forward.admit.eq(1),
            read.addr.eq(forward.weight_address),
            forward.weights.eq(read.data),
        ]
        return m


def words(array, lanes):
    """Transfers of a stream."""
    return np.ascontiguousarray(array).view(np.uint32).reshape(-1, lanes).tolist()


def draw(rng, shape, odd):
    """Random words, a share ``odd`` of which is special."""
    special = rng.choice(np.array(SPECIAL, np.uint32), shape).view(np.float32)
    return np.where(rng.random(shape) < odd, special, rng.standard_normal(shape).astype(np.float32))


def run(name, *, stall, odd=0.0):
    """Frames through a layer; asserts their words. Its latency, and the cycles of its streams' transfers."""
    layer, p = LAYERS[name]
    schedule, seed = Schedule(layer, p), new_seed()
    rng = np.random.default_rng(seed)
    state = {key: draw(rng, array.shape, odd) for key, array in layer.zero_state().items()}
    image = state_image(layer, p, state)[: layer.parameters].reshape(schedule.weight_words, -1)
    shape = layer.inputs[0]
    x = draw(rng, (FRAMES, shape.h, shape.w, shape.c), odd)
    output, _ = golden.forward(layer, p, state, [x])
    expected = words(output, p.po)
    dut = WithWeights(schedule, image.tolist())
    log = simulate(
        dut,
        drive={"features": words(x, p.pi)},
        collect={"outputs": len(expected)},
        stall=stall,
        seed=seed,
    )
    assert [list(word) for _, word in log["outputs"]] == expected
    return dut.forward.latency, {stream: [cycle for cycle, _ in transfers] for stream, transfers in log.items()}


@every_layer
def test_its_words_are_those_of_the_golden_model(name):
    run(name, stall=0.4, odd=0.02)


SLOW_SIDES = ["rows", "1×1", "blocks in a row"]


@pytest.mark.parametrize("slower", ["features", "outputs"])
@pytest.mark.parametrize("name", SLOW_SIDES + slow(*(name for name in LAYERS if name not in SLOW_SIDES)))
def test_blocks_wait_for_their_rows_and_for_room(name, slower):
    run(name, stall={"features": 0.0, "outputs": 0.0, slower: 0.95})


@every_layer
def test_latency_and_cycles_of_a_frame_are_as_said(name):
    """Words come at once: then blocks follow one another, or they are as fast as the words."""
    layer, p = LAYERS[name]
    (latency, cycles), schedule = run(name, stall=0), Schedule(layer, p)
    awaited = (schedule.features.last(0) + 1) * schedule.features.width * layer.input.c // p.pi
    assert cycles["outputs"][0] - cycles["features"][awaited - 1] == latency
    ends = cycles["outputs"][layer.output.words // p.po - 1 :: layer.output.words // p.po]
    computing = schedule.blocks * schedule.block_cycles(Way.FORWARD)
    assert np.diff(ends).tolist() == (FRAMES - 1) * [
        max(computing, layer.input.words // p.pi, layer.output.words // p.po)
    ]
