"""Cycles of a word from HBM: what they are made of, and what pseudo-channels give and take in RTL."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fanin.evaluation.bench import memory, nodes
from fanin.glm.facts import PRESETS
from fanin.hbm import HBM2
from tests.fanin.cli.command import refused


@pytest.mark.parametrize("stalls", [0, 5000])
def test_a_word_takes_a_cycle_and_what_memory_makes_it_wait(monkeypatch, tmp_path, stalls):
    trained = []

    def train(shape, network, *, clock_mhz, hbm):
        trained.append((shape, clock_mhz, hbm))
        words = shape.node.engines * shape.micro_batches * shape.words_per_micro_batch
        waits = {"stall_no_word": words * stalls // 20_000 if hbm else 0}
        return SimpleNamespace(counters=[{"words": words, "cycles": 30_000, **waits}])

    monkeypatch.setattr(nodes, "train", train)
    results = {result.name: result for result in memory.measure(tmp_path)}
    assert all(shape.micro_batches * shape.words_per_micro_batch >= memory.MIN_WORDS for shape, *_ in trained)
    for engines in ("1 engine", "8 engines"):
        found = results[f"{engines}, HBM2, a pseudo-channel a port: cycles a word"]
        assert (found.value, found.ok) == (pytest.approx(1 + stalls / 20_000, rel=1e-4), not stalls)
        assert results[f"{engines}, constant latency: cycles a word"].value == 1
    waiting = results["8 engines, HBM2, a pseudo-channel an engine: waiting for memory"].value
    assert waiting == pytest.approx(100 * stalls / (20_000 + stalls), abs=0.01)
    assert {(clock, hbm.ports_per_channel) for _, clock, hbm in trained if hbm} == {
        (250, 1),
        (250, 2),
        (225, 2),
    }
    share = results["8 engines, HBM2, a pseudo-channel a port: of the card's bandwidth"].value
    assert share == pytest.approx(100 * 128 / 460.8 / (1 + stalls / 20_000), rel=1e-3)
    series = json.loads((tmp_path / "memory.json").read_text())["series"]
    assert [x for x, _ in series["HBM2, a pseudo-channel a port"]] == list(memory.READ_AHEAD)
    assert (tmp_path / "memory.png").stat().st_size


def test_a_part_is_no_figure_of_the_paper(capsys):
    err = refused(capsys, "bench", "glm", "--part", "memory", "--figure", "9")
    assert "--part and --figure cannot be given together" in err


@pytest.mark.slow
@pytest.mark.verilator
def test_ports_of_a_channel_share_what_it_has(monkeypatch):
    """A small engine's two ports take 32 bytes in 16 ns each; the channel gives them in 12, less refreshes."""
    monkeypatch.setattr(memory, "COLUMNS", 256)
    node = replace(PRESETS["tiny"], lanes=16, depth=64, sample_fifo=1024, mac_width=512)
    narrow = replace(HBM2, access=24, same_group=24, period_ps=500)

    def cycles(ports):
        return memory.cycles_of_a_word(memory.Case("", "", replace(narrow, ports_per_channel=ports)), node)[0]

    assert cycles(1) < 1.02
    assert cycles(2) == pytest.approx(2 * 12 / 16 / (1 - 268 / 3510), rel=0.02)
