"""P4SGD's figures 8, 13 and 15 as they are drawn."""

import json

import numpy as np
import pytest

from fanin.evaluation.bench import baselines, figures, losses
from fanin.evaluation.models.baselines import HOST_ALLREDUCE_NS, SWITCHML_LINK


def _results(number, folder):
    return {result.name: result.value for result in figures.draw(number, folder)}


def test_figure_8_has_four_systems_in_the_papers_order(monkeypatch, tmp_path):
    monkeypatch.setattr(baselines, "_p4sgd_latencies", lambda: np.full(8, 636.0))
    monkeypatch.setattr(baselines, "OPERATIONS", 50)
    baselines.switchml_latencies.cache_clear()
    found = _results(8, tmp_path)
    assert found["figure 8: P4SGD, mean"] == found["figure 8: P4SGD, 99th percentile"] == 636
    assert found["figure 8: CPUSync, mean"] == pytest.approx(HOST_ALLREDUCE_NS)
    assert found["figure 8: SwitchML, mean"] > HOST_ALLREDUCE_NS
    assert found["figure 8: SwitchML, 1st percentile"] > 2 * SWITCHML_LINK.host_ns
    figure = json.loads((tmp_path / "figure8.json").read_text())
    assert figure["x_names"] == ["P4SGD", "GPUSync", "CPUSync", "SwitchML"]
    assert all([x for x, _ in points] == [0, 1, 2, 3] for points in figure["series"].values())
    baselines.switchml_latencies.cache_clear()


def test_figure_13_has_all_systems_over_workers(monkeypatch, tmp_path):
    monkeypatch.setattr(baselines, "switchml_latencies", lambda workers: np.full(4, 13_000.0))
    found = _results(13, tmp_path)
    assert len(found) == 2 * 2 * 4 * 4 + 1
    case = "B=16, workers 8"
    p4sgd, gpu, cpu, switchml = (
        found[f"figure 13: rcv1: {name}, {case}"] for name in ("P4SGD", "GPUSync", "CPUSync", "SwitchML")
    )
    assert p4sgd < gpu < cpu < switchml
    assert found["figure 13: GPUSync over P4SGD, most"] == pytest.approx(gpu / p4sgd)


def test_figure_15_puts_losses_at_their_seconds_and_table_4_beside_them(monkeypatch, tmp_path):
    samples = losses.Samples("x", None, np.zeros(640), "made up")
    monkeypatch.setattr(losses, "read_samples", lambda name, file: samples)
    monkeypatch.setattr(losses, "fixed_losses", lambda *_: [0.5, 0.25])
    monkeypatch.setattr(losses, "float64_losses", lambda *_: [0.4, 0.2])
    found = _results(15, tmp_path)
    rcv1, avazu = json.loads((tmp_path / "figure15.json").read_text())
    assert [y for _, y in rcv1["series"]["P4SGD"]] == [0.5, 0.25]
    assert [y for _, y in avazu["series"]["CPUSync"]] == [0.4, 0.2]
    (first, _), (second, _) = rcv1["series"]["GPUSync"]
    assert second == pytest.approx(2 * first)
    assert found["table 4: GPUSync, avazu: energy"] == pytest.approx(
        920 * found["table 4: GPUSync, avazu: time"]
    )
