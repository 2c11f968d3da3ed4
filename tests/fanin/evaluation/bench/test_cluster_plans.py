"""The timed model of plans beside what was planned, and how their search ended."""

import json
from dataclasses import replace

import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import cluster_plans
from fanin.planner.cluster import load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.plan.plan import make_plan
from fanin.planner.search.instance import Instance
from fanin.planner.search.limits import Limits


@pytest.fixture(scope="module")
def digits():
    """A small plan, which stands for those of large networks."""
    instance = Instance(load_model("digits_cnn"), load_cluster("arria10x1"))
    return replace(make_plan(instance, Limits(seconds=20, workers=1)), batch=32)


def test_figures_stand_beside_the_plans_and_say_how_the_search_ended(digits, monkeypatch, capsys):
    """On six devices two parts are better; four are nowhere."""

    def found(model, cluster, counts, factors, seconds):
        return [(n, k, replace(digits, split=2 if k > 1 and n > 4 else 1)) for k in factors for n in counts]

    monkeypatch.setattr(cluster_plans, "plans_of", found)
    monkeypatch.setattr(cluster_plans, "DEVICES", (3, 6))
    assert main(["bench", "cluster", "--part", "plans", "--json"]) == 0
    figures = {figure["name"]: figure["value"] for figure in json.loads(capsys.readouterr().out)["figures"]}
    rate = 100e6 / 733
    assert figures["MobileNetV2 on six Arria 10: planned"] == pytest.approx(rate, rel=1e-3)
    assert figures["MobileNetV2 on six Arria 10: predicted"] == pytest.approx(rate, rel=1e-3)
    assert 0.5 * rate < figures["MobileNetV2 on six Arria 10: predicted with updates, batch 32"] < rate
    assert figures["a device of 6, beside one of 3"] == pytest.approx(0.5)
    assert [name for name in figures if name.startswith("example CNN") and name.endswith("predicted")] == [
        "example CNN on 3: predicted",
        "example CNN on 6: predicted",
        "example CNN on 6, MP2: predicted",
    ]


def test_a_prediction_far_below_the_plan_misses_its_limit(digits):
    one = cluster_plans.TimedPlan(digits, 0.96 * float(digits.throughput), 1.0)
    assert not cluster_plans._prediction("a plan", "cluster.a_plan", one, "").ok
    assert cluster_plans._prediction(
        "a plan", "cluster.a_plan", replace(one, streaming=0.98 * float(digits.throughput)), ""
    ).ok


def test_a_search_that_ended_by_time_is_named(digits):
    def outcome(**changes):
        return cluster_plans.TimedPlan(replace(digits, **changes), 1.0, 1.0).search_outcome

    worse = digits.throughput * 2
    assert outcome(bound=digits.throughput) == "optimal"
    assert outcome(bound=worse, statistics=(("stopped_by_clock", True),)) == "its time was over, gap 100.0 %"
    assert outcome(bound=worse, statistics=(("stopped_by_clock", False),)) == "good enough, gap 100.0 %"
