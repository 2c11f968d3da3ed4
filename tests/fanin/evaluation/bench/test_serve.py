"""``fanin bench serve`` without BMv2, and under attack; tests/sim/switch/test_bmv2.py measures BMv2."""

import os

import pytest

from fanin.evaluation.bench import serve, serve_attack
from fanin.evaluation.bench.serve_attack import Rates


def test_without_bmv2_it_says_what_is_missing(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(serve.bmv2_figures()) == []
    assert "BMv2 is not measured: p4c-bm2-ss is missing: install p4c" in capsys.readouterr().err


LIMITED = {
    "rate kept, by the clock",
    "rate kept, of one core",
    "control's share of the switch's processor time",
}


def _missed(before, during, control, *, apart):
    results = list(serve_attack.figures(before, during, control, 7, separate_cores=apart))
    limited = {each.name for each in results if each.limit is not None}
    assert limited == (LIMITED if apart else LIMITED - {"rate kept, by the clock"})
    return {each.name for each in results if not each.ok}


def test_nine_tenths_of_the_rate_and_a_tenth_of_the_time_are_the_limits_of_an_attack():
    before = Rates(1000.0, 2000.0, 10.0)
    assert _missed(before, Rates(900.0, 1800.0, 10.0), 1.0, apart=True) == set()
    assert _missed(before, Rates(899.0, 1799.0, 10.0), 1.01, apart=True) == LIMITED
    assert _missed(before, Rates(1.0, 1800.0, 10.0), 0.0, apart=False) == set()


@pytest.mark.slow
@pytest.mark.needs("namespaces")
def test_an_attack_is_measured(monkeypatch):
    monkeypatch.setattr(serve_attack, "SECONDS", 2.0)
    before = os.sched_getaffinity(0)
    found = {each.name: each.value for each in serve_attack.measure()}
    assert os.sched_getaffinity(0) == before
    assert found.keys() > LIMITED
    assert all(value > 0 for value in found.values())
