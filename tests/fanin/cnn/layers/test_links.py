"""Adders and queues that a layer's place in the graph adds to its cost, beside those of a build."""

from dataclasses import replace
from math import ceil

import pytest

from fanin.cnn.examples import EXAMPLES
from fanin.cnn.facts import Network, Stage
from fanin.cnn.flow.link import Wiring
from fanin.cnn.flow.sizes import SPARE_TRANSFERS, Flow
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.concat import Concat
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.family import family
from fanin.cnn.layers.layer import Parallelism, Storage
from fanin.cnn.layers.links import NO_CONTEXT, GraphContext, graph_contexts
from fanin.cnn.parts import PlacedNetwork
from fanin.planner.model import dsl
from fanin.planner.model.load import load_model
from fanin.planner.plan.network import unplanned
from tests.fanin.cnn.flow.turns import TURNS


def links(network):
    return graph_contexts(
        [stage.layer for stage in network.stages], [stage.sources for stage in network.stages]
    )


def widened(name, most):
    """The network of a shipped model whose layers have up to ``most`` of each parallelism."""
    stages = []
    for stage in unplanned(load_model(name)).stages:
        fitting = [
            p for p in stage.layer.parallelisms() if max(p.pic, p.poc, p.ph) <= most and max(p.pi, p.po) <= most
        ]
        wide = max(fitting, key=lambda p: (p.pic * p.poc * p.ph, p.ph, p.pi * p.po), default=Parallelism())
        stages.append(Stage(stage.name, stage.layer, wide, stage.sources))
    return Network(name, tuple(stages))


NETWORKS = {
    **{name: EXAMPLES[name] for name in ("residual", "pools")},
    "turns": TURNS,
    "turns 1": Network("turns", tuple(replace(stage, parallelism=Parallelism()) for stage in TURNS.stages)),
    **{f"{name} {most}": widened(name, most) for name in ("listing1", "digits_cnn") for most in (1, 2, 4, 8)},
}


def apart(network):
    """The flow of a network with its first join on another device of a plan: both branches pass one link."""
    join = next(n for n, stage in enumerate(network.stages) if isinstance(stage.layer, (Add, Concat)))
    devices = tuple("b" if n == join else "a" for n in range(len(network.stages)))
    return PlacedNetwork(network, devices, wiring=Wiring(100e6, dict.fromkeys("ab", 40e9))).flow


@pytest.mark.parametrize("flow_of", [Flow, apart], ids=["together", "apart"])
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_together_queues_hold_no_less_than_those_of_the_flow_model(network, flow_of):
    stages, flow = network.stages, flow_of(network)
    forward = sum(
        (transfers - SPARE_TRANSFERS) * flow.lanes(edge, forward=True) for edge, transfers in flow.skews.items()
    )
    backward = sum(
        (transfers - SPARE_TRANSFERS) * flow.lanes(edge, forward=False)
        for edge, transfers in flow.gradient_skews.items()
    )
    waits, returns = 0, 0
    for stage, linked in zip(stages, links(network), strict=True):
        depths = [queue.depth for queue in linked.queues(stage.layer, stage.parallelism)]
        waits += sum(depths[: len(linked.waiting_maps)])
        returns += sum(depths[len(linked.waiting_maps) :])
    assert 0 < forward <= waits <= 8 * forward
    assert 0 < backward <= returns <= 8 * backward


def test_what_waits_is_the_words_of_the_other_branch():
    with dsl.new_model() as builder:
        source = dsl.relu(dsl.conv(4, 3, 1, dsl.add_input("in", [6, 6, 3])))
        dsl.add_output("out", dsl.add(source, dsl.bias(dsl.conv(4, 3, 1, source))))
        model = builder.finish("model", "model.py")
    found = dict(zip([node.name for node in model.nodes], model.contexts, strict=True))
    words = 6 * 6 * 4
    assert found["relu1"] == GraphContext(sums=1)
    assert found["conv2"] == found["bias1"] == GraphContext(waiting_maps=(words,), waiting_gradients=(words,))
    assert all(found[name] == NO_CONTEXT for name in ("in", "conv1", "add1", "out"))


def test_sums_and_queues_are_part_of_the_cost():
    with dsl.new_model() as builder:
        dsl.add_output("out", dsl.conv(4, 3, 1, dsl.add_input("in", [8, 8, 2])))
        layer = builder.finish("model", "model.py").nodes[1].layer
    assert isinstance(layer, Conv)
    p, arria10 = layer.with_streams(Parallelism(poc=2)), family("arria10")
    alone = layer.cost(p, Storage.CHIP, arria10)
    there = GraphContext(sums=2, waiting_maps=(256, 512), waiting_gradients=(256,)).cost(
        layer, p, Storage.CHIP, arria10
    )
    forward, backward = layer.lags(p)
    assert there.dsp == alone.dsp + 2 * p.po
    depths = ceil(forward * 256) + ceil(forward * 512) + ceil(backward * 256)
    assert there.ram_bits == alone.ram_bits + 32 * depths
