# amaranth: UnusedElaboratable=no
"""A node whose memory port is the slowest: frames take the beats and the cycles that its layers cost."""

import numpy as np
import pytest

from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.golden.image import state_image
from fanin.cnn.golden.network import GoldenNetwork, initial_state
from fanin.cnn.layers.bias import Bias
from fanin.cnn.layers.dense import Dense
from fanin.cnn.layers.family import family
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Parallelism, Shape, Storage
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.port import BEAT_BITS
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.cnn.memory import beats, state_stages
from fanin.cnn.training import Job
from fanin.hdl.layers.node import ClusterNode
from fanin.sim.cnn.epochs import Epoch
from tests.sim.cnn.one_node import NodeCosim

pytestmark = [pytest.mark.verilator, pytest.mark.slow]

FRAMES = 24
IMAGE, CLASSES = Shape(1, 1, 32), Shape(1, 1, 4)


def network(storage):
    """Three dense layers; of the second, which has the most weights, they lie in ``storage``."""
    stages = [
        Stage("images", Input(shape=IMAGE), Parallelism(po=4), ()),
        Stage("labels", Input(shape=CLASSES), Parallelism(po=4), ()),
    ]

    def add(name, layer, p, *sources, where=Storage.CHIP):
        stages.append(Stage(name, layer, p, sources, where))
        return len(stages) - 1

    def dense(name, outputs, source, p, **more):
        inputs = (stages[source].layer.output,)
        layer = Dense(inputs=inputs, output_channels=outputs, gradient=source != 0)
        return add(name, layer, layer.with_streams(p), source, **more)

    first = dense("first", 32, 0, Parallelism(pic=4, poc=4))
    second = dense("second", 64, first, Parallelism(pic=8, poc=8), where=storage)
    last = dense("last", 4, second, Parallelism(pic=4))
    bias = add("bias", Bias(inputs=(CLASSES,), gradient=True), Parallelism(pi=4, po=4), last)
    loss = SoftCrossLoss(inputs=(CLASSES, CLASSES), gradient=True)
    loss = add("loss", loss, Parallelism(pi=4, po=4), bias, 1)
    add("output", Output(inputs=(CLASSES,), gradient=True), Parallelism(), loss)
    return Network("port", tuple(stages))


def test_frames_take_the_beats_and_cycles_that_the_port_costs():
    net = network(Storage.DRAM)
    second = next(stage for stage in net.stages if stage.storage is Storage.DRAM)
    cost = second.layer.cost(second.parallelism, second.storage, family("arria10"))
    assert Flow(net).period == cost.cycles > Flow(network(Storage.CHIP)).period, "the port is the slowest"

    rng = np.random.default_rng(3)
    images = rng.standard_normal((2 * FRAMES, 1, 1, IMAGE.c)).astype(np.float32)
    labels = np.eye(CLASSES.c, dtype=np.float32)[rng.integers(0, CLASSES.c, 2 * FRAMES)]
    states = initial_state(net, 1)
    words = [state_image(net.stages[i].layer, net.stages[i].parallelism, states[i]) for i in state_stages(net)]
    jobs = [Job.of(frames, frames, 0.1, 0.9) for frames in (FRAMES, 2 * FRAMES)]
    epochs = [Epoch(job, images[: job.frames], labels[: job.frames], dump=True) for job in jobs]
    # Memory answers soon: what frames wait for longer latencies is no cost of the port.
    found = NodeCosim(ClusterNode(network=net), quiet=True).run(words, epochs, memory_latency=20).epochs

    golden = GoldenNetwork(net, states)
    for epoch, result in zip(epochs, found, strict=True):
        expected = golden.train(epoch.images, epoch.labels, epoch.job).reshape(-1, CLASSES.c)
        assert np.array_equal(result.results.view(np.uint32), expected.view(np.uint32))

    cycles, read, written = (
        (found[1].counters[name] - found[0].counters[name]) / FRAMES
        for name in ("cycles", "read_beats", "written_beats")
    )
    saved = [beats(stage.layer.saved_words) for stage in net.stages if stage is not second]
    host = beats(IMAGE.words) + beats(CLASSES.words), beats(CLASSES.words)  # to the node, and from it
    assert read == cost.dram_read / BEAT_BITS + sum(saved) + host[0]
    assert written == cost.dram_write / BEAT_BITS + sum(saved) + host[1]
    assert cost.cycles <= read <= cycles <= 1.01 * read
