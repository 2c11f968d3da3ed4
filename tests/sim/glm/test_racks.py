"""Training over trees of switches: the golden model's bits, whatever every link does."""

import numpy as np
import pytest

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.train import train
from fanin.link import LinkConfig
from fanin.sim.capture import read_capture
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.glm.cosim import Cosim
from fanin.sim.network import NetworkConfig
from fanin.sim.switch.base import SwitchKind
from fanin.tree import parse_shape, tree_of
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

NODE = PRESETS["tiny"]
WORKERS = 4
TREES = ["2x2", "1+3", "2x1x2"]


def tree(text):
    return tree_of(parse_shape(text), job=1, base=0, slots=NODE.slots)


FAULTS = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)


@pytest.fixture(scope="module")
def cosim():
    return Cosim(NODE, workers=WORKERS, quiet=True)


def problem(workers, epochs, seed):
    """A data set of columns for each worker, and the golden models of its epochs."""
    rng = np.random.default_rng(seed)
    shape = TrainShape(node=NODE, workers=workers, samples=61, columns=10 * workers + 1, batch=16)
    features = rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)
    labels = (rng.integers(0, 2, shape.samples) << NODE.frac).astype(np.int32)
    run = {"loss": Loss.LOGISTIC, "rate": fixed.learning_rate(0.5 / 16), "epochs": epochs}
    golden = [epoch.model for epoch in train(features, labels, shape, **run)]
    assert len({model.tobytes() for model in golden}) == epochs
    return (shape, features, labels), run, golden


def check(result, golden):
    for model, expected in zip(result.models, golden, strict=True):
        np.testing.assert_array_equal(model, expected)


@pytest.mark.parametrize("text", TREES)
def test_every_model_is_the_golden_one_and_nothing_is_sent_twice(cosim, text):
    data, run, golden = problem(WORKERS, 3, new_seed())
    result = cosim.train(*data, **run, network=NetworkConfig(tree=tree(text), timeout_ns=20_000))
    check(result, golden)
    operations = 3 * data[0].micro_batches_per_epoch
    root, *others = result.raw.switches.values()
    assert root["results"] == operations
    for counters in others:
        assert counters["to_parent"] == 2 * operations
        assert counters["to_parent_again"] == 0
    assert all(trunk["frames"] == 2 * operations for trunk in result.raw.trunks.values())
    assert len(result.allreduce_ns) == WORKERS * operations


@pytest.mark.parametrize("text", TREES)
@pytest.mark.parametrize("seed", [0, *slow(*range(1, 10))])
def test_faults_on_every_link_change_no_bit(cosim, text, seed):
    data, run, golden = problem(WORKERS, 10, seed)
    result = cosim.train(*data, **run, network=NetworkConfig(link=FAULTS, seed=seed, tree=tree(text)))
    check(result, golden)
    assert sum(counters["retransmissions"] for counters in result.counters) > 0
    trunks = result.raw.trunks.values()
    for fault in ("dropped", "duplicated", "reordered", "corrupted"):
        assert sum(trunk[fault] for trunk in trunks) > 0
    assert sum(counters["to_parent_again"] for counters in result.raw.switches.values()) > 0


def test_the_reference_switch_makes_no_difference(cosim):
    data, run, golden = problem(WORKERS, 3, new_seed())
    runs = [
        cosim.train(*data, **run, network=NetworkConfig(link=FAULTS, tree=tree("2x2"), switch=kind))
        for kind in (SwitchKind.EMBEDDED, SwitchKind.REFERENCE)
    ]
    check(runs[0], golden)
    assert runs[0].raw.switches == runs[1].raw.switches
    assert runs[0].cycles == runs[1].cycles


def test_an_allreduce_costs_two_links_and_two_switches_more(cosim):
    data, run, _ = problem(WORKERS, 2, new_seed())
    means = [
        cosim.train(*data, **run, network=NetworkConfig(tree=switches, timeout_ns=20_000)).allreduce_ns.mean()
        for switches in (None, tree("2x2"))
    ]
    hop = (8 + 60 + 4) * 8 / 100 + 100  # a frame of 60 bytes at 100 Gb/s, and the link's delay
    assert means[1] - means[0] == pytest.approx(2 * (hop + 400), abs=8)


def test_each_switch_has_a_capture(cosim, tmp_path):
    data, run, _ = problem(WORKERS, 1, new_seed())
    pcap = tmp_path / "frames.pcap"
    cosim.train(*data, **run, network=NetworkConfig(tree=tree("2x2")), pcap=pcap)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "frames-switch-0.pcap",
        "frames-switch-1.pcap",
        "frames.pcap",
    ]
    operations = data[0].micro_batches_per_epoch
    assert len(read_capture(pcap)) == 8 * operations  # of two members, AGG to CONFIRM
    assert len(read_capture(tmp_path / "frames-switch-1.pcap")) == 12 * operations  # and of the parent


def test_a_worker_that_stops_ends_the_job_within_its_bound(cosim):
    data, run, _ = problem(WORKERS, 3, new_seed())
    network = NetworkConfig(tree=tree("2x2"), retries=3, timeout_ns=3000, stops=((3, 20e-6),))
    with pytest.raises(SimulationFailed, match="TIMEOUT"):
        cosim.train(*data, **run, network=network)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "epochs"), [("2x4", 4), ("4x8", 2), ("2x2x4", 3)])
def test_the_issues_trees_train_bit_for_bit(text, epochs):
    workers = len(tree(text).workers)
    data, run, golden = problem(workers, epochs, new_seed())
    large = Cosim(NODE, workers=workers, quiet=True)
    for seed in range(10):
        result = large.train(*data, **run, network=NetworkConfig(link=FAULTS, seed=seed, tree=tree(text)))
        check(result, golden)


def test_a_tree_has_no_bmv2():
    with pytest.raises(ValueError, match="switches of a tree must be reference or embedded"):
        NetworkConfig(tree=tree("2x2"), switch=SwitchKind.BMV2)
