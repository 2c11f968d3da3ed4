"""The models of P4SGD's baselines: what they are fitted to they have, and what they predict is no input."""

from dataclasses import replace

import pytest

from fanin.evaluation.models import baselines
from fanin.evaluation.models.baselines import CPU, GPU, P4SGD, SECONDS, WORKERS


def test_what_is_fitted_comes_out():
    models = baselines.baselines()
    assert models[CPU].run("rcv1") == pytest.approx(SECONDS[CPU]["rcv1"])
    assert models[CPU].run("avazu") == pytest.approx(SECONDS[CPU]["avazu"])
    assert models[GPU].run("rcv1") == pytest.approx(SECONDS[GPU]["rcv1"])
    assert min(model.fixed for model in models.values()) > 0


def test_gpusync_on_avazu_is_predicted(monkeypatch):
    """Near the paper's, and the same whatever the paper says."""
    predicted = baselines.baselines()[GPU].run("avazu")
    assert predicted == pytest.approx(SECONDS[GPU]["avazu"], rel=0.06)
    monkeypatch.setitem(SECONDS[GPU], "avazu", 1.0)
    baselines.baselines.cache_clear()
    assert baselines.baselines()[GPU].run("avazu") == predicted
    monkeypatch.undo()
    baselines.baselines.cache_clear()


def test_a_mini_batch_is_what_the_formula_says():
    model = baselines.Baseline(fixed=1.0, allreduce=lambda workers: 10.0 * workers, rate=8.0)
    assert model.mini_batch(16, workers=4, batch=3) == 1.0 + 40.0 + 2 * 3 * 4 * 4 / 8.0
    assert model.mini_batch(16, workers=1, batch=3) == 1.0 + 2 * 3 * 16 * 4 / 8.0  # no AllReduce
    assert model.epoch("rcv1", workers=1, batch=20_000) == 2 * model.mini_batch(47_236, workers=1, batch=20_000)


def test_p4sgd_takes_the_cycles_of_the_documented_mini_batch():
    """rcv1 on 8 workers, B = 64: M·C·s + T_l + 34 + s cycles of 4 ns."""
    mini_batch = 8 * 12 * 4 + 301 + 34 + 4
    assert baselines.p4sgd_epoch("rcv1") == pytest.approx(
        4e-9 * mini_batch * baselines.mini_batches("rcv1"), rel=1e-3
    )
    assert baselines.paper_mini_batches("rcv1") * 4e-9 * mini_batch == pytest.approx(
        SECONDS[P4SGD]["rcv1"], rel=1e-3
    )


def test_hosts_take_what_is_fitted_on_average_and_some_longer():
    latencies = baselines.host_allreduce_ns()
    assert latencies.shape[1] == WORKERS
    assert latencies.mean() == pytest.approx(baselines.HOST_ALLREDUCE_NS)
    assert latencies.min() > 0
    assert latencies.max() > latencies.mean() + 4 * baselines.JITTER_NS


def test_switchml_is_cpusync_with_another_allreduce():
    model = baselines.switchml(lambda workers: 1e-6 * workers)
    cpu = baselines.baselines()[CPU]
    assert replace(model, allreduce=cpu.allreduce) == cpu
    assert model.mini_batch(8) - cpu.mini_batch(8) == pytest.approx(8e-6 - 12e-6)
