"""``fanin bench inceptionn``: what it measures of runs, what stands beside it, and its two figures."""

import json
from typing import ClassVar

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.codec.facts import Inceptionn, Mode
from fanin.evaluation.bench import inceptionn
from fanin.inceptionn.facts import Leg
from fanin.ring.groups import Scheme
from fanin.sim.codec import tags
from fanin.sim.inceptionn.cosim import ExchangeRun
from fanin.sim.inceptionn.hosts import ExchangeResult
from fanin.sim.inceptionn.meter import LegTraffic


class Cosim:
    """Exchanges of known times: a byte of the wire in 1 ns, of a ring an eighth of what an aggregator takes."""

    asked: ClassVar[list] = []

    def __init__(self, *, nodes, clock_mhz):
        self.nodes, self.clock_mhz = nodes, clock_mhz

    def exchange(self, plan, gradients):
        Cosim.asked.append((plan, self.clock_mhz))
        workers, size = plan.topology.workers, 4 * gradients[0].size
        assert (len(gradients), workers + 1) == (workers, self.nodes)
        ring = plan.topology.below is Scheme.RING
        seconds = size * 1e-9 * (1 if ring else 8 * workers / 4) * (0.25 if plan.codec else 1)
        leg = Leg.RING if ring else Leg.UP
        traffic = LegTraffic(packets=10, raw=1, acknowledgements=5, payload=700, wire=1000)
        outcome = ExchangeResult(gradients[0], [0.0, seconds], [], [])
        return ExchangeRun(outcome, {leg: traffic})


@pytest.fixture
def cosim(monkeypatch):
    Cosim.asked = []
    monkeypatch.setattr(inceptionn, "InceptionnCosim", Cosim)


def test_measured_times_stand_beside_the_papers(cosim, capsys, tmp_path):
    assert main(["bench", "inceptionn", "--values", "1000", "-o", str(tmp_path)]) == 0
    text = capsys.readouterr().out

    def line(name):
        return next(line for line in text.splitlines() if line.startswith(name)).removeprefix(name).split()

    setting = inceptionn.FAST.name
    assert line(f"{setting}: AlexNet: WA, communicate")[0] == "195.5"  # 233 MiB, 100 times, in 8 ns a byte
    assert line(f"{setting}: AlexNet: INC, communication saved")[0] == "87.5"
    assert line(f"{setting}: AlexNet: WA+C, communication saved")[0] == "75"
    assert line(f"{setting}: ResNet-50: INC+C, communication saved")[-1] == "80.64"
    share = float(line(f"{setting}: ResNet-50: INC, share that compression leaves")[0])
    ratio = tags.ratio(tags.TABLE_III["ResNet-50"][0])
    assert share == pytest.approx(100 * (0.25 - 1 / ratio) / (1 - 1 / ratio), rel=1e-3)
    assert line(f"{setting}: AlexNet: INC, ring: headers, of the wire")[0] == "30"
    assert line(f"{setting}, figure 15: WA, measured, workers 8")[0] == "2"
    first, *_ = figures = json.loads((tmp_path / "inceptionn-figure12.json").read_text())
    assert [figure["title"] for figure in figures] == [setting.name for setting in inceptionn.SETTINGS]
    assert first["series"]["HDC, measured"] == [[0, 1.0], [1, 0.25], [2, 0.125], [3, 0.03125]]
    assert dict(first["series"]["AlexNet, paper"]) == pytest.approx({0: 1, 1: 0.692, 2: 0.45})
    assert (tmp_path / "inceptionn-figure15.png").stat().st_size > 10_000


def test_only_figure_15_has_sums_and_every_setting_its_clock_and_hosts(cosim, tmp_path):
    assert main(["bench", "inceptionn", "--values", "1000", "-o", str(tmp_path)]) == 0
    summing = {plan.topology.workers for plan, _ in Cosim.asked if plan.costs.sum}
    assert summing == set(inceptionn.FIGURE_15_WORKERS)
    kinds = {(clock, plan.costs.packet) for plan, clock in Cosim.asked}
    assert kinds == {(setting.clock_mhz, setting.packet) for setting in inceptionn.SETTINGS}
    assert {plan.codec for plan, _ in Cosim.asked} == {None, Inceptionn(10, Mode.PUBLISHED)}


@pytest.mark.parametrize("model", tags.TABLE_III)
def test_gradients_have_table_iiis_shares_and_so_have_their_sums(model):
    published = tags.TABLE_III[model][0]
    vectors = tags.gradients(published, 50_000, 8)
    codec = Inceptionn(10, Mode.PUBLISHED)
    first = tags.shares(vectors[0], codec)
    assert first == pytest.approx(published, abs=1.0)
    for count in range(2, 9):
        assert tags.shares(np.sum(vectors[:count], axis=0, dtype=np.float32), codec) == first


def test_values_must_be_some(capsys, tmp_path):
    assert main(["bench", "inceptionn", "--values", "0", "-o", str(tmp_path)]) == 2
    assert "--values must be at least 1, not 0" in capsys.readouterr().err
