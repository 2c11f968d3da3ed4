"""``fanin bench ring``: the model's figures beside the papers', its limits, and the figures that it draws."""

import json
from dataclasses import replace

import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import ring, ring_rtl
from fanin.evaluation.bench import smart_nic_figures as figures
from fanin.evaluation.models import smart_nic_paper
from fanin.ring.facts import PRESETS
from fanin.sim.ring.timeline import makespan


def test_all_published_figures_are_printed_and_the_papers_figures_drawn(capsys, tmp_path):
    assert main(["bench", "ring", "--models", "-o", str(tmp_path), "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["figures"]}
    facts = [rows[fact.name] for fact in smart_nic_paper.FACTS]
    assert sum(row["limit"] is not None for row in facts) == 8
    assert rows["B = 448, 32 nodes, smart NIC with BFP"]["value"] == pytest.approx(119, abs=1)
    assert rows["INCEPTIONN, figure 15: WA, 4 workers"]["value"] == 1
    data = json.loads((tmp_path / "smart-nic.json").read_text())
    for curves in data["4b"].values():
        assert list(curves) == ["smart NIC with BFP", "smart NIC", "conventional NIC", "ideal"]
        for points in curves.values():
            assert [nodes for nodes, _ in points] == list(figures.NODES)
            assert points[0] == [1, 1]
            assert [y for _, y in points] == sorted(y for _, y in points)
    assert list(data["2b"]) == ["default", "ring", "Rabenseifner", "binomial gather, scatter", "ideal"]
    for figure in ("2", "3b", "4"):
        assert (tmp_path / f"smart-nic-{figure}.png").read_bytes().startswith(b"\x89PNG")


def test_bars_are_the_iteration_cut_into_parts():
    inputs = smart_nic_paper.fitted()
    for bars, spans in (
        (figures.figure_2a(inputs)["naive"], smart_nic_paper.naive(inputs, 1792, 6)),
        (figures.figure_4a(inputs)["conventional NIC"], smart_nic_paper.conventional(inputs, 448, 6)),
        (figures.figure_4a(inputs)["smart NIC"], smart_nic_paper.smart(inputs, 448, 6)),
    ):
        assert sum(bars.values()) == pytest.approx(1e3 * makespan(spans))
        assert min(bars.values()) >= 0


def test_what_a_library_chooses_is_the_fastest_scheme():
    curves = {name: dict(points) for name, points in figures.figure_2b(smart_nic_paper.fitted()).items()}
    for nodes in figures.SCHEME_NODES:
        schemes = [curves[name][nodes] for name in ("ring", "Rabenseifner", "binomial gather, scatter")]
        assert curves["default"][nodes] == max(schemes)


def test_a_published_figure_that_is_predicted_badly_is_a_missed_limit():
    fact = next(fact for fact in smart_nic_paper.FACTS if not fact.fitted)
    good = replace(fact, model=lambda inputs: 1.09 * fact.published)
    bad = replace(fact, model=lambda inputs: 0.89 * fact.published)
    assert ring._fact(good, smart_nic_paper.fitted()).ok
    assert not ring._fact(bad, smart_nic_paper.fitted()).ok


def test_figures_that_are_not_met_have_no_limit_but_say_so():
    (fact,) = (fact for fact in smart_nic_paper.FACTS if fact.name in ring.KNOWN_MISSES)
    row = ring._fact(fact, smart_nic_paper.fitted())
    assert (row.limit, row.unit) == (None, "% off")
    assert row.note.endswith("the paper: 50; predicted, not met")


@pytest.fixture
def one_rate(monkeypatch):
    """A ring of two small nodes in place of all codecs. Its vector is short, so the limits are wider."""
    point = ring_rtl.Point("small", PRESETS["tiny"], rates=(5,), nodes=(2,), codecs=("no codec",), faults=())
    monkeypatch.setattr(ring_rtl, "CODEC_RATES", point)
    monkeypatch.setattr(ring_rtl, "COUNT", 4096)
    monkeypatch.setattr(ring_rtl, "MIN_BUSY", 50)


@pytest.mark.slow
@pytest.mark.verilator
def test_time_at_a_rate_is_beside_the_models(one_rate, capsys, monkeypatch):
    monkeypatch.setattr(ring_rtl, "MAX_DEVIATION", 10)
    assert main(["bench", "ring", "--rates", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["figures"]
    assert [row["unit"] for row in rows] == ["cycles", "%", "% of time", "values"]
    assert rows[0]["name"].startswith("small, 5 Gb/s, no codec, 2 nodes")
    monkeypatch.setattr(ring_rtl, "MAX_DEVIATION", 0)
    assert main(["bench", "ring", "--rates"]) == 1
    assert "1 of 4 figures miss their limit" in capsys.readouterr().err
