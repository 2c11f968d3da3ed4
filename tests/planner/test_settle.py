"""Among placements of the best throughput, the one that is told apart by a rule."""

from dataclasses import replace

import pytest

from fanin.cnn.layers.family import family
from fanin.planner.cluster import Cluster, Device, Part
from fanin.planner.model import dsl
from fanin.planner.plan.plan import make_plan
from fanin.planner.search.instance import Instance
from fanin.planner.search.limits import Limits
from tests.planner.exhaustive import Exhaustive, pinned_nodes, random_case

CASES = 100


def _cases():
    for seed in range(CASES):
        model, cluster = random_case(seed, 6)
        search = Exhaustive(model, cluster)
        if len(pinned_nodes(model)) < len(model.nodes) and search.best() is not None:
            yield seed, model, cluster, search


def test_of_equal_plans_the_one_of_fewest_devices_least_cut_bits_and_first_devices_is_taken():
    chosen = 0
    for seed, model, cluster, search in _cases():
        free = [n for n in range(len(model.nodes)) if n not in pinned_nodes(model)]

        def rank(on, search=search, free=free):
            return len(set(on)), search.cut_bits(on), [on[n] for n in free]

        optimal = sorted(search.optimal(), key=rank)
        plan = make_plan(Instance(model, cluster), Limits(seconds=20, workers=1))
        statistics = dict(plan.statistics)
        proved = [
            statistics[k] for k in ("fewest_devices_proved", "least_cut_bits_proved", "first_in_order_proved")
        ]
        assert proved == [True, True, True], seed
        assert plan.placement.devices == optimal[0], seed
        chosen += len(optimal) > 1
    assert chosen > 10


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_and_seeds_settle_on_the_same_devices(workers):
    for _, model, cluster, search in list(_cases())[:10]:
        plans = [make_plan(Instance(model, cluster), Limits(20, workers, seed)) for seed in range(2)]
        assert plans[0].placement.devices == plans[1].placement.devices
        assert plans[0].placement.devices in search.optimal()


def test_equal_devices_are_named_in_the_order_of_their_first_layers():
    for seed, model, cluster, _ in _cases():
        instance = Instance(model, cluster)
        placement = make_plan(instance, Limits(seconds=20, workers=1)).placement
        assert instance.canonical(placement) == placement, seed


def test_equal_plans_whose_connections_can_have_no_priorities_are_none():
    """Two connections to a device of two priorities and two to one of three are four of three priorities."""
    with dsl.new_model() as builder:
        last = dsl.conv(3, 3, 1, dsl.add_input("in", [6, 6, 3]))
        last = dsl.conv(8, 1, 2, dsl.conv(2, 3, 1, last))
        dsl.add_output("out", dsl.bias(last))
        model = builder.finish("chain", "chain.py")
    part = Part(family("ecp5"), 30, None, 115_000, None, None, 9 * 10**8, 8 * 10**9, 125 * 10**6, 8)

    def cluster(*connections):
        parts = [replace(part, connections=count) for count in connections]
        return Cluster("three", tuple(Device(f"fpga{n}", p) for n, p in enumerate(parts)), 2)

    search = Exhaustive(model, cluster(4, 2, 3))
    assert len(search.optimal()) < len(Exhaustive(model, cluster(8, 8, 8)).optimal())
    plan = make_plan(Instance(model, cluster(4, 2, 3)), Limits(seconds=5, workers=1))
    assert dict(plan.statistics)["first_in_order_proved"]
    assert plan.placement.devices == min(
        search.optimal(), key=lambda on: (len(set(on)), search.cut_bits(on), on)
    )
