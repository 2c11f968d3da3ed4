"""``fanin reproduce``: rows filled by commands that really run, once each; what fails, what is refused."""

import contextlib
import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fanin.cli.main import main
from fanin.evaluation.origins import graph
from fanin.evaluation.origins.kinds import Origin, OriginKind
from fanin.evaluation.reproduce import execute, measure
from fanin.evaluation.reproduce.row import Fit, Measurement, Paper, Picture, Point, Row
from fanin.evaluation.reproduce.rows import PAPERS
from fanin.evaluation.reproduce.value import extreme, figure_value, ratio, saving

MODELS = Measurement(("bench", "ps", "--models"), figure_value("ps.table_1.lr.wild_s"))


def paper(*rows):
    """A paper of these rows."""
    return Paper(
        "paper", "A Paper", rows, fits=(Fit("model", "a rate", "table 1"),), not_here=("figure 3: watts",)
    )


@pytest.fixture
def printed(monkeypatch):
    """What each command prints, by its words, in place of a process; how often each was carried out."""
    answers, runs = {}, []
    monkeypatch.setattr(
        graph,
        "GRAPH",
        (*graph.GRAPH, ("[xyz]", Origin(OriginKind.RTL)), ("accuracy", Origin(OriginKind.GOLDEN))),
    )

    def run(self, measurement):
        runs.append(measurement.command)
        answer = answers[measurement.command]
        return ({}, answer, []) if isinstance(answer, str) else (answer, "", ["Snappy is left out: install it"])

    monkeypatch.setattr(measure.MeasurementStore, "_run", run)
    return answers, runs


def rows_of(folder):
    return json.loads((folder / "reproduction.json").read_text())["rows"]


def test_three_rows_are_filled_by_the_commands_that_they_name(tmp_path, capsys):
    folder = tmp_path / "out"
    assert main(["reproduce", "smart-nic/4a", "--quick", "-o", str(folder)]) == 0
    assert main(["reproduce", "smart-nic/2a", "--quick", "-o", str(folder)]) == 0
    err = capsys.readouterr().err
    assert err.count("fanin bench ring --models") == 1, "the second run measured again"
    rows = rows_of(folder)
    assert [row["figure"] for row in rows] == ["2a", "2a"]
    kept = json.loads((folder / "measured" / "bench-ring-models.json").read_text())
    assert kept["command"] == "fanin bench ring --models"
    assert rows[0]["command"] == "fanin bench ring --models --json -o DIR"
    figures = kept["figures"]
    exposed = [figures[f"ring.figure_2a.{name}.exposed_all_reduce"] for name in ("naive", "overlapped")]
    assert rows[1]["found"] == exposed[0] / exposed[1]
    assert rows[1]["ratio"] == rows[1]["found"] / 50
    assert 0.95 < rows[0]["ratio"] < 1.05
    with (folder / "table.csv").open() as file:
        assert [row["what"] for row in csv.DictReader(file)] == [row["what"] for row in rows]
    assert rows[0]["what"] in (folder / "table.md").read_text()
    assert "Figure 4b" in (folder / "report.html").read_text()  # drawn from what the command printed beside


def test_a_command_is_carried_out_once_and_a_failed_one_again(tmp_path, printed, monkeypatch, capsys):
    answers, runs = printed
    a, b = ("bench", "a"), ("bench", "b")
    monkeypatch.setattr(
        execute,
        "PAPERS",
        (
            paper(
                Row("1", "a number", "I", 10.0, "s", Measurement(a, figure_value("x"))),
                Row("1", "what is saved", "I", 50.0, "%", Measurement(a, saving("x", "y"))),
                Row("2", "a ratio", "II", 2.0, "×", Measurement(b, ratio("x", "y")), explanation="it rained"),
                Row("2", "no such figure", "II", 2.0, "×", Measurement(a, figure_value("z"))),
            ),
        ),
    )
    answers |= {a: {"x": 9.0, "y": 12.0}, b: "b.toml: no such file"}
    assert main(["reproduce", "-o", str(tmp_path / "out")]) == 1
    assert "2 of 4 rows are empty; the first: paper/2: b.toml: no such file" in capsys.readouterr().err
    first, second, third, fourth = rows_of(tmp_path / "out")
    assert (first["found"], first["ratio"], second["found"]) == (9.0, 0.9, 25.0)
    assert (third["found"], third["error"]) == (None, "b.toml: no such file")
    assert fourth["error"] == "fanin bench a prints no such figure; Snappy is left out: install it"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "2 of 4 rows are filled" in page
    assert "figure 3: watts" in page
    answers[b] = {"x": 3.0, "y": 2.0}
    assert main(["reproduce", "paper/2", "-o", str(tmp_path / "out")]) == 1
    assert [row["found"] for row in rows_of(tmp_path / "out")] == [1.5, None]
    answers[a] |= {"z": 4.0}  # what was missing has been installed
    assert main(["reproduce", "paper/2", "-o", str(tmp_path / "out")]) == 0
    assert main(["reproduce", "-o", str(tmp_path / "out")]) == 0
    assert runs == [a, b, b, a, a]
    assert [row["found"] for row in rows_of(tmp_path / "out")] == [9.0, 25.0, 1.5, 2.0 * 2]


