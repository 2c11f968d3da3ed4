"""``fanin bench ps``: what is measured of a run, its limits, and that a slower server misses them."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.cli.bench import param_server
from fanin.cli.main import main
from fanin.golden.param_server import Tally

UPDATES = param_server.WORKERS * param_server.GRADIENTS["lr"]


class FakeCosim:
    """``intervals`` are when the server's link was occupied."""

    period_ps = 4000

    def __init__(self, *intervals, lost=0):
        self.intervals, self.lost = np.array(intervals, np.uint64), lost

    def run(self, job, learner, *, link):
        assert (learner.parameters, learner.batches, job.workers) == (7850, 8, 15)
        tally = Tally(UPDATES, UPDATES - self.lost, self.lost, 0)
        occupied = [None] * param_server.WORKERS + [self.intervals]
        return SimpleNamespace(
            outcome=SimpleNamespace(tally=tally),
            updates=[None] * UPDATES,
            raw=SimpleNamespace(occupied=occupied),
        )


def test_answers_before_and_behind_the_rows_do_not_count_and_pauses_do():
    words = UPDATES * param_server.Case("lr").sizes.words
    whole = param_server.busy(
        FakeCosim([3, 4], [10, 10 + words], [9 + 2 * words, 10 + 2 * words]), param_server.Case("lr")
    )
    assert (whole.value, whole.ok) == (100, True)
    paused = param_server.busy(FakeCosim([0, 100], [5000, 5000 + words]), param_server.Case("lr"))
    assert paused.value == pytest.approx(100 * words / (words + 5000))
    assert not paused.ok


def test_a_paced_link_is_compared_with_what_it_can_carry():
    row = 64 * (1 + 491 + 1)
    packets = 8  # of 4096 bytes
    seconds = UPDATES * (8 * row + packets * 8 * (8 + 54 + 4 + 4 + 12)) / 100e9
    result = param_server.paced(
        FakeCosim([0, round(seconds / 4e-9)]), param_server.Case("lr", param_server.PACED)
    )
    assert result.value == pytest.approx(100, abs=0.2)


def test_a_lost_gradient_is_no_measurement():
    with pytest.raises(AssertionError):
        param_server.busy(FakeCosim([0, 60_000], lost=1), param_server.Case("lr"))


def test_a_missed_limit_is_an_exit_status(capsys, monkeypatch):
    words = UPDATES * param_server.Case("lr").sizes.words
    slow = FakeCosim([0, 1000], [5000, 5000 + words])
    monkeypatch.setattr(param_server, "ParamServerCosim", lambda workers, clock_mhz: slow)
    monkeypatch.setattr(param_server, "MODELS", {"lr": 7850})
    monkeypatch.setattr(param_server, "parts", lambda config: [])
    assert main(["bench", "ps", "--json"]) == 1
    assert not any(row["ok"] for row in json.loads(capsys.readouterr().out)["figures"][:1])
