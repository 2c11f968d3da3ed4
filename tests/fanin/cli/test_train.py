"""``fanin train`` from end to end on the smallest nodes: what it writes, and what the doctor makes of it."""

import functools
import html
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from scapy.utils import RawPcapNgReader, RawPcapReader
from sklearn.datasets import load_iris

from fanin.base.cache import BUILDS, EMISSION
from fanin.cli.main import main
from fanin.sim.glm.cosim import Cosim
from fanin.sim.switch.operations import Step
from tests.fanin.cli.json_page import RIGHT, documented, wrong
from tests.fanin.report.drawn import bars, figures, points

pytestmark = pytest.mark.verilator

NODES = ("train", "breast_cancer", "--preset", "tiny", "--workers", "2", "--epochs", "2")
KEYS = {
    "bit_exact",
    "epochs",
    "test_accuracy",
    "cycles_ideal",
    "utilization",
    "allreduce_ns",
    "packets",
    "retransmissions",
    "duplicates",
    "frames_rejected",
    "clamps",
    "verilog_sha256",
}


@pytest.fixture(scope="module", autouse=True)
def equal_nodes_are_made_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fanin.sim.glm.train.Cosim", functools.cache(Cosim))
        yield


def _run(capsys, *arguments):
    status = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(scope="module")
def lossless(tmp_path_factory):
    """A run's folder, and the weights of the model's copy in it."""
    folder = tmp_path_factory.mktemp("lossless") / "run"
    model = folder / "copy.npz"
    assert main([*NODES, "-o", str(folder), "--model-out", str(model)]) == 0
    return folder, np.load(model)["weights"]


def test_the_model_is_int32_in_column_order_with_the_bias_last(lossless):
    folder, model = lossless
    assert (model.dtype, model.shape) == (np.int32, (31,))
    assert np.array_equal(model, np.load(folder / "model.npz")["weights"])


def test_json_has_every_key_and_equals_the_file(capsys, tmp_path, lossless):
    status, out, _ = _run(capsys, *NODES, "-o", tmp_path / "run", "--json")
    result = documented("train", out)
    assert status == 0
    assert result == json.loads((lossless[0] / "run.json").read_text())  # a run is repeatable to the last count
    assert set(result) >= KEYS
    assert result["bit_exact"] is True
    assert [set(epoch) for epoch in result["epochs"]] == [{"loss", "accuracy", "cycles"}] * 2
    assert set(result["allreduce_ns"]) == {"p50", "p99"}


