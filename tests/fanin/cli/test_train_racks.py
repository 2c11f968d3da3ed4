"""``fanin train --racks``: files of every switch, resumption, wrong trees."""

import json

import pytest

from fanin.cli.main import main
from fanin.p4.deployment import load_deployment
from tests.support import slow

OPTIONS = ["breast_cancer", "--preset", "tiny", "--racks", "2x2"]


def run(*words):
    return main(["train", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("racks") / "run"
    assert run(*OPTIONS, "--epochs", 2, "--drop", 0.01, "-o", folder) == 0
    return folder


pytestmark = pytest.mark.verilator


@pytest.mark.end_to_end
def test_a_run_counts_every_switch_and_every_link(folder):
    record = json.loads((folder / "run.json").read_text())
    assert record["bit_exact"]
    assert record["options"]["workers"] == 4
    assert record["options"]["network"]["racks"] == [2, 2]
    assert record["switches"].keys() == {"switch", "switch-0", "switch-1"}
    assert record["trunks"].keys() == {f"switch-{n} {way}" for n in (0, 1) for way in ("up", "down")}
    assert sum(trunk["dropped"] for trunk in record["trunks"].values()) > 0
    page = (folder / "report.html").read_text()
    assert "Links between switches" in page
    assert "to_parent_again" in page


@pytest.mark.parametrize("name", ["", "-switch-0", "-switch-1"])
def test_each_switchs_frames_replay_on_its_own(folder, name, capsys):
    job, frames = folder / f"job{name}.json", folder / f"frames{name}.pcap"
    (part,) = load_deployment(job).jobs
    assert (part.uplink is None) == (not name)
    capsys.readouterr()
    assert (
        main(["p4", "run", str(folder / "aggregation.p4"), "--job", str(job), "--recorded", str(frames)]) == 0
    )
    assert capsys.readouterr().out.splitlines()[-1].endswith(" equal, 0 differ")


def test_the_trace_names_the_roots_members(folder):
    names = {
        event["args"].get("name")
        for event in json.loads((folder / "trace.json").read_text())["traceEvents"]
        if event["ph"] == "M"
    }
    assert {"from switch-0", "from switch-1", "to switch-0", "to switch-1"} <= names


def test_a_stopped_worker_and_a_resumed_run(tmp_path, folder):
    states = tmp_path / "states"
    assert run(*OPTIONS, "--epochs", 1, "--checkpoint", 1, "-o", states) == 0
    assert {"frames-switch-1.pcap", "job-switch-1.json"} <= {path.name for path in states.iterdir()}
    assert not list(states.glob(".fanin-*"))
    assert run("--resume", states, "--epochs", 2) == 0
    assert (states / "model.npz").read_bytes() == (folder / "model.npz").read_bytes()
    record = json.loads((states / "run.json").read_text())
    results = [counters["results"] for counters in record["switches"].values()]
    assert len(set(results)) == 1
    assert results[0] == json.loads((folder / "run.json").read_text())["switches"]["switch"]["results"]


def test_the_doctor_names_the_rack_that_stopped(tmp_path, capsys):
    folder = tmp_path / "run"
    assert (
        run(*OPTIONS, "--epochs", 2, "--stop", "3:2e-5", "--timeout-ns", 3000, "--retries", 4, "-o", folder)
        == 1
    )
    assert "node 3 stopped" in capsys.readouterr().err
    assert main(["doctor", str(folder)]) == 1
    lines = capsys.readouterr().out.splitlines()
    heading = [number for number, line in enumerate(lines) if line.startswith("switch  ")]
    rows = [line.split() for line in lines[heading[0] : heading[0] + 4]]
    assert [row[0] for row in rows] == ["switch", "switch", "switch-0", "switch-1"]
    assert int(rows[3][2]) < int(rows[2][2]), "ACKs of the second rack"
    assert lines[heading[0] + 4].startswith("switch-1 lacks ")
    assert lines[heading[0] + 4].endswith(" ACKs of its 2 members")


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["--racks", "2x33"], "--racks: a switch must have 1 to 32 members, not 33"),
        (
            ["--racks", "x"],
            "--racks: a tree must be like 4x8 (four racks of eight workers), 2x4x8 or 1+2, not 'x'",
        ),
        (["--racks", "2x2", "--workers", "3"], "--workers 3: --racks 2x2 has 4"),
        (
            ["--racks", "2x2", "--switch", "bmv2"],
            "--racks: not with --switch bmv2; embedded and reference make trees",
        ),
        (
            ["--racks", "2x2", "--ports", "lo"],
            "--racks needs simulated switches; it cannot be given with --ports",
        ),
    ],
)
def test_a_wrong_tree_takes_one_line(tmp_path, capsys, words, cause):
    assert run("breast_cancer", *words, "-o", tmp_path / "run") == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert cause in printed.err
    assert printed.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", slow("2x4", "4x8", "2x2x4"))
@pytest.mark.parametrize("data", slow("breast_cancer", "digits"))
def test_trees_train_real_data(tmp_path, data, text):
    faults = [word for fault in ("drop", "duplicate", "reorder", "corrupt") for word in (f"--{fault}", "0.02")]
    assert run(data, "--preset", "tiny", "--racks", text, "--epochs", 1, *faults, "-o", tmp_path / "run") == 0
