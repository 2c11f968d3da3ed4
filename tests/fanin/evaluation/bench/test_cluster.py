"""``fanin bench cluster``: its figures for one lane, and its limit."""

import contextlib
import json

import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import cluster
from fanin.sim.cosim.arrays import Arith


@pytest.fixture
def small(monkeypatch):
    """One lane, for a moment, with what has been built before."""
    monkeypatch.setattr(cluster, "LANES", {Arith.RTL: (1,), Arith.C: (1,)})
    monkeypatch.setattr(cluster, "MIN_SECONDS", 0.01)
    monkeypatch.setattr(cluster, "fresh_cache", contextlib.nullcontext)


@pytest.mark.verilator
def test_rates_and_builds_of_both_bodies(small, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "MIN_SPEEDUP", 0.01)
    assert main(["bench", "cluster", "--part", "arrays", "--json"]) == 0
    figures = {figure["name"]: figure for figure in json.loads(capsys.readouterr().out)["figures"]}
    for arith in ("rtl", "c"):
        cycles, lanes = (figures[f"1 lanes, {arith}: {what}"]["value"] for what in ("simulation", "lanes"))
        assert lanes == pytest.approx(cycles / 1e6)
        assert figures[f"1 lanes, {arith}: build"]["value"] > 0
    rates = [figures[f"1 lanes, {arith}: simulation"]["value"] for arith in ("c", "rtl")]
    assert figures["1 lanes: C over RTL"]["value"] == pytest.approx(rates[0] / rates[1])


@pytest.mark.verilator
def test_a_body_in_c_that_is_slow_misses_the_limit(small, capsys, monkeypatch):
    monkeypatch.setattr(cluster, "MIN_SPEEDUP", 1e9)
    assert main(["bench", "cluster", "--part", "arrays", "--json"]) == 1
    assert "figures miss their limit: 1 lanes: C over RTL" in capsys.readouterr().err
