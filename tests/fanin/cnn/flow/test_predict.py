"""Coarse graphs take as long as those word by word; what a batch costs does not depend on its size."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.flow.coarse import coarsen
from fanin.cnn.flow.link import Link, Losses, Wiring
from fanin.cnn.flow.node import NodeGraph, Sizes
from fanin.cnn.flow.predict import predict, prediction
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.layer import Parallelism
from fanin.cnn.parts import PlacedNetwork
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import unplanned
from fanin.wire.connection import MAC_WIDTH, RowFrames
from tests.fanin.cnn.flow.turns import CONCAT, PERIOD, TURNS

RESIDUAL = EXAMPLES["residual"]


def sizes_of(network, period=0):
    return Sizes.of(Flow(network, period))


@pytest.mark.parametrize("name", ["tiny", "pools", "streamed"])
@pytest.mark.parametrize("groups", [16, 36])
def test_a_coarse_graph_takes_as_long(name, groups):
    network = EXAMPLES[name]
    period = Flow(network).period
    node = NodeGraph(network, sizes_of(network), 12, period)
    fine, few = prediction(node, node.graph, 2), prediction(node, coarsen(node.graph, groups), 2)
    assert few.period == pytest.approx(fine.period)
    assert few.drain == pytest.approx(fine.drain, rel=0.1)
    assert few.job == pytest.approx(fine.job, rel=0.02)
    assert 12 * few.period + few.exposed == pytest.approx(12 * fine.period + fine.exposed, rel=0.02)


def test_what_a_batch_exposes_is_drain_and_update_at_most_whatever_its_size():
    found = [predict(RESIDUAL, sizes_of(RESIDUAL), batch=batch) for batch in (12, 40)]
    assert found[0].exposed == pytest.approx(found[1].exposed, rel=0.02)
    assert 0 < found[0].exposed < found[0].drain + found[0].update
    assert found[0].frames_per_cycle(40) == pytest.approx(40 / (40 * 486 + found[0].exposed))


def test_a_cut_edge_adds_its_latency_both_ways():
    """A row is 24 words, two a cycle, and enters the network when the last of them have come."""
    norm = next(index for index, stage in enumerate(RESIDUAL.stages) if stage.name == "norm1")

    def job(link=None):
        sizes = replace(sizes_of(RESIDUAL), links={(norm, 0): link} if link else {})
        return predict(RESIDUAL, sizes, batch=1, batches=1).job

    short, long = (Link(RowFrames(24, MAC_WIDTH), 6, 512, wire) for wire in (0, 1000))
    assert job(long) - job(short) == 2000
    assert 0 < job(short) - job() - 2 * short.latency <= 2 * 24


class LastRow(Losses):
    """Losses of each map's last row, late by a fixed time."""

    def late(self, latency, answer):
        return np.array([0, 0, 0, 0, 0, 1000.0])


def test_a_lost_frame_is_late_both_ways():
    """The last row of gradients is not needed at once."""
    norm = next(index for index, stage in enumerate(RESIDUAL.stages) if stage.name == "norm1")

    def job(losses):
        link = Link(RowFrames(24, MAC_WIDTH), 6, 512, 0, losses)
        return predict(RESIDUAL, replace(sizes_of(RESIDUAL), links={(norm, 0): link}), batch=1, batches=1).job

    assert 1900 <= job(LastRow(0, 0, (0,))) - job(None) <= 2000
    assert job(Losses(0, 100, (0,))) == job(None)


def test_a_lost_frame_is_repeated_when_the_next_answer_comes_or_its_timer_ends():
    for interval, wait in ((30, 30), (500, 70 + 16)):
        late = Losses(0.25, interval, (1, 2)).late(latency=100, answer=40)
        assert set(late[late > 0] % (wait + 140)) == {0}  # a lost repetition costs as much again
        assert np.mean(late > 0) == pytest.approx(0.25, abs=0.02)
        assert np.mean(late >= 2 * (wait + 140)) == pytest.approx(0.0625, abs=0.01)


def test_more_loss_takes_longer():
    placement = PlacedNetwork(EXAMPLES["tiny"], tuple("aaabcaaaaa"))
    sizes = Sizes.of(placement.flow)
    times = [
        predict(placement.network, sizes.with_losses(drop, 324, 1), batch=32).job for drop in (0, 0.01, 0.05)
    ]
    assert times == sorted(times)
    assert times[0] < 0.97 * times[1] < 0.9 * times[2]


