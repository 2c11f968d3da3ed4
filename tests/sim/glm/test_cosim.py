"""Training on simulated nodes: the golden model's bits, whatever the network does."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from fanin import fixed
from fanin.base.errors import InputError
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.train import train
from fanin.link import LinkConfig
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.glm.cosim import Cosim
from fanin.sim.network import NetworkConfig
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

WORKERS = 2
EPOCHS = 10  # enough frames for every fault to strike
BATCH = 16
NODE = PRESETS["tiny"]


@pytest.fixture(scope="module")
def cosim():
    return Cosim(NODE, workers=WORKERS, quiet=True)


@pytest.fixture(scope="module")
def problem():
    """A data set with a short last mini-batch and micro-batch, and the golden models of its epochs."""
    rng = np.random.default_rng(new_seed())
    shape = TrainShape(node=NODE, workers=WORKERS, samples=61, columns=41, batch=BATCH)
    features = rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)
    labels = (rng.integers(0, 2, shape.samples) << NODE.frac).astype(np.int32)
    run = {"loss": Loss.LOGISTIC, "rate": fixed.learning_rate(0.5 / BATCH), "epochs": EPOCHS}
    golden = [epoch.model for epoch in train(features, labels, shape, **run)]
    assert len({model.tobytes() for model in golden}) == EPOCHS
    return (shape, features, labels), run, golden


def check(result, golden):
    for model, expected in zip(result.models, golden, strict=True):
        np.testing.assert_array_equal(model, expected)


@pytest.mark.end_to_end
def test_the_model_of_every_epoch_is_the_golden_one(cosim, problem):
    data, run, golden = problem
    result = cosim.train(*data, **run)
    check(result, golden)
    micro_batches = data[0].micro_batches_per_epoch
    assert len(result.allreduce_ns) == WORKERS * EPOCHS * micro_batches
    for counters in result.counters:
        assert counters["micro_batches"] == EPOCHS * micro_batches
        assert counters["retransmissions"] == counters["duplicates"] == 0
        assert sum(result.cycles) == counters["cycles"]


@pytest.mark.parametrize("seed", [0, 1, *slow(*range(2, 10))])
def test_two_percent_each_of_loss_duplication_reordering_and_corruption_change_no_bit(cosim, problem, seed):
    data, run, golden = problem
    faults = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)
    result = cosim.train(*data, **run, network=NetworkConfig(link=faults, seed=seed, timeout_ns=3000))
    check(result, golden)
    assert sum(counters["retransmissions"] for counters in result.counters) > 0
    links = [way for link in result.raw.links for way in link.values()]
    for fault in ("dropped", "duplicated", "reordered", "corrupted"):
        assert sum(way[fault] for way in links) > 0
    assert sum(way["fcs_errors"] for way in links) == sum(way["corrupted"] for way in links)
    for counters, link in zip(result.counters, result.raw.links, strict=True):
        assert counters["bad_mac"] == link["down"]["fcs_errors"]


def test_a_premature_timeout_changes_no_bit(cosim, problem):
    data, run, golden = problem
    result = cosim.train(*data, **run, network=NetworkConfig(timeout_ns=500))  # a round trip takes more
    check(result, golden)
    assert min(counters["retransmissions"] for counters in result.counters) > 0
    assert result.raw.jobs[1]["duplicate"] > 0


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig(timeout_ns=500),
        NetworkConfig(
            link=LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02), seed=1, timeout_ns=1500
        ),
    ],
    ids=["premature timeouts", "faults"],
)
def test_counters_of_nodes_links_and_switch_add_up(cosim, problem, network):
    """They are read when all that was sent has arrived; before, an answer may be on its way."""
    data, run, _ = problem
    result = cosim.train(*data, **run, network=network)
    raw, nodes, job = result.raw, result.counters, result.raw.jobs[1]
    operations = EPOCHS * data[0].micro_batches_per_epoch
    sent = [node["agg_sent"] + node["ack_sent"] + node["retransmissions"] for node in nodes]
    taken = ("results", "confirms", "duplicates", "stale")
    received = [sum(node[name] for name in node if name in taken or name.startswith("bad_")) for node in nodes]

    def arrived(way):
        return way["frames"] - way["dropped"] + way["duplicated"]

    assert (
        [node["agg_sent"] for node in nodes] == [node["ack_sent"] for node in nodes] == [operations] * WORKERS
    )
    assert sum(raw.frames.values()) == sum(sent) > 2 * WORKERS * operations
    assert sent == [link["up"]["frames"] for link in raw.links]
    assert received == [arrived(link["down"]) for link in raw.links]
    # What reached the switch it took in or refused, and what it sent are full rounds and single answers.
    handled = sum(job[name] for name in ("aggregated", "acknowledged", "duplicate", "stale"))
    refused = raw.switch["malformed"] + raw.switch["foreign"]
    whole = sum(arrived(link["up"]) - link["up"]["fcs_errors"] for link in raw.links)
    assert handled + refused == whole
    answers = WORKERS * (job["results"] + job["confirms"]) + job["replies"]
    assert answers == sum(link["down"]["frames"] for link in raw.links)


def test_the_timeline_follows_every_micro_batch(cosim, problem):
    data, run, _ = problem
    timeline = cosim.train(*data, **run).timeline
    assert (np.diff(timeline.cycle.astype(np.int64)) >= 0).all()
    order = ["forward_first", "forward_last", "pa", "agg", "fa", "backward_first", "backward_last"]
    for node in range(WORKERS):
        cycles = [
            timeline.cycle[(timeline.node == node) & (timeline.event == timeline.names.index(name))]
            for name in order
        ]
        assert {len(column) for column in cycles} == {EPOCHS * data[0].micro_batches_per_epoch}
        for before, after in pairwise(cycles):
            assert (before <= after).all()


def test_a_dead_network_stops_every_node_with_timeout_and_says_how_far_packets_came(cosim, problem):
    data, run, _ = problem
    network = NetworkConfig(link=LinkConfig(drop=1), timeout_ns=1000, retries=3)
    with pytest.raises(
        SimulationFailed,
        match=r"stopped at cycle .*: TIMEOUT: a packet stayed .*; node 0: AGG left the node; node 1: ",
    ):
        cosim.train(*data, **run, network=network)


def test_progress_ends_with_all_operations_of_all_nodes(cosim, problem):
    data, run, _ = problem
    seen = []
    cosim.train(*data, **run, progress=seen.append)
    assert seen[-1].phases == EPOCHS + 3  # configure, end, count
    assert seen[-1].operations == WORKERS * EPOCHS * data[0].micro_batches_per_epoch
    assert [p.cycle for p in seen] == sorted(p.cycle for p in seen)


def test_memories_that_repeat_a_part_hold_the_whole(cosim, problem):
    (_, features, labels), run, _ = problem
    part = TrainShape(node=NODE, workers=WORKERS, samples=24, columns=41, batch=BATCH)
    shape, run = replace(part, samples=72), run | {"epochs": 2}
    golden = train(np.tile(features[:24], (3, 1)), np.tile(labels[:24], 3), shape, **run)
    result = cosim.train(shape, features[:24], labels[:24], part=part, **run)
    check(result, [epoch.model for epoch in golden])
    with pytest.raises(ValueError, match="part must be a whole share of 10 micro-batches"):
        cosim.train(replace(part, samples=80), features[:24], labels[:24], part=part, **run)


def test_numbers_that_do_not_fit_are_refused(cosim, problem):
    (_, *data), run, _ = problem
    other = TrainShape(node=NODE, workers=1, samples=61, columns=20, batch=BATCH)
    with pytest.raises(ValueError, match="this number of workers"):
        cosim.train(other, *data, **run)
    with pytest.raises(InputError, match="clock_mhz must be in"):
        Cosim(NODE, workers=1, clock_mhz=0)
