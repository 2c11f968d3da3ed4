"""``fanin bench ring``: the model's figures beside the papers', its limits, and figure 4b."""

import json
from dataclasses import replace

import pytest

from fanin.cli.bench import ring
from fanin.cli.main import main
from fanin.sim.ring import smart_nic_paper


def test_figure_4b_and_all_published_figures_are_printed(capsys, tmp_path):
    assert main(["bench", "ring", "--models", "-o", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    facts = [rows[fact.name] for fact in smart_nic_paper.FACTS]
    assert sum(row["limit"] is not None for row in facts) == 8
    assert rows["B = 448, 32 nodes, smart NIC with BFP"]["value"] == pytest.approx(119, abs=1)
    assert rows["INCEPTIONN, figure 15: WA, 4 workers"]["value"] == 1
    figures = json.loads((tmp_path / "smart-nic.json").read_text())
    for figure in figures:
        assert list(figure["series"]) == ["smart NIC with BFP", "smart NIC", "conventional NIC", "ideal"]
        for points in figure["series"].values():
            assert [nodes for nodes, _ in points] == list(ring.NODES)
            assert points[0] == [1, 1]
            assert [y for _, y in points] == sorted(y for _, y in points)
    assert (tmp_path / "smart-nic.png").read_bytes().startswith(b"\x89PNG")


def test_a_published_figure_that_is_predicted_badly_is_a_missed_limit():
    fact = next(fact for fact in smart_nic_paper.FACTS if not fact.fitted)
    good = replace(fact, model=lambda inputs: 1.09 * fact.published)
    bad = replace(fact, model=lambda inputs: 0.89 * fact.published)
    assert ring._fact(good, smart_nic_paper.fitted()).ok
    assert not ring._fact(bad, smart_nic_paper.fitted()).ok


def test_figures_that_are_not_met_have_no_limit_but_say_so():
    (fact,) = (fact for fact in smart_nic_paper.FACTS if fact.name in ring.NOT_MET)
    row = ring._fact(fact, smart_nic_paper.fitted())
    assert (row.limit, row.unit) == (None, "% off")
    assert row.note.endswith("the paper: 50; predicted, not met")
