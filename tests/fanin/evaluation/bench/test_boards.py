"""``fanin bench boards``: what an AllReduce is split into, its limit, where that holds; four boards of RTL."""

import json
from dataclasses import fields

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.evaluation.bench import boards
from fanin.sim.boards.world import GIGABIT
from fanin.sim.glm.board_allreduce import Moments

WIRE_PS, DELAY_PS = 784_000, round(1000 * GIGABIT.delay_ns)
OUT, MAC_OUT, MAC_IN, IN = 240_000, 100_000, 120_000, 390_000
LAG = 30_000  # of the second board


def made(operations=16, slower=0):
    """Two boards, the second one behind, whose parts take what the names above say."""
    pa = np.array([[0], [LAG]]) + 10_000_000 * np.arange(operations)
    sent = pa + OUT + slower
    agg = sent + MAC_OUT + WIRE_PS
    result = agg.max(axis=0) + 2 * DELAY_PS + WIRE_PS + np.zeros((2, 1), dtype=np.int64)
    received = result + MAC_IN
    return Moments(pa=pa, sent=sent, agg=agg, result=result, received=received, fa=received + IN)


def test_the_parts_of_an_allreduce_are_the_whole():
    moments = made()
    parts = boards.split(moments, WIRE_PS / 1000)
    np.testing.assert_allclose(sum(parts.values()), (moments.fa - moments.pa) / 1000)
    assert [(part.min(), part.max()) for part in parts.values()] == [
        (240, 240),
        (100, 100),
        (1284, 1284),
        (0, 30),
        (1284, 1284),
        (0, 0),
        (120, 120),
        (390, 390),
    ]


def test_first_operations_are_left_out():
    moments = made().skip(3)
    assert {getattr(moments, f.name).shape for f in fields(moments)} == {(2, 13)}
    assert moments.pa[0, 0] == 30_000_000


NONE = '{"figures": []}'


@pytest.fixture
def bench(monkeypatch, capsys):
    monkeypatch.setattr(boards, "model_with_events", lambda *arguments: None)
    monkeypatch.setattr(boards, "cluster", lambda *arguments: [])

    def run(*options, slower=0):
        monkeypatch.setattr(boards, "run_allreduces", lambda *arguments: made(slower=slower))
        status = main(["bench", "boards", "--json", *options])
        said = capsys.readouterr()
        return status, {one["name"]: one for one in json.loads(said.out or NONE)["figures"]}, said.err

    return run


def test_the_node_s_share_has_a_limit_at_100_mhz(bench):
    status, found, _ = bench()
    share = found["one at a time: node's share, max"]
    assert (status, share["value"], share["limit"]) == (0, 630, 1500)
    assert found["one at a time: AllReduce, max"]["value"] == 3448
    assert found["8 in a row: node's share, max"]["limit"] is None
    status, _, error = bench(slower=1_000_000)
    assert status == 1
    assert error.endswith("miss their limit: one at a time: node's share, max\n")
    status, found, _ = bench("--board", "colorlight_5a75b", slower=1_000_000)  # which has 50 MHz
    assert (status, found["core"]["value"]) == (0, 50)


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (("--board", "nothing"), "no board 'nothing'; there are "),
        (("--board", "genesys2"), "genesys2: cannot be simulated"),
        (("--epochs", "1"), "epochs must be above 1, not 1"),
    ],
)
def test_bad_options(bench, options, cause):
    status, _, error = bench(*options)
    assert status == 2
    assert error.startswith(f"fanin: error: {cause}")


@pytest.mark.slow  # four boards of RTL: minutes to build
@pytest.mark.verilator
def test_four_boards_meet_the_limit(capsys):
    assert main(["bench", "boards", "--epochs", "2", "--json"]) == 0
    found = {one["name"]: one["value"] for one in json.loads(capsys.readouterr().out)["figures"]}
    assert found["one at a time: AllReduce, p50"] < found["8 in a row: AllReduce, p50"] < 10_000
    for way, words in (("PA → last word to the MAC", 22), ("first word from the MAC → FA", 22)):
        assert found[f"one at a time: node, {way}"] > 10 * words  # of 32 bits, a cycle each
