"""``fanin bench scale``: its model beside given times, what it foretells, what is refused, a run."""

import json
import sys
from dataclasses import replace

import pytest

from fanin.base.errors import ToolFailed
from fanin.cli.main import main
from fanin.evaluation.bench import scale
from fanin.evaluation.bench.scale import CHECKED_POINTS, FITTED_POINTS, Point
from fanin.sim.scale.model import Costs, Load
from fanin.sim.scale.point import RunMeasurement
from tests.support import slow

COSTS = Costs(2e-6, 24e-6, 8e-6, 600e-6, 10e-6, 0)


def _time(point, runs, *, wrong=1.0):
    """A run as the costs have it."""
    cycles, frames = 10_000 + point.values, 20 * point.nodes
    cores = len(scale.os.sched_getaffinity(0))
    load = Load(point.nodes, cycles, frames, cycles // 154, ranks=point.ranks, cores=cores, delay=point.delay)
    return RunMeasurement(COSTS.seconds(load) * wrong, cycles, frames, load.meetings if point.ranks > 1 else 0)


@pytest.fixture
def given(monkeypatch):
    monkeypatch.setattr(scale, "_time_run", _time)
    monkeypatch.setattr(scale, "rank_cost", lambda: COSTS.rank)
    monkeypatch.setattr(
        scale, "_glm_costs_and_load", lambda costs: (replace(costs, node_cycle=25e-6), Load(2, 17_384, 1024, 0))
    )


def test_times_that_the_costs_have_made_are_foretold(given, capsys, tmp_path):
    assert main(["bench", "scale", "--json", "-o", str(tmp_path)]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["figures"]}
    assert all(rows[str(point)]["value"] < 1e-6 for point in CHECKED_POINTS)
    one, many = (rows[f"GLM node, u280: 1,024 nodes, machines {n}"]["value"] for n in (1, 16))
    assert 12 < one < 16 < many < 256
    assert {path.name for path in tmp_path.iterdir()} == {"scale.md", "scale.json", "scale.png"}
    page = (tmp_path / "scale.md").read_text()
    assert "| ring node, 8 lanes | 1 | 1.0 (1) |" in page
    assert "| GLM node, u280 | 25.00 | 24.00 | 8.00 | " in page


def test_a_run_that_is_not_as_foretold_misses_its_limit(given, capsys, monkeypatch, tmp_path):
    odd = CHECKED_POINTS[3]
    monkeypatch.setattr(
        scale, "_time_run", lambda point, runs: _time(point, runs, wrong=1.2 if point == odd else 1.0)
    )
    assert main(["bench", "scale", "-o", str(tmp_path)]) == 1
    assert f"1 of {len(CHECKED_POINTS) + 8} figures miss their limit: {odd}" in capsys.readouterr().err


def test_what_is_checked_was_not_fitted():
    assert not set(CHECKED_POINTS) & set(FITTED_POINTS)
    assert len(CHECKED_POINTS) == 10


@pytest.mark.parametrize(
    ("given", "must"),
    [
        ("--cores 0", "at least 1"),
        ("--runs 0", "at least 1"),
        ("--rtt-us inf", "finite"),
        ("--rtt-us nan", "finite"),
    ],
)
def test_bad_numbers_are_refused(capsys, tmp_path, given, must):
    assert main(["bench", "scale", *given.split(), "-o", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"fanin: error: {given}: must be {must}\n"
    assert not list(tmp_path.iterdir())


def test_a_run_that_fails_is_named(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ToolFailed, match=r"^2 nodes, 100 values, one process: no message$"):
        scale._time_run(Point(2, 100), 1)


@pytest.mark.verilator
@pytest.mark.parametrize("ranks", slow(1, 2))
def test_a_run_is_timed(ranks):
    found = scale._time_run(Point(2, 2_000, ranks), 1)
    assert found.seconds > 0
    assert found.frames > 16
    assert (found.meetings > 10) is (ranks > 1)
