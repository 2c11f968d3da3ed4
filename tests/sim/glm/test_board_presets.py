# amaranth: UnusedElaboratable=no
"""Nodes for boards train the golden model: bundled data on two of them, and labels of every width."""

from dataclasses import replace

import numpy as np
import pytest

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.train import train
from fanin.link import LinkConfig
from fanin.sim.glm.cosim import Cosim
from fanin.sim.network import NetworkConfig
from tests.support import new_seed

pytestmark = [pytest.mark.verilator, pytest.mark.slow]

BOARDS = [name for name in PRESETS if name.startswith("ecp5-")]
NODES = {name: PRESETS[name] for name in BOARDS} | {
    f"labels of {width} bits": replace(PRESETS["ecp5-25"], label_width=width) for width in (64, 128, 256)
}
EPOCHS = 2
FAULTS = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02)


@pytest.mark.parametrize("name", NODES)
def test_two_nodes_train_the_golden_model_over_a_network_with_faults(name):
    node = NODES[name]
    rng = np.random.default_rng(new_seed())
    shape = TrainShape(node=node, workers=2, samples=90, columns=31, batch=16, precision=4)
    features = rng.integers(0, 16, (shape.samples, shape.columns), dtype=np.uint8)
    labels = fixed.labels(rng.integers(0, 2, shape.samples), Loss.LOGISTIC, node.frac)
    run = {"loss": Loss.LOGISTIC, "rate": fixed.learning_rate(0.5 / shape.batch), "epochs": EPOCHS}
    golden = list(train(features, labels, shape, **run))
    result = Cosim(node, workers=2, quiet=True).train(
        shape, features, labels, **run, network=NetworkConfig(link=FAULTS, timeout_ns=3000)
    )
    assert len(result.models) == EPOCHS
    for model, epoch in zip(result.models, golden, strict=True):
        np.testing.assert_array_equal(model, epoch.model)
    for counters in result.counters:
        assert counters["micro_batches"] == EPOCHS * shape.micro_batches_per_epoch
        assert counters["words"] == counters["micro_batches"] * shape.words_per_micro_batch
        assert counters["results"] == counters["confirms"] == counters["micro_batches"]
