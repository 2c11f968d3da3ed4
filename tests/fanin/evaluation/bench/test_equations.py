"""Table I: what the equations are made of, and when RTL is too far from them."""

import json
from dataclasses import replace

import pytest

from fanin.evaluation.bench import equations, figures, nodes
from fanin.glm.facts import PRESETS, TrainShape

T_L, WAYS = (
    300,
    nodes.PathLatencies(word_to_agg=18, pa_to_agg=2, pa_to_pa=1, result_to_fa=3, result_to_gradient=16),
)


def _measured(config, *, workers, columns, batch, vanilla=False, extra=0, **_):
    """As the nodes' cycles are documented."""
    shape = TrainShape(
        node=config, workers=workers, samples=2 * batch, columns=columns, batch=batch, vanilla=vanilla
    )
    words = shape.micro_batches * shape.words_per_micro_batch
    cycles = words * (1 + vanilla) + T_L + 38 + extra
    ways = WAYS
    if shape.data_parallel:
        cycles, ways = words + shape.words_per_micro_batch + columns // 8 * 2 + T_L + 38, None
    return nodes.NodeMeasurement(shape, cycles, T_L, ways, 1.0)


def test_equations_are_those_of_table_1_in_cycles():
    shape = {"workers": 1, "columns": 16_384, "batch": 64}
    vanilla = _measured(nodes.node(8, vanilla=True), vanilla=True, **shape)
    assert vanilla.shape.words_per_micro_batch == 128
    assert equations.equation_2(vanilla, 334) == 1024 + 1024 + 2 * 8 + 334
    assert equations.equation_3(vanilla, 334) == 128 + 1024 + 2 + 334
    assert equations.equation_1(vanilla, 334) == 1024 + 128 + 2 * 2048 + 334
    gradients = _measured(nodes.node(8, data_parallel=True), **shape)  # 32 in a packet of 3 beats, no ACK
    assert equations.equation_1(gradients, 334) == 1024 + 128 + 3 * 512 + 334


@pytest.mark.parametrize(("extra", "ok"), [(0, True), (1000, False)])
def test_figure_2_puts_every_kind_beside_its_equation(monkeypatch, tmp_path, extra, ok):
    monkeypatch.setattr(
        nodes, "measure", lambda config, **shape: _measured(config, extra=extra * ("vanilla" in shape), **shape)
    )
    monkeypatch.setattr(equations, "CASES", ((1, 16_384),))
    results = {result.name: result for result in figures.draw(2, tmp_path)}
    name = "table 1: vanilla MP, 1 worker, D 16384, B 64"
    assert results[f"{name}: measured"].value == 2 * 1024 + 338 + extra
    assert results[f"{name}: equation 2"].value == 2 * 1024 + 350
    assert results[f"{name}: off equation 2"].ok == ok
    assert results["table 1: P4SGD MP, 1 worker, D 16384, B 64: RTL over equation 3"].value < 0
    assert results["table 1: P4SGD MP, 1 worker, D 16384, B 64: off equation 3 less C·s"].ok
    figure = json.loads((tmp_path / "figure2.json").read_text())
    assert len(figure["series"]) == 6
    assert [x for x, _ in figure["series"]["DP, RTL"]] == list(equations.BATCHES)


@pytest.mark.verilator
@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_small_nodes_are_as_near_to_equation_2_as_table_1_asks(workers):
    config = replace(PRESETS["tiny"], mac_width=512, sample_fifo=4096, slots=64, vanilla=True, depth=64)
    shape = {"workers": workers, "columns": 448 * workers, "batch": 64, "latency_ns": 1200, "mini_batches": 2}
    pipelined = nodes.measure(config, **shape)
    latency = pipelined.latency + pipelined.paths.word_to_agg + pipelined.paths.result_to_gradient
    vanilla = nodes.measure(config, vanilla=True, **shape)
    assert vanilla.mini_batch == pytest.approx(equations.equation_2(vanilla, latency), rel=0.05)
    assert vanilla.mini_batch - pipelined.mini_batch == pytest.approx(pipelined.ideal, rel=0.01)
