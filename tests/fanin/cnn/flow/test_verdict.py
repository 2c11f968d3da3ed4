"""A build that would stop is found, and what it would stop at is said."""

from dataclasses import replace

import pytest

from fanin.base.errors import InputError
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.flow.node import Sizes
from fanin.cnn.flow.sizes import SPARE_TRANSFERS, Flow
from fanin.cnn.flow.verdict import Stream, check_liveness, determine_liveness
from fanin.planner.model import dsl
from fanin.planner.plan.network import unplanned
from tests.fanin.cnn.flow.turns import CONCAT, TURNS

RESIDUAL = EXAMPLES["residual"]
SIZES = Sizes.of(Flow(RESIDUAL))
ADD = next(index for index, stage in enumerate(RESIDUAL.stages) if stage.name == "add")
BOUND = 23  #: transfers of the FIFO beside two convolutions that the node needs: tests/sim/cnn/test_cosim.py


def with_depth(way, depth):
    return replace(SIZES, **{way: {**getattr(SIZES, way), (ADD, 1): depth}})


@pytest.mark.parametrize("name", EXAMPLES)
def test_builds_of_the_flow_models_sizes_never_stop(name):
    network = EXAMPLES[name]
    assert determine_liveness(network, Sizes.of(Flow(network))).deadlock is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_ring_of_one_frame_is_slow_but_does_not_stop(name):
    sizes = Sizes.of(Flow(EXAMPLES[name]))
    assert (
        determine_liveness(EXAMPLES[name], replace(sizes, rings=dict.fromkeys(sizes.rings, 1))).deadlock is None
    )


@pytest.mark.parametrize("way", ["skews", "gradient_skews"])
def test_a_fifo_beside_windows_one_transfer_below_its_bound_stops_the_node(way):
    assert determine_liveness(RESIDUAL, with_depth(way, BOUND)).deadlock is None
    stop = determine_liveness(RESIDUAL, with_depth(way, BOUND - 1)).deadlock
    assert stop is not None
    assert stop.stream == Stream(RESIDUAL.images)


def test_the_circle_is_said_in_one_line():
    with pytest.raises(InputError) as error:
        check_liveness(RESIDUAL, with_depth("skews", BOUND - 1))
    assert str(error.value) == (
        "residual would stop: the FIFO of relu1 → add is full while words are awaited from "
        "norm2 → add, norm2, conv2 → norm2, conv2, relu1 → conv2, relu1"
    )


def test_on_the_way_back_the_fork_waits():
    stop = determine_liveness(RESIDUAL, with_depth("gradient_skews", BOUND - 1)).deadlock
    assert "the FIFO of add → relu1" in stop.full
    assert {"conv2", "norm2"} <= set(stop.empty)


@pytest.mark.parametrize("way", ["skews", "gradient_skews"])
def test_what_takes_turns_stops_the_node_unless_a_position_waits(way):
    """In RTL, too: tests/sim/cnn/test_cosim.py."""
    sizes = Sizes.of(Flow(TURNS))
    assert determine_liveness(TURNS, sizes).deadlock is None
    held = {
        edge: SPARE_TRANSFERS if edge[0] == CONCAT else depth for edge, depth in getattr(sizes, way).items()
    }
    assert determine_liveness(TURNS, replace(sizes, **{way: held})).deadlock is not None


def test_one_map_twice_side_by_side_does_not_stop():
    with dsl.new_model() as builder:
        y = dsl.relu(dsl.conv(64, 1, 1, dsl.add_input("x", [3, 3, 1])))
        y = dsl.dense(2, dsl.global_avg_pool(dsl.concat(y, y)))
        dsl.add_output("o", dsl.soft_cross_loss(y, dsl.add_input("l", [2])))
        network = unplanned(builder.finish("twice", "test"))
    assert determine_liveness(network, Sizes.of(Flow(network))).deadlock is None
