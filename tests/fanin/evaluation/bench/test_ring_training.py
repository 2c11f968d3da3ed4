"""``fanin bench ring-training``: the paper's formula with what the run has, limits, and the figures drawn."""

import json
from argparse import Namespace
from types import SimpleNamespace

import pytest

from fanin.codec.facts import Bfp
from fanin.evaluation.bench import ring_training
from fanin.evaluation.bench.ring_training import Shape
from fanin.evaluation.bench.smart_nic_figures import SMART, SMART_BFP
from fanin.ring.facts import PRESETS, RingConfig
from fanin.sim.ring.profile import WorkerProfile
from fanin.sim.ring.schedule import Span, Times
from fanin.sim.ring.train_cosim import RingTrainingCosim
from fanin.sim.spans import FirstSpans

IDLE = WorkerProfile(flops=1e30, memory_bandwidth=float("inf"))
RAW = 512**2 * 32  # bits of a layer


def shape(**changes):
    return Shape(**{"nodes": 4, "batch": 448, "layers": 2, "profile": IDLE} | changes)


def test_the_models_link_has_the_frames_overhead_and_nothing_fitted():
    # 128 words and a header of 32 bytes each, 24 bytes around the frame, half an ACK of 64 and 24
    alpha = 128 * 32 / (129 * 32 + 24 + (64 + 24) / 2)
    reduce = 2 * 3 * RAW / (4 * alpha * 40e9)
    assert ring_training.model(PRESETS["prototype"], shape()) == pytest.approx(2 * reduce)


def test_the_models_adders_and_memory_are_those_of_the_run():
    config = RingConfig(lanes=8, codec=Bfp())
    assert ring_training.model(config, shape()) == pytest.approx(2 * 6 * RAW / (4 * 8 * 250e6 * 32))
    slow = shape(profile=WorkerProfile(flops=1e30, memory_bandwidth=float("inf"), pcie=1e9))
    assert ring_training.model(config, slow) == pytest.approx(2 * RAW / 1e9)
    # of two layers, the update of the lower one alone is behind everything else
    with_update = shape(profile=WorkerProfile(flops=1e30, memory_bandwidth=1e12))
    assert ring_training.model(config, with_update) == pytest.approx(
        2 * 6 * RAW / (4 * 8 * 250e6 * 32) + 512**2 * 20e-12
    )


@pytest.fixture
def simulated(monkeypatch):
    """Runs that take so many times as long as the model says."""
    factor = SimpleNamespace(value=1.01)

    def run(cosim, shape):
        times = Times([0.0], 0.0, FirstSpans([Span(0, "B", 1, 1e-3, 2e-3), Span(0, "AR", 1, 2e-3, 3e-3)]))
        return factor.value * ring_training.model(cosim.config, shape), times

    monkeypatch.setattr(ring_training, "_run", run)
    monkeypatch.setattr(
        ring_training, "RingTrainingCosim", lambda config, nodes: SimpleNamespace(config=config)
    )
    monkeypatch.setattr(ring_training, "_on_host_cores", lambda measured: ())
    return factor


def test_iterations_become_rows_and_points_of_the_papers_figures(simulated, tmp_path):
    rows = {row.name: row for row in ring_training.measure(Namespace(part=None, output=tmp_path))}
    assert all(row.ok for row in rows.values())
    assert rows[f"{SMART}, 3 nodes, B = 448, 20 × 2048²: off the model"].value == pytest.approx(1)
    data = json.loads((tmp_path / "smart-nic.json").read_text())
    assert data["3b"]["RTL"] == {"B1": [16, 32], "AR1": [32, 48]}  # ms of 512 × 512, at 2048 × 2048
    for series in (SMART, SMART_BFP):
        points = data["4b, RTL"]["B = 448"][series]
        assert [nodes for nodes, _ in points] == list(ring_training.NODES)
        modelled = dict(data["4b"]["B = 448"][series])
        assert [y for _, y in points] == pytest.approx([modelled[n] for n, _ in points], rel=0.05)


def test_an_iteration_that_is_far_off_the_model_is_a_missed_limit(simulated, tmp_path):
    simulated.value = 0.96
    rows = list(ring_training.measure(Namespace(part="whole", output=tmp_path)))
    assert [row.ok for row in rows] == [True, False]


@pytest.mark.slow
@pytest.mark.verilator
def test_an_iteration_on_rtl_is_as_long_as_the_model_says():
    """A few layers on few nodes; frames of 512 bytes, so that the link is slower than the lanes."""
    cosim = RingTrainingCosim(RingConfig(lanes=8, frame_words=16), nodes=3)
    profile = WorkerProfile(flops=3e12, memory_bandwidth=1e12)
    given = shape(nodes=3, width=256, layers=4, profile=profile)
    seconds, times = ring_training._run(cosim, given)
    assert seconds == pytest.approx(ring_training.model(cosim.config, given), rel=0.06)
    assert {f"{span.kind}{span.layer}" for span in times.spans} == {
        f"{kind}{layer}" for kind in ("F", "B", "AR", "U") for layer in range(4)
    }