def test_the_sums_are_right(lossless):
    result = json.loads((lossless[0] / "run.json").read_text())
    micro_batches = -(-426 // 8)
    assert result["cycles_ideal"] == 2 * micro_batches * 2 * 4  # 2 epochs, C = 2 chunks, s = 4 planes
    assert result["utilization"] == result["cycles_ideal"] / sum(e["cycles"] for e in result["epochs"])
    assert result["packets"] == 2 * 2 * 2 * micro_batches  # AGG and ACK of 2 nodes in 2 epochs
    assert (result["retransmissions"], result["duplicates"], result["frames_rejected"]) == (0, 0, 0)


def test_a_rate_that_is_too_large_is_warned_of_everywhere(capsys, tmp_path, lossless):
    quiet = json.loads((lossless[0] / "run.json").read_text())
    assert (quiet["warning"], quiet["options"]["lr"]) == (None, 1)  # the default, as a number
    assert 'class="verdict good"' in (lossless[0] / "report.html").read_text()
    status, out, _ = _run(capsys, *NODES, "--lr", 1000, "-o", tmp_path / "run")
    warning = json.loads((tmp_path / "run" / "run.json").read_text())["warning"]
    assert (status, "exceeds chance, 0.6931: a --lr below 1000 may help" in warning) == (0, True)
    assert f"warning        {warning}\n" in out
    page = (tmp_path / "run" / "report.html").read_text()
    assert f'class="verdict near">bit-exact with the golden model, but {warning}</p>' in page


def test_the_capture_holds_every_frame_in_order(lossless):
    result = json.loads((lossless[0] / "run.json").read_text())
    with RawPcapReader(str(lossless[0] / "frames.pcap")) as reader:
        assert not isinstance(reader, RawPcapNgReader)
        frames = [(meta.sec * 10**9 + meta.usec, data) for data, meta in reader]
    assert len(frames) == 2 * result["packets"]  # each goes in and comes out
    assert {len(data) for _, data in frames} == {60}
    assert [time for time, _ in frames] == sorted(time for time, _ in frames)


def _replay(capsys, folder):
    """What a run's switch received goes through the program that the run leaves."""
    program, job, frames = (folder / name for name in ("aggregation.p4", "job.json", "frames.pcap"))
    return _run(capsys, "p4", "run", program, "--job", job, "--recorded", frames)


def test_the_program_answers_a_recorded_run_as_its_switch_did(capsys, lossless):
    packets = json.loads((lossless[0] / "run.json").read_text())["packets"]
    status, out, err = _replay(capsys, lossless[0])
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"{packets} recorded answers: {packets} equal, 0 differ"


def test_the_report_shows_what_was_measured(lossless):
    page = (lossless[0] / "report.html").read_text()
    result, drawn = json.loads((lossless[0] / "run.json").read_text()), figures(page)
    assert len(drawn) == 6
    assert "bit-exact with the golden model" in page
    assert "forward of micro-batch 1 of mini-batch 1" in page
    losses, accuracies = ([epoch[key] for epoch in result["epochs"]] for key in ("loss", "accuracy"))
    for chart, line, values in (
        ("loss over epoch", "RTL", losses),
        ("loss over epoch", "golden model", result["golden_loss"]),
        ("loss over epoch", "float64", result["float64_loss"]),
        ("accuracy of training samples over epoch", "RTL", accuracies),
        ("accuracy of training samples over epoch", "float64", result["float64_accuracy"]),
    ):
        assert points(drawn[chart], line) == list(enumerate(values, start=1))
    for bar in bars(drawn["Cycles of forward by cause"]):
        if bar.series == "word taken":
            counters = result["counters"][bar.place]
            engines = result["options"]["node"]["engines"]
            assert bar.size == pytest.approx(counters["words"] / (counters["cycles"] * engines))
    operations = sum(bar.size for bar in bars(drawn["Histogram of AllReduce latency"]))
    assert operations == sum(counters["results"] for counters in result["counters"])


def test_the_doctor_follows_the_first_packet_to_its_end(capsys, lossless):
    status, out, _ = _run(capsys, "doctor", lossless[0], "--json")
    nodes = documented("doctor, of train", out)["nodes"]
    assert status == 0
    assert [list(node["steps"]) for node in nodes] == [list(Step)] * 2
    assert [node["missing"] for node in nodes] == [None] * 2


def test_samples_in_hbm_change_cycles_and_no_bit(capsys, tmp_path, lossless):
    folder = tmp_path / "run"
    status, out, _ = _run(capsys, *NODES, "--memory", "hbm2", "--ports-per-channel", 3, "-o", folder, "--json")
    result, before = documented("train", out), json.loads((lossless[0] / "run.json").read_text())
    assert (status, result["bit_exact"]) == (0, True)
    assert np.array_equal(np.load(folder / "model.npz")["weights"], lossless[1])
    assert result["cycles"] != before["cycles"]
    assert ">ports-per-channel</th><td>3</td>" in (folder / "report.html").read_text()
    assert (before["options"]["hbm"], result["options"]["hbm"]["ports_per_channel"]) == (None, 3)


def test_an_interrupted_run_leaves_what_it_knows(capsys, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(Cosim, "train", interrupted)
    folder = tmp_path / "run"
    status, out, err = _run(capsys, *NODES, "-o", folder, "--json")
    last = err.splitlines()[-1]  # lines about the simulator's build come first, where none is kept
    assert (status, last) == (130, f"fanin: error: interrupted (fanin doctor {folder} says more)")
    assert documented("train", out)["error"] == "interrupted"
    assert "interrupted" in (folder / "report.html").read_text()
    assert _run(capsys, "doctor", folder)[0] == 1
    assert _run(capsys, "rerun", folder)[0] == 2  # there is nothing to compare with


def test_the_frames_have_their_dissector(lossless):
    assert "aggregation" in (lossless[0] / "aggregation.lua").read_text()


@pytest.mark.slow
def test_faults_change_nothing_but_the_time(capsys, tmp_path, lossless):
    faults = [text for fault in ("drop", "duplicate", "reorder", "corrupt") for text in (f"--{fault}", "0.02")]
    status, out, _ = _run(capsys, *NODES, *faults, "--seed", 0, "-o", tmp_path / "run", "--json")
    result = json.loads(out)
    assert status == 0
    assert np.array_equal(np.load(tmp_path / "run" / "model.npz")["weights"], lossless[1])
    assert min(result["retransmissions"], result["duplicates"], result["frames_rejected"]) > 0
    status, out, _ = _replay(capsys, tmp_path / "run")
    assert (status, out.split()[-2:]) == (0, ["0", "differ"])


@pytest.mark.slow
def test_weights_that_decay_are_the_golden_models_under_faults_and_recorded(capsys, tmp_path, lossless):
    folder = tmp_path / "run"
    status, out, _ = _run(capsys, *NODES, "--l2", 0.002, "--drop", 0.02, "-o", folder)
    assert status == 0
    assert "λ = 0.001953 for 0.002: each mini-batch takes 2^-9 of the weights, except the bias" in out
    result = json.loads((folder / "run.json").read_text())
    assert (result["bit_exact"], result["l2"], result["decay_shift"]) == (True, 2.0**-9, 9)
    assert (result["options"]["l2"], result["options"]["node"]["l2"]) == (0.002, True)
    model = np.load(folder / "model.npz")
    assert model["l2"] == 2.0**-9
    assert np.linalg.norm(model["weights"][:-1]) < np.linalg.norm(lossless[1][:-1])
    assert "<td>0.001953</td>" in (folder / "report.html").read_text()


@pytest.fixture
def iris(tmp_path):
    """150 samples of three species, by name."""
    flowers = load_iris()
    path = tmp_path / "iris.npz"
    np.savez(path, X=flowers.data, y=flowers.target_names[flowers.target])
    return path


@pytest.mark.slow
def test_a_command_trains_all_classes_and_predict_takes_the_likeliest(capsys, tmp_path, iris):
    folder = tmp_path / "run"
    command = ("train", iris, *NODES[2:], "--l2", 0.002, "-o", folder)
    status, out, err = _run(capsys, *command)
    assert status == 0
    assert "3 classes, 112 samples × 5 columns" in out
    whole = json.loads((folder / "run.json").read_text())
    assert wrong("train", whole) == RIGHT
    assert (whole["bit_exact"], whole["classes"]) == (True, ["setosa", "versicolor", "virginica"])
    parts = [json.loads((folder / "classes" / str(n) / "run.json").read_text()) for n in range(3)]
    assert [part["against_the_rest"] for part in parts] == whole["classes"]
    assert whole["cycles"] == sum(part["cycles"] for part in parts)
    assert "versicolor against the rest" in (folder / "classes" / "1" / "report.html").read_text()
    assert _replay(capsys, folder / "classes" / "2")[0] == 0
    assert _run(capsys, "doctor", folder / "classes" / "0")[0] == 0
    status, _, err = _run(capsys, "doctor", folder)
    assert (status, "has a run for each class: name" in err) == (2, True)

    status, out, _ = _run(capsys, "predict", folder, iris, "--json", "-o", tmp_path / "said.csv")
    found = json.loads(out)
    assert found["accuracy"] == pytest.approx((112 * whole["accuracy"] + 38 * whole["test_accuracy"]) / 150)
    assert (tmp_path / "said.csv").read_text().startswith("prediction,sum_setosa,sum_versicolor,sum_virginica,")
    status, _, _ = _run(capsys, *NODES, "-o", folder)  # a run of two classes takes its place
    assert (status, (folder / "classes").exists()) == (0, False)


@pytest.mark.slow
def test_a_class_whose_nodes_stop_is_named(capsys, tmp_path, iris):
    dead = ("--drop", 1, "--retries", 2, "--timeout-ns", 2000, "--l2", 0.002)
    status, _, err = _run(capsys, "train", iris, *NODES[2:], *dead, "-o", tmp_path / "run")
    assert status == 1
    assert re.search(r"TIMEOUT.*fanin doctor .*run/classes/0 says more", err.splitlines()[-1])
    assert not (tmp_path / "run" / "model.npz").exists()
    assert _run(capsys, "doctor", tmp_path / "run" / "classes" / "0")[0] == 1


def test_several_classes_have_no_single_capture(capsys, tmp_path, iris):
    status, _, err = _run(
        capsys, "train", iris, *NODES[2:], "--pcap", tmp_path / "x.pcap", "-o", tmp_path / "run"
    )
    assert status == 2
    assert f"--pcap: 3 classes have a capture each, in {tmp_path}/run/classes" in err


@pytest.mark.parametrize("l2", ["-1", "nan", "1e-8", "0.8"])
def test_a_lambda_that_nodes_cannot_have_is_refused(capsys, tmp_path, l2):
    status, _, err = _run(capsys, *NODES, "--l2", l2, "-o", tmp_path / "run")
    assert (status, err.count("\n")) == (2, 1)
    assert err.startswith("fanin: error: l2 must be")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_switchml_trains_the_same_model_without_an_ack(capsys, tmp_path, lossless):
    folder = tmp_path / "run"
    status, out, _ = _run(capsys, *NODES, "--protocol", "switchml", "-o", folder, "--json")
    result = json.loads(out)
    assert status == 0
    assert result["bit_exact"] is True
    assert result["options"]["node"]["protocol"] == "switchml"
    assert np.array_equal(np.load(folder / "model.npz")["weights"], lossless[1])
    assert result["packets"] == 2 * 2 * -(-426 // 8)  # an AGG for each micro-batch of 2 nodes in 2 epochs
    assert [node["ack_sent"] + node["confirms"] + node["bad_malformed"] for node in result["counters"]] == [
        0,
        0,
    ]
    assert "<td>switchml</td>" in (folder / "report.html").read_text()
    status, out, _ = _run(capsys, "doctor", folder, "--json")
    nodes = json.loads(out)["nodes"]
    assert status == 0
    assert [(list(node["steps"]), node["missing"]) for node in nodes] == [(list(Step)[:4], None)] * 2


@pytest.mark.slow
def test_faults_change_nothing_in_switchml_either(capsys, tmp_path, lossless):
    faults = [text for fault in ("drop", "duplicate", "reorder", "corrupt") for text in (f"--{fault}", "0.02")]
    status, out, _ = _run(capsys, *NODES, "--protocol", "switchml", *faults, "-o", tmp_path / "run", "--json")
    result = json.loads(out)
    assert status == 0
    assert np.array_equal(np.load(tmp_path / "run" / "model.npz")["weights"], lossless[1])
    assert min(result["retransmissions"], result["duplicates"], result["frames_rejected"]) > 0


def test_a_dead_network_ends_the_run_and_the_doctor_says_where(capsys, tmp_path):
    folder = tmp_path / "run"
    dead = ("--drop", 1, "--retries", 2, "--timeout-ns", 2000)
    capture = tmp_path / "copy.pcap"
    status, out, err = _run(capsys, *NODES, *dead, "-o", folder, "--json", "--pcap", capture)
    assert status == 1
    assert capture.read_bytes() == (folder / "frames.pcap").read_bytes()
    assert not (folder / "model.npz").exists()
    result = documented("train", out)
    assert result["error"] in html.unescape((folder / "report.html").read_text())
    assert "TIMEOUT" in result["error"]
    assert any(counters.get("retransmissions", 0) >= 2 for counters in result["counters"]), result["counters"]
    assert err.count("\n") == 1
    status, out, err = _run(capsys, "doctor", folder)
    assert status == 1
    assert "AGG reached the switch       never" in out
    assert re.search(r"link of node 0, up: dropped [1-9]", out)


@pytest.mark.slow
def test_runs_at_once_with_one_cold_cache_equal_a_run_by_itself(tmp_path):
    environment = os.environ | {"FANIN_CACHE": str(tmp_path / "cache")}

    def start(name):
        command = [sys.executable, "-m", "fanin", *NODES, "-o", tmp_path / name]
        return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    at_once = [start(name) for name in ("a", "b", "c")]
    said = "".join(run.communicate(timeout=1500)[1] for run in at_once)
    assert [run.returncode for run in at_once] == [0, 0, 0]
    assert said.count("simulator built in") == 1
    assert said.count("another process builds the simulator") == 2
    assert [len(list((tmp_path / "cache" / kind).iterdir())) for kind in (EMISSION, BUILDS)] == [1, 1]
    assert start("d").communicate(timeout=1500)[1] == "", "nothing is built again"
    for file in ("run.json", "model.npz", "frames.pcap"):
        assert len({(tmp_path / run / file).read_bytes() for run in "abcd"}) == 1
