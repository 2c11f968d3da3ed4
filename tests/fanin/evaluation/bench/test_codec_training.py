"""``fanin bench codec-training``: figures and tables of a quick network, limits, what is refused or missing."""

import json
import sys
from dataclasses import replace

import matplotlib
import pytest
from matplotlib import pyplot

from fanin.cli.main import main
from fanin.evaluation import bench
from fanin.evaluation.bench import codec_training, codec_training_costs
from fanin.evaluation.bench.figure import Figure, _draw
from fanin.sim.codec import effects, host_compression
from fanin.sim.codec.tasks import TASKS
from fanin.sim.codec.trainers import Training
from fanin.sim.learning.mlp import Mlp

matplotlib.use("Agg")
QUICK = Training(network=Mlp((64, 12, 10)), epochs=2)
FEW = ("none", "INCEPTIONN 2^-10, strict", "24 LSBs truncated", "MX e2m1, stochastic")


@pytest.fixture
def quick(monkeypatch):
    """The digit classifier alone, small, with few codecs."""
    monkeypatch.setattr(codec_training, "hdc", lambda mnist: QUICK)
    monkeypatch.setitem(TASKS, "templates", lambda: replace(QUICK, seed=9))
    codecs = {name: effects.CODECS[name] for name in FEW}
    for module in (codec_training, effects):
        monkeypatch.setattr(module, "CODECS", codecs)
    for function in (effects.effects, effects.fidelities):
        monkeypatch.setattr(function, "__defaults__", (codecs, *function.__defaults__[1:]))
    monkeypatch.setattr(effects, "EXTRA_EPOCHS", (1,))


def _rows(capsys, *arguments):
    assert main(["bench", "codec-training", "--json", *map(str, arguments)]) == 0
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)["figures"]}


def test_choices_are_the_tasks_and_the_parts():
    assert tuple(TASKS) == bench.NETWORKS
    assert tuple(sorted((*codec_training_costs.PARTS, 14))) == bench.CODEC_FIGURES


