"""A layer's RTL on the streams of the golden model: equal, as fast as planned, and a fault is named."""

import numpy as np
import pytest
from amaranth import Module, Signal
from amaranth.hdl import Value
from amaranth.lib import wiring

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.facts import Stage
from fanin.cnn.golden.network import GoldenNetwork, Trace, initial_state, output_gradient
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.layer import Parallelism, Shape
from fanin.cnn.training import Job
from fanin.hdl.layers.components import ENDS, component_of
from fanin.hdl.layers.interface import layer_members
from fanin.sim.cnn import layer_check
from fanin.sim.cnn.layer_check import LayerStreams, check_layer, planned_cycles
from tests.support import new_seed

pytestmark = pytest.mark.verilator

BIAS = Stage("bias", Bias(inputs=(Shape(3, 2, 4),), gradient=True), Parallelism(pi=2, po=2))
RATES = {"eta": -0.05, "momentum": 0.9}


def bias_streams(*, frames=2):
    """Streams of a bias, whose outputs are computed here: inputs plus biases."""
    rng = np.random.default_rng(3)
    x, gradient = (rng.standard_normal((frames, 3, 2, 4)).astype(np.float32) for _ in range(2))
    state = {name: rng.standard_normal(4).astype(np.float32) for name in ("weights", "velocity")}
    return LayerStreams((x,), x + state["weights"], gradient, state)


class Mutated(wiring.Component):
    """A layer that flips the lowest bit of one word of a stream: of the first lane in a transfer."""

    def __init__(self, *, stage, stream, transfer):
        self.stage, self.stream, self.transfer = stage, stream, transfer
        super().__init__(layer_members(stage.layer, stage.parallelism))

    def elaborate(self, platform):
        m = Module()
        m.submodules.layer = layer = component_of(self.stage)
        for name, member in self.signature.members.items():
            outer, inner = getattr(self, name), getattr(layer, name)
            if not member.is_signature:
                m.d.comb += inner.eq(outer) if name == "control" else outer.eq(inner)
                continue
            for ours, its in zip(outer, inner, strict=True) if member.dimensions else [(outer, inner)]:
                wiring.connect(m, wiring.flipped(ours), its)
        port = getattr(self, self.stream)
        inner = getattr(layer, self.stream)
        if self.stream == "input_gradients":
            port, inner = port[0], inner[0]
        count = Signal(32)
        with m.If(port.valid & port.ready):
            m.d.sync += count.eq(count + 1)
        flip = count == self.transfer
        m.d.comb += Value.cast(port.payload).eq(Value.cast(inner.payload) ^ flip)
        return m


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stream", "transfer", "place"),
    [
        ("outputs", 17, "output, frame 1, row 1, column 0, channel 2"),  # 2 transfers a position, 12 a frame
        ("input_gradients", 3, "gradient of input 0, frame 0, row 0, column 1, channel 2"),
        ("dump", 5, "state after the update, velocity[1]"),
    ],
)
def test_a_mutation_of_the_rtl_is_found_and_named(stream, transfer, place, monkeypatch):
    monkeypatch.setattr(
        layer_check, "component_of", lambda stage: Mutated(stage=stage, stream=stream, transfer=transfer)
    )
    check = check_layer(BIAS, bias_streams(), seed=1, **RATES)
    assert check.difference.startswith(f"bias: {place}: expected 0x")
    assert check.difference.endswith(", without stalls")
    assert "more words" not in check.difference


@pytest.mark.slow
def test_outputs_are_those_that_the_next_layers_get(monkeypatch):
    """Not those that the layer's own golden model would have: here a word of them is another."""
    streams = bias_streams()
    seed = new_seed()
    assert check_layer(BIAS, streams, seed=seed, **RATES).difference is None
    streams.outputs[1, 2, 1, 3] = 7
    check = check_layer(BIAS, streams, seed=seed, **RATES)
    x, w = streams.features[0][1, 2, 1, 3], streams.state["weights"][3]
    got = int((x + w).view(np.uint32))
    place = "output, frame 1, row 2, column 1, channel 3"
    assert check.difference == f"bias: {place}: expected 0x40e00000, got 0x{got:08x}, without stalls"
    assert check.cycles == 0


@pytest.mark.slow
def test_a_layer_that_stops_is_named_with_the_stream_that_is_missing(monkeypatch):
    """A gradient that never comes: the update waits for it."""
    streams = bias_streams()
    monkeypatch.setattr(
        layer_check, "_bits", lambda array: array.ravel().view(np.uint32)[: 2 * (array.size // 4)]
    )
    check = check_layer(BIAS, streams, seed=1, **RATES)
    assert check.difference.startswith("bias: job 1, cycle ")
    assert "no transfer for " in check.difference


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pools", "residual", "streamed"])
def test_every_layer_of_a_network_is_equal_and_as_fast_as_planned(name):
    network, frames = EXAMPLES[name], 4
    rng, seed = np.random.default_rng(2), new_seed()
    images, labels = (network.stages[index].layer.output for index in (network.images, network.labels))
    x = rng.standard_normal((frames, images.h, images.w, images.c)).astype(np.float32)
    y = np.eye(labels.words, dtype=np.float32)[rng.integers(0, labels.words, frames)]
    states, trace = initial_state(network, 0), Trace(range(frames))
    job = Job.of(frames, frames, 0.1, 0.9)
    GoldenNetwork(network, states).train(x, y, job, trace)
    for index, stage in enumerate(network.stages):
        if isinstance(stage.layer, ENDS):
            continue
        features = tuple(trace.outputs[source] for source in stage.sources)
        gradient = output_gradient(network, trace.gradients, index)
        streams = LayerStreams(features, trace.outputs[index], gradient, states[index])
        check = check_layer(stage, streams, eta=float(job.last_eta), momentum=0.9, seed=seed)
        assert check.difference is None
        assert check.cycles == pytest.approx(planned_cycles(stage), rel=0.01), stage.name