def test_the_least_of_several_needs_them_all():
    least = extreme(min, "cnn.*.lost", "residual.*.lost")
    assert least({"cnn.a.lost": 2.0, "residual.a.lost": 1.0, "cnn.a.ratio": 0.0}) == 1.0
    with pytest.raises(KeyError):
        least({"cnn.a.lost": 2.0})


def test_a_check_that_fails_fills_no_row(tmp_path, monkeypatch):
    figure = {"id": "x", "name": "a figure", "value": 1, "curve": "c", "x": 2}
    out = json.dumps({"benchmark": "x", "figures": [figure, figure | {"id": None}]})
    ended = SimpleNamespace(communicate=lambda timeout: (out, "fanin: error: differs"), returncode=1)
    monkeypatch.setattr(measure, "_process", lambda command: contextlib.nullcontext(ended))
    measuring = measure.MeasurementStore(tmp_path, {})
    found = measuring.measure(Measurement(("bench", "x"), figure_value("x")))
    assert (found.figures, found.points) == ({"x": 1.0}, {"x": Point("c", 2.0)})
    assert measuring.find_earlier(Measurement(("bench", "x"), figure_value("x"))) == found
    found = measuring.measure(Measurement(("codec", "verify"), figure_value("x")))
    assert (found.figures, found.error) == ({}, "differs")


def test_a_row_says_what_stands_in_for_its_data_set(tmp_path, printed, monkeypatch):
    answers, _ = printed
    command = ("ps", "train")
    measurement = Measurement(command, figure_value("accuracy", 100.0), data={"mnist": ("{}",)})
    row = Row("7", "accuracy", "5", 92.0, "%", measurement, stand_in="digits")
    monkeypatch.setattr(execute, "PAPERS", (paper(row),))
    answers[command] = {"accuracy": 0.9}
    assert main(["reproduce", "-o", str(tmp_path / "out")]) == 0
    (found,) = rows_of(tmp_path / "out")
    assert found["why"] == "digits (fanin reproduce --data mnist=PATH)"
    (tmp_path / "mnist").mkdir()
    assert main(["reproduce", "--data", f"mnist={tmp_path / 'mnist'}", "-o", str(tmp_path / "other")]) == 0
    (found,) = rows_of(tmp_path / "other")
    assert found["command"].endswith(f"{tmp_path / 'mnist'} --json")
    assert found["why"] == ""
    assert main(["reproduce", "--data", f"mnist={tmp_path / 'mnist'}", "-o", str(tmp_path / "out")]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], "nobody: no such paper; there are p4sgd, inceptionn, smart-nic, rdma-wild, nada"),
        (["smart-nic/9"], "smart-nic/9: no such figure; of smart-nic there are 2a, 3a, 4a"),
        (["--data", "mnist"], "--data mnist: must be NAME=PATH; names are avazu, mnist, rcv1"),
        (["--data", "imagenet=x"], "--data imagenet=x: must be NAME=PATH; names are avazu, mnist, rcv1"),
        (["--data", "mnist=nowhere"], "--data mnist=nowhere: nowhere does not exist"),
    ],
)
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"fanin: error: {message}")
    assert not list(tmp_path.iterdir())


def test_a_folder_of_another_version_or_of_somebody_else_is_refused(tmp_path, printed, monkeypatch, capsys):
    answers, _ = printed
    answers[MODELS.command] = {"ps.table_1.lr.wild_s": 3.0}
    monkeypatch.setattr(execute, "PAPERS", (paper(Row("1", "x", "I", 3.0, "s", MODELS)),))
    out = tmp_path / "out"
    assert main(["reproduce", "-o", str(out)]) == 0
    kept = out / "measured" / "bench-ps-models.json"
    kept.write_text(kept.read_text().replace('"fanin": "', '"fanin": "9.'))
    assert main(["reproduce", "-o", str(out)]) == 2
    assert "measured by fanin 9." in capsys.readouterr().err
    kept.write_text("{}")
    assert main(["reproduce", "-o", str(out)]) == 2
    assert "is no measurement" in capsys.readouterr().err
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("")
    assert main(["reproduce", "-o", str(tmp_path / "mine")]) == 2
    assert "holds no reproduction.json" in capsys.readouterr().err


