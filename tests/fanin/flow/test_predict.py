"""Coarse graphs take as long as those word by word; what a batch costs does not depend on its size."""

import pytest

from fanin.cnn_examples import EXAMPLES
from fanin.flow.coarse import coarse
from fanin.flow.node import Link, NodeGraph, Sizes
from fanin.flow.predict import predict, prediction
from fanin.flow.sizes import Flow

RESIDUAL = EXAMPLES["residual"]


def sizes_of(network, period=0):
    return Sizes.of(Flow(network, period))


@pytest.mark.parametrize("name", ["tiny", "pools", "streamed"])
@pytest.mark.parametrize("groups", [16, 36])
def test_a_coarse_graph_takes_as_long(name, groups):
    network = EXAMPLES[name]
    period = Flow(network).period
    node = NodeGraph(network, sizes_of(network), 12, period)
    fine, few = prediction(node, node.graph, 2), prediction(node, coarse(node.graph, groups), 2)
    assert few.period == pytest.approx(fine.period)
    assert few.drain == pytest.approx(fine.drain, rel=0.1)
    assert few.job == pytest.approx(fine.job, rel=0.02)
    assert 12 * few.period + few.exposed == pytest.approx(12 * fine.period + fine.exposed, rel=0.02)


def test_what_a_batch_exposes_is_drain_and_update_at_most_whatever_its_size():
    found = [predict(RESIDUAL, sizes_of(RESIDUAL), batch=batch) for batch in (12, 40)]
    assert found[0].exposed == pytest.approx(found[1].exposed, rel=0.02)
    assert 0 < found[0].exposed < found[0].drain + found[0].update
    assert found[0].frames_per_cycle(40) == pytest.approx(40 / (40 * 530 + found[0].exposed))


def test_a_cut_edge_adds_its_latency_both_ways():
    norm = next(index for index, stage in enumerate(RESIDUAL.stages) if stage.name == "norm1")
    links = {(norm, 0): Link(latency=1000, pace=1, room=4096)}
    near, apart = (
        prediction(node, node.graph, 1)
        for node in (NodeGraph(RESIDUAL, sizes_of(RESIDUAL), 1, 0, cut) for cut in ({}, links))
    )
    assert apart.job - near.job == pytest.approx(2000, abs=4)


def test_a_slower_clock_stretches_all_cycles():
    node = NodeGraph(RESIDUAL, sizes_of(RESIDUAL), 3)
    slow = node.graph.scaled({actor.owner: 2.0 for actor in node.graph.actors})
    assert prediction(node, slow, 1).results[-1] == 2 * prediction(node, node.graph, 1).results[-1]