def test_accuracy_ratio_and_shares_become_results_a_picture_and_a_page(quick, capsys, tmp_path):
    rows = _rows(capsys, "--figure", 14, "--networks", "hdc", "--seeds", 2, "-o", tmp_path)
    assert rows["hdc: 24 LSBs truncated: ratio"]["value"] == 4
    assert rows["hdc: none: lost"]["value"] == 0
    assert all(row["limit"] is None for row in rows.values())
    assert rows["hdc: INCEPTIONN 2^-10, strict: seeds that end equal"]["unit"] == "of 2"
    figure = json.loads((tmp_path / "inceptionn-figure14.json").read_text())
    assert list(figure["series"]) == ["INCEPTIONN, strict", "LSBs truncated", "MX, stochastic"]
    accuracies = [rows[f"hdc: {name}: accuracy"]["value"] for name in ("none", FEW[2])]
    assert figure["series"]["LSBs truncated"] == [[4.0, 100 * accuracies[1] / accuracies[0]]]
    ratio = rows["hdc: MX e2m1, stochastic: ratio"]["value"]
    assert ratio == pytest.approx(7.06, abs=0.01)  # 7.53 less the padding of each slice's last block
    assert abs(rows["hdc: MX e2m1, stochastic: lost"]["value"]) < 10
    assert (tmp_path / "inceptionn-figure14.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / codec_training.PAGE).read_text()
    assert "## Figures 13 and 14: hdc" in page
    assert "| the paper's HDC | INCEPTIONN 2^-10 | 92.0 | 6.5 | 1.5 | 0.0 |" in page
    (line,) = [line for line in page.splitlines() if line.startswith("| hdc | INCEPTIONN")]
    shares = [float(cell.split("±")[0]) for cell in line.split("|")[3:7]]
    assert sum(shares) == pytest.approx(100, abs=0.2)


def test_a_task_that_truncation_does_not_hurt_enough_is_a_missed_limit(quick, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(codec_training, "MIN_LOST", 99.0)
    arguments = ["--figure", "14", "--networks", "templates", "--seeds", "1", "-o", str(tmp_path)]
    assert main(["bench", "codec-training", *arguments]) == 1
    captured = capsys.readouterr()
    assert "templates: 24 LSBs truncated: lost" in captured.err
    assert "INCEPTIONN" not in captured.err
    assert "templates, rate 0.2: 24 LSBs truncated: accuracy" in captured.out


def test_the_other_figures_and_the_traffic(quick, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(codec_training_costs, "TRUNCATIONS", (16, 24))
    chosen = [text for number in (3, 4, 5, 7, 12) for text in ("--figure", number)]
    rows = _rows(capsys, *chosen, "--networks", "hdc", "--seeds", 1, "-o", tmp_path)
    assert rows["figure 3: AlexNet, communication"]["value"] == pytest.approx(75.7, abs=0.1)
    weights = codec_training_costs.TruncationTarget(gradients=False, weights=True).run(QUICK, 24)
    assert rows["figure 4: hdc, weights, 24 LSBs"]["value"] == weights
    assert 0 < rows["figure 5: hdc, early: at most 2^-10"]["value"] < 100
    assert rows["figure 7: 16 LSBs truncated, early: AlexNet"]["value"] > 0
    assert rows["WA: weights down"]["value"] == pytest.approx(16 * QUICK.network.count / 1e6)
    for number in (4, 5):
        assert (tmp_path / f"inceptionn-figure{number}.png").exists()
    assert "## Figure 7" in (tmp_path / codec_training.PAGE).read_text()


def test_a_package_that_is_missing_is_named_and_its_part_left_out(quick, capsys, tmp_path, monkeypatch):
    def missing():
        raise ImportError("No module named 'cramjam'")

    monkeypatch.setitem(TASKS, "cnn", missing)
    monkeypatch.setattr(host_compression, "CODECS", {"Snappy": missing})
    arguments = ["--figure", "7", "--networks", "hdc", "cnn", "-o", str(tmp_path)]
    assert main(["bench", "codec-training", *arguments]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "fanin: warning: cnn is left out: No module named 'cramjam'",
        "fanin: warning: Snappy is left out: No module named 'cramjam': pip install 'fanin[compressors]'",
    ]


@pytest.mark.parametrize(("settings", "bottom"), [({}, 0), ({"y_from": 60}, 60)])
def test_a_linear_axis_begins_at_0_or_where_the_figure_says(settings, bottom):
    axes = pyplot.figure().subplots()
    _draw(Figure("", "", "", "", {"a": [(1, 90), (2, 80)]}, **settings), axes)
    assert axes.get_ylim()[0] == bottom
    pyplot.close()


def test_series_that_coincide_stand_side_by_side_in_pairs():
    _, axes = pyplot.subplots()
    series = {
        f"{what}, {which}": [(2, 636), (8, 636)] for which in ("ours", "theirs") for what in ("p50", "p99")
    }
    _draw(Figure("", "", "", "", series, over="theirs", apart=True), axes)
    xs = {line.get_label(): list(line.get_xdata()) for line in axes.lines}
    order = ["p50, ours", "p50, theirs", "p99, ours", "p99, theirs"]
    assert sorted(xs, key=lambda name: xs[name][0]) == order
    assert [round(xs[name][0]) for name in order] == [0] * 4
    assert len({x for each in xs.values() for x in each}) == 8
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["2", "8"]
    pyplot.close()


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        (["--seeds", "0"], "--seeds 0: must be at least 1"),
        (["--mnist", "absent"], "absent: no such folder"),
        (["--mnist", "absent", "--networks", "cnn"], "--mnist absent: only hdc trains on it"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(capsys, tmp_path, arguments, cause):
    assert main(["bench", "codec-training", *arguments, "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert cause in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_others_are_measured(quick, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    asked = ("--figure", 3, "--figure", 14, "--networks", "hdc", "--seeds", 1, "-o", tmp_path)
    assert main(["bench", "codec-training", "--json", *map(str, asked)]) == 0
    said = capsys.readouterr()
    assert {row["name"].partition(":")[0] for row in json.loads(said.out)["figures"]} == {"figure 3"}
    assert "warning: figure 14 is left out: matplotlib is missing, for the figures of" in said.err
