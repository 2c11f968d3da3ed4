"""Plans over devices and model parallelism."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import pytest

from fanin.base.errors import CheckFailed
from fanin.planner.cluster import Cluster, Device, load_cluster
from fanin.planner.model import dsl
from fanin.planner.plan import sweep
from fanin.planner.search.limits import Limits
from tests.planner.exhaustive import Exhaustive

FACTORS = (1, 2, 4)
PART = load_cluster("arria10x1").devices[0].part


def _model(last):
    with dsl.new_model() as builder:
        image = dsl.relu(dsl.add_input("in", [8, 8, 4]))
        wide = dsl.conv(8, 1, 1, image, name="expand")
        thin = dsl.conv(4, 1, 1, dsl.dwconv(3, 1, wide), name="project")
        dsl.add_output("out", last(thin))
        return builder.finish("small", "small.py")


MODELS = {
    "chain": _model(lambda thin: dsl.dense(4, thin)),
    "pool": _model(lambda thin: dsl.global_avg_pool(dsl.conv(8, 3, 2, thin))),
}


def _cluster(**fields):
    part = replace(PART, dsp=60, connections=4, **fields)
    return Cluster("four", tuple(Device(f"fpga{n}", part) for n in range(4)))


def _plans(model, cluster):
    found = sweep.sweep(model, cluster, (3, 1, 2, 4), FACTORS, Limits(seconds=5, workers=1))
    return {(count, ways): plan for count, ways, plan in found}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fields", [{}, {"dram": 10**9}, {"network": 10**9}])
def test_throughput_never_falls_with_devices_or_parallelism_and_bounds_are_bounds(name, fields):
    model, cluster = MODELS[name], _cluster(**fields)
    plans = _plans(model, cluster)
    assert set(plans) == {(count, ways) for count in (1, 2, 3, 4) for ways in FACTORS}
    for ways in FACTORS:
        for fewer, more in pairwise(plans[count, ways].throughput for count in (1, 2, 3, 4)):
            assert fewer <= more
    for count in (1, 2, 3, 4):
        for less, more in pairwise(plans[count, ways].throughput for ways in FACTORS):
            assert less <= more
    for (count, ways), plan in plans.items():
        assert len(plan.instance.cluster.devices) == count
        assert plan.split in FACTORS[: FACTORS.index(ways) + 1]
        assert plan.bound >= plan.throughput
    for count in (1, 2, 3):
        best = Exhaustive(model, cluster.first(count)).best()
        assert plans[count, 1].throughput == 1 / best
        assert plans[count, 1].bound == 1 / best
        assert plans[count, 2].bound >= 1 / best


def test_parallelism_gains_where_a_group_is_too_large_for_a_device():
    plans = _plans(MODELS["chain"], _cluster())
    assert plans[4, 2].throughput > plans[4, 1].throughput
    assert plans[4, 2].split == 2


def test_plans_that_are_known_stay_where_none_is_found(monkeypatch):
    model, cluster = MODELS["chain"], _cluster()
    known = sweep.best_plan(model, cluster, 1, Limits(seconds=5, workers=1))

    def none(*args, **kwargs):
        raise CheckFailed("no placement found")

    monkeypatch.setattr(sweep, "make_plan", none)
    plan = sweep.best_plan(model, cluster, 2, Limits(seconds=5, workers=1), equal=[known])
    assert plan.placement == known.placement
    assert plan.bound > Fraction(known.bound)  # nobody knows what the parts could do
    with pytest.raises(CheckFailed):
        sweep.best_plan(model, cluster, 1, Limits(seconds=5, workers=1))


def test_a_plan_that_keeps_more_in_dram_than_a_device_has_is_none():
    """A batch of frames lies at the host."""

    def keeps(dram, batch):
        cluster, limits = _cluster(dram_bytes=dram), Limits(seconds=5, workers=1)
        ((*_, plan),) = sweep.sweep(MODELS["chain"], cluster, [1], [1], limits, batch=batch)
        return plan.stored[0]

    kept = keeps(None, 100)
    assert kept == keeps(None, 10) + 90 * (4 * 8 * 8 * 4 + 64)
    assert keeps(kept, 100) == kept
    with pytest.raises(CheckFailed, match=f"keeps {kept:,} bytes in DRAM, of {kept - 1:,}"):
        keeps(kept - 1, 100)
