"""``fanin bench plan --part layers``: two convolutions reach the throughput of NADA's table I."""

import json

from fanin.cli.main import main
from fanin.evaluation.bench import plan_layers
from fanin.planner.cluster import load_cluster
from fanin.planner.model.load import load_model
from fanin.planner.search.choices import pareto_front


def test_both_layers_reach_the_papers_throughput(capsys):
    assert main(["bench", "plan", "--part", "layers", "--json"]) == 0
    found = {row["name"]: row["value"] for row in json.loads(capsys.readouterr().out)["figures"]}
    assert found["listing 1: φ, throughput"] == 3906.25
    assert found["listing 1: ψ, throughput"] >= 3906.25
    assert len(found) == 8


def test_no_choice_with_fewer_dsp_blocks_is_fast_enough():
    model, part = load_model(plan_layers.MODEL), load_cluster(plan_layers.CLUSTER).devices[0].part
    for name in plan_layers.LAYERS.values():
        layer = model.nodes[model.by_name[name]].layer
        taken = plan_layers.at_target(layer, part)
        fewer = [each for each in pareto_front(layer, part) if each.cost.dsp < taken.cost.dsp]
        assert fewer
        assert all(part.clock / each.cost.cycles < plan_layers.TARGET for each in fewer)