def test_sizes_with_links_keep_the_period_where_one_branch_passes_two_of_them():
    """conv2 and norm2 on another device, relu1's way to the join on the first."""
    placement = PlacedNetwork(RESIDUAL, tuple("aaaaabbaaaaaaa"), wiring=Wiring(clock=1e9))
    sizes, local = Sizes.of(placement.flow), sizes_of(RESIDUAL)
    norms = 486  # cycles of a frame: of a position 9, since two words are collected for its 8
    assert predict(RESIDUAL, sizes, batch=40).period == pytest.approx(norms)
    assert predict(RESIDUAL, replace(sizes, skews=local.skews), batch=40).period > 2 * norms
    assert predict(RESIDUAL, replace(sizes, gradient_skews=local.gradient_skews), batch=40).period > 1.1 * norms


def test_a_slower_clock_stretches_all_cycles():
    node = NodeGraph(RESIDUAL, sizes_of(RESIDUAL), 3)
    slow = node.graph.scaled({actor.owner: 2.0 for actor in node.graph.actors})
    assert prediction(node, slow, 1).results[-1] == 2 * prediction(node, node.graph, 1).results[-1]


def digits(**parallel):
    """The shipped network as narrow as it can be, but for these convolutions: pic, poc, ph."""
    plain = unplanned(load_model("digits_cnn"))
    stages = []
    for stage in plain.stages:
        if stage.name in parallel:
            assert isinstance(stage.layer, Conv)
            p = stage.layer.with_streams(Parallelism(*parallel[stage.name]))
            stage = replace(stage, parallelism=replace(p, pi=1, po=1))
        stages.append(stage)
    return replace(plain, stages=tuple(stages))


def test_a_convolution_that_cannot_wait_is_not_held_up_by_the_pause_of_normalisation():
    """As planned for three devices: conv1 takes all of the period, and norm1 pauses for 236 cycles of it."""
    network = digits(conv1=(1, 2, 2), conv2=(1, 6, 4), conv3=(3, 6, 2), conv4=(1, 3, 1))
    norm = next(index for index, stage in enumerate(network.stages) if stage.name == "online_norm1")
    sizes, period = sizes_of(network), Flow(network).period
    assert period == 2304
    assert sizes.skews[norm, 0] == 6 * 16 + 16  # 16 words a position that comes in the pause, and spare
    assert predict(network, sizes, batch=16).period == pytest.approx(period)
    without = replace(sizes, skews={**sizes.skews, (norm, 0): 0})
    assert predict(network, without, batch=16).period == pytest.approx(period + 179)


def test_a_join_hands_gradients_on_no_faster_than_both_branches_take_them():
    """As planned for one device: conv3 waits for whole frames, which conv4 beside it takes block by block."""
    network = digits(conv1=(1, 8, 1), conv2=(2, 8, 2), conv3=(1, 12, 4), conv4=(2, 2, 1))
    fork = next(index for index, stage in enumerate(network.stages) if stage.name == "conv4")
    sizes, period = sizes_of(network), Flow(network).period
    assert period == 1728

    def taking(depth):
        smaller = replace(sizes, gradient_skews={**sizes.gradient_skews, (fork, 0): depth})
        return predict(network, smaller, batch=16).period

    assert taking(int(0.9 * sizes.gradient_skews[fork, 0])) == pytest.approx(period)
    assert taking(1900) > 1.01 * period  # of gradients: results come at the full rate until rings are full


def test_what_takes_turns_keeps_pace_with_neighbours_that_take_half_as_many_words_a_cycle():
    """A turn takes as long as its own words, not as a neighbour's, since a position waits on each side."""
    sizes = sizes_of(TURNS)
    assert Flow(TURNS).period == PERIOD
    assert predict(TURNS, sizes, batch=12).period == pytest.approx(PERIOD)
    further_back = {edge: 0 if edge[0] == CONCAT else 80 for edge in sizes.gradient_skews}
    assert predict(TURNS, replace(sizes, gradient_skews=further_back), batch=12).period > 1.5 * PERIOD


def test_what_would_stop_is_said_in_one_line():
    smaller = replace(sizes_of(TURNS), skews=dict.fromkeys(sizes_of(TURNS).skews, 1))
    with pytest.raises(InputError, match=r"^turns would stop: .* are full while words are awaited from .*$"):
        predict(TURNS, smaller)
