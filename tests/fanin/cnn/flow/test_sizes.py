"""What FIFOs at joins and rings have to hold, against what windows need, counted one position at a time."""

from dataclasses import replace

import numpy as np
import pytest

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.sizes import SPARE_TRANSFERS, Flow
from fanin.cnn.layers.layer import ceil_div
from fanin.cnn.parts import PlacedNetwork
from fanin.planner.model import dsl
from fanin.planner.model.load import load_model
from tests.fanin.cnn.flow.turns import CHANNELS, CONCAT, TURNS


def network_of(model):
    """Each layer with the parallelism that comes first."""
    stages = [Stage(n.name, n.layer, next(n.layer.parallelisms()), n.sources) for n in model.nodes]
    return Network(model.name, tuple(stages))


def residual(main, size=12, channels=4):
    """A network in which ``main`` lies beside nothing; its join."""
    with dsl.new_model() as builder:
        x = dsl.relu(dsl.bias(dsl.conv(channels, 3, 1, dsl.add_input("input", [size, size, 1]))), name="fork")
        y = dsl.add(main(x), x, name="join")
        y = dsl.dense(3, dsl.global_avg_pool(y))
        y = dsl.soft_cross_loss(y, dsl.add_input("labels", [3]))
        dsl.add_output("output", y)
    return network_of(builder.finish("residual", "test"))


def needed(kernels, size):
    """Positions that the first of same-padded windows must have got before position k leaves the last."""
    need = np.arange(size * size)
    for kernel in reversed(kernels):
        reach = (kernel - 1) // 2
        row, column = np.divmod(need, size)
        need = np.minimum(row + reach, size - 1) * size + np.minimum(column + reach, size - 1)
        need = np.maximum.accumulate(need)
    return need + 1


def held(network, flow, port):
    """Positions for which the FIFO in front of the join has room, without what is spare."""
    join = next(i for i, s in enumerate(network.stages) if s.name == "join")
    source = network.stages[network.stages[join].sources[port]]
    each = ceil_div(source.layer.output.c, source.parallelism.po)
    return (flow.skews[join, port] - SPARE_TRANSFERS) / each


@pytest.mark.parametrize("kernels", [(3,), (3, 3), (5, 3), (1, 3, 1), (3, 3, 3, 3)])
def test_the_fifo_beside_windows_holds_what_they_need_before_they_give(kernels):
    def main(x):
        for kernel in kernels:
            x = dsl.conv(4, kernel, 1, x)
        return x

    network = residual(main)
    flow = Flow(network)
    least = int(np.max(needed(kernels, 12) - np.arange(144)))
    assert least <= held(network, flow, 1)
    assert held(network, flow, 1) <= least + 3 * 12 * len(kernels)  # a row in work, one leaving, pipelines
    assert held(network, flow, 0) == 0  # the slower branch waits for nothing


@pytest.mark.parametrize("pool", [dsl.max_pool, dsl.avg_pool], ids=lambda pool: pool.__name__)
def test_the_fifo_beside_a_pool_holds_what_its_windows_need(pool):
    network = residual(lambda x: pool(3, 1, x, padding="same"))
    least = int(np.max(needed((3,), 12) - np.arange(144)))
    assert least <= held(network, Flow(network), 1) <= least + 3 * 12


def test_the_fifo_beside_im2col_holds_what_its_windows_need():
    network = residual(lambda x: dsl.conv(4, 1, 1, dsl.im2col(3, 1, x)))
    least = int(np.max(needed((3,), 12) - np.arange(144)))
    assert least <= held(network, Flow(network), 1) <= least + 3 * 12


def test_the_way_back_holds_the_gradients_of_the_shorter_branch():
    network = residual(lambda x: dsl.conv(4, 3, 1, dsl.conv(4, 3, 1, x)))
    flow = Flow(network)
    names = {(network.stages[stage].name, port): words for (stage, port), words in flow.gradient_skews.items()}
    assert names["join", 1] - SPARE_TRANSFERS >= int(np.max(needed((3, 3), 12) - np.arange(144)))
    assert names["conv2", 0] == SPARE_TRANSFERS


@pytest.mark.parametrize(("way", "layer"), [("forward", dsl.online_norm), ("backward", dsl.bias)])
def test_what_adds_to_a_sum_takes_8_cycles_a_position(way, layer):
    network = residual(lambda x: layer(dsl.conv(4, 3, 1, x), name="slow"))
    wide = [
        replace(stage, parallelism=replace(stage.parallelism, pi=4, po=4)) if stage.name == "slow" else stage
        for stage in network.stages
    ]
    flow = Flow(replace(network, stages=tuple(wide)))
    at = next(index for index, stage in enumerate(wide) if stage.name == "slow")
    times = flow.forward[at] if way == "forward" else flow.backward[wide[at].sources[0]]
    assert np.min(np.diff(times)) >= 8


def test_a_branch_that_is_a_frame_late_holds_a_frame_more():
    def main(x):
        for _ in range(12):
            x = dsl.conv(4, 5, 1, x)
        return x

    network = residual(main, size=6)
    flow = Flow(network)
    join = next(stage for stage in network.stages if stage.name == "join")
    assert flow.forward[join.sources[0]][0] > flow.period
    assert held(network, flow, 1) > 36


@pytest.mark.parametrize("name", ["digits_cnn", "listing1", "example_cnn", "mobilenet_v2"])
def test_times_ascend_and_rings_shrink_towards_the_loss(name):
    network = network_of(load_model(name))
    flow = Flow(network)
    for times in (*flow.forward, *flow.backward):
        assert times is None or np.all(np.diff(times) >= 0)
    frames = list(flow.rings.values())
    assert min(frames) >= 3
    assert frames[0] == max(frames)
    slower = Flow(network, 2 * flow.period)
    assert slower.period == 2 * flow.period


def test_rings_hold_the_frames_that_are_on_their_way_over_links():
    network = EXAMPLES["tiny"]
    slow, fast = (
        PlacedNetwork(network, tuple("aaabcaaaaa"), wiring=Wiring(clock)).flow for clock in (1e8, 1e9)
    )
    edges = (3, 0), (4, 0), (5, 0)  # of which two lie behind the bias's ring, and one behind the relu's

    def later(*passed):
        cycles = sum(2 * (fast.links[edge].latency - slow.links[edge].latency) for edge in passed)
        return cycles / fast.period

    for stage, passed in (2, edges), (4, edges[2:]), (6, ()):
        assert fast.rings[stage] - slow.rings[stage] == pytest.approx(later(*passed), abs=1)


def test_a_position_of_each_input_waits_on_both_sides_of_what_takes_turns():
    """As wide as it takes them, though its neighbours give and take half as much at a time."""
    flow, transfers = Flow(TURNS), CHANNELS // TURNS.stages[CONCAT].parallelism.pi
    depths = {(CONCAT, port): transfers + SPARE_TRANSFERS for port in range(2)}
    assert flow.skews == depths
    assert {edge: depth for edge, depth in flow.gradient_skews.items() if edge[0] == CONCAT} == depths


def test_no_gradient_waits_for_what_does_not_learn():
    with dsl.new_model() as builder:
        x = dsl.add_input("input", [3, 3, 2])
        dsl.add_output("output", dsl.concat(x, dsl.conv(2, 1, 1, x)))
        network = network_of(builder.finish("model", "test"))
    assert {port for _, port in Flow(network).gradient_skews} <= {1}
