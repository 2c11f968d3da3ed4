"""digits_cnn with one parallelism on one device, two and three: the same bits, those of its golden model."""

import dataclasses

import numpy as np
import pytest

from fanin.cnn.golden.network import initial_state
from fanin.cnn.memory import state_stages
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.run.machine import ignore_progress
from fanin.cnn.run.models import Golden
from fanin.cnn.run.rtl import Rtl
from fanin.cnn.training import Job
from fanin.planner.plan.network import read_network
from fanin.sim.learning.images import load_images
from tests.planner.test_network import write_plan

pytestmark = [pytest.mark.slow, pytest.mark.verilator]

FRAMES = 80
DEVICE = """[[device]]
name = "small"
part = "arria10"
dsp = 200
"""


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan")
    (folder / "small.toml").write_text(DEVICE)
    write_plan(folder, "digits_cnn", folder / "small.toml")
    return read_network(folder)


def trained(machine, network):
    """Outputs of training and of an evaluation behind it, and the state."""
    images = network.stages[network.images].layer.output
    train = load_images("digits", images, classes=10).train
    machine.load(tuple(initial_state(network, 1)))
    outputs = machine.train(
        train.images[:FRAMES], train.digits[:FRAMES], Job.of(FRAMES, 32, 0.1, 0.9), ignore_progress
    )
    tested, states = machine.evaluate(train.images[FRAMES : 2 * FRAMES]), machine.dump()
    words = [states[stage][name] for stage in state_stages(network) for name in sorted(states[stage])]
    return [np.asarray(found).astype(np.float32).tobytes() for found in (outputs, tested, *words)]


@pytest.mark.parametrize(
    "devices",
    [
        "a" * 21,
        "aaaaabbbbbbbbbbaaaaaa",  # all behind the first convolution on the second
        "aaaaabbbbcccbccaaaaaa",  # both ways to the join, and from there, over the network
    ],
)
def test_bits_are_the_golden_models(planned, devices):
    network = planned.network
    placed = dataclasses.replace(planned, placement=PlacedNetwork(network, tuple(devices)))
    assert trained(Rtl(placed, "c"), network) == trained(Golden(network), network)