def test_what_a_command_says_of_its_failure_is_kept(tmp_path):
    bad = Measurement(("plan", "no_such_model", "arria10x6"), figure_value("throughput"), folder=True)
    found = measure.MeasurementStore(tmp_path, {}).measure(bad)
    assert found.figures == {}
    assert found.error.startswith("no_such_model")
    assert measure.MeasurementStore(tmp_path, {}).find_earlier(bad) is None


def test_a_command_ends_with_fanin_reproduce_even_if_that_is_killed():
    code = (
        "from fanin.evaluation.reproduce.measure import _process\n"
        "with _process(['sleep', '60']) as process:\n"
        "    print(process.pid, flush=True)\n"
        "    process.wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    command = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{command}/cmdline").exists() and Path(f"/proc/{command}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the command goes on"
        time.sleep(0.05)


def test_points_of_a_picture_are_those_of_its_identifiers():
    picture = Picture("9", "t", "B", "s", ("figure_9.*",))
    figures = {"figure_9.rcv1.64": 2.0, "figure_9.rcv1.16": 1.0, "figure_9.most": 3.0, "figure_10.rcv1.16": 5.0}
    points = {name: Point("rcv1", float(name[-2:])) for name in figures if name != "figure_9.most"}
    assert picture.series(figures, points) == {"rcv1": [(16.0, 1.0), (64.0, 2.0)]}


def test_papers_and_figures_are_chosen_in_the_order_of_the_papers():
    chosen = execute.choose(["nada/5", "smart-nic/4a", "smart-nic/2a"], quick=True)
    places = [f"{each.name}/{row.figure}" for each, row in chosen]
    assert list(dict.fromkeys(places)) == ["smart-nic/2a", "smart-nic/4a", "nada/5"]
    assert len(execute.choose([])) == sum(len(each.rows) for each in PAPERS)
    slow = len(execute.choose(["nada/5"])) - sum(place == "nada/5" for place in places)
    assert slow == 3


def test_the_list_measures_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    assert all(f"{each.name}/{each.figures[0]}" in out for each in PAPERS)
    assert not list(tmp_path.iterdir())


def test_every_command_of_a_row_is_one_that_fanin_has():
    from fanin.cli.main import build_parser

    for each in PAPERS:
        for row in each.rows:
            for quick in (True, False):
                measurement = row.measurement(quick=quick)
                build_parser().parse_args([*measurement.command, "--json"])
                folder = ["-o", "x"] if measurement.folder else []
                build_parser().parse_args([*measurement.command, "--json", *folder])
            assert not row.full.data or row.stand_in, f"{each.name}: {row.quantity}: nothing stands in"


def test_what_other_folders_have_measured_is_taken(tmp_path, printed, monkeypatch, capsys):
    answers, runs = printed
    a, b = ("bench", "a"), ("bench", "b")
    rows = [Row(words[1], "x", "I", 10.0, "s", Measurement(words, figure_value("x"))) for words in (a, b)]
    monkeypatch.setattr(execute, "PAPERS", (paper(*rows),))
    answers |= {a: {"x": 9.0}, b: {"x": 8.0}}
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(["reproduce", "paper/a", "-o", str(first)]) == 0
    assert main(["reproduce", "paper/b", "-o", str(second)]) == 0
    both = ["reproduce", "--from", str(first), str(second), "-o", str(tmp_path / "both")]
    assert main(both) == 0
    assert runs == [a, b], "what was there has been measured again"
    assert [row["found"] for row in rows_of(tmp_path / "both")] == [9.0, 8.0]
    assert (tmp_path / "both" / "measured" / "bench-a.json").exists()  # so that the others can go
    kept = first / "measured" / "bench-a.json"
    kept.write_text(kept.read_text().replace('"fanin": "', '"fanin": "9.'))
    assert main([*both[:-1], str(tmp_path / "third")]) == 2
    assert "measured by fanin 9." in capsys.readouterr().err
    assert not (tmp_path / "third").exists(), "something was written before it was refused"
    assert main(["reproduce", "--from", str(tmp_path), "-o", str(tmp_path / "fourth")]) == 2
    assert f"--from {tmp_path}: holds no reproduction.json" in capsys.readouterr().err
    assert not (tmp_path / "fourth").exists()


def test_the_campaign_of_the_examples_has_every_paper():
    from fanin.campaign.file import read_campaign
    from fanin.cli.main import build_parser

    campaign = read_campaign(Path("examples/campaigns/reproduction.toml"), build_parser())
    assert [run.words for run in campaign.runs] == [("--", each.name) for each in PAPERS]
