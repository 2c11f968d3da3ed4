"""``fanin train`` from end to end on the smallest nodes: what it writes, and what the doctor makes of it."""

import functools
import json
import re

import numpy as np
import pytest
from scapy.utils import RawPcapNgReader, RawPcapReader

from fanin.cli.main import main
from fanin.sim.cosim.exchange import STEPS
from fanin.sim.glm.cosim import Cosim

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


class OneCosim(Cosim):
    """Nodes whose Verilog is written once."""

    verilog = functools.cached_property(Cosim.verilog.fget)


@pytest.fixture(scope="module", autouse=True)
def equal_nodes_are_made_once():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fanin.sim.glm.train.Cosim", functools.cache(OneCosim))
        yield


def _run(capsys, *arguments):
    status = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture(scope="module")
def lossless(tmp_path_factory):
    """A run's folder, and the model's copy in it."""
    folder = tmp_path_factory.mktemp("lossless") / "run"
    model = folder / "weights.npy"
    assert main([*NODES, "-o", str(folder), "--model-out", str(model)]) == 0
    return folder, np.load(model)


def test_the_model_is_int32_in_column_order_with_the_bias_last(lossless):
    folder, model = lossless
    assert (model.dtype, model.shape) == (np.int32, (31,))
    assert np.array_equal(model, np.load(folder / "model.npy"))


def test_json_has_every_key_and_equals_the_file(capsys, tmp_path, lossless):
    status, out, _ = _run(capsys, *NODES, "-o", tmp_path / "run", "--json")
    result = json.loads(out)
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
    assert page.count("<svg") == 4
    assert "bit-exact with the golden model" in page
    assert "forward of micro-batch 1 of mini-batch 1" in page


def test_the_doctor_follows_the_first_packet_to_its_end(capsys, lossless):
    status, out, _ = _run(capsys, "doctor", lossless[0], "--json")
    nodes = json.loads(out)["nodes"]
    assert status == 0
    assert [list(node["steps"]) for node in nodes] == [list(STEPS)] * 2
    assert [node["missing"] for node in nodes] == [None] * 2


@pytest.mark.slow
def test_faults_change_nothing_but_the_time(capsys, tmp_path, lossless):
    faults = [text for fault in ("drop", "duplicate", "reorder", "corrupt") for text in (f"--{fault}", "0.02")]
    status, out, _ = _run(capsys, *NODES, *faults, "--seed", 0, "-o", tmp_path / "run", "--json")
    result = json.loads(out)
    assert status == 0
    assert np.array_equal(np.load(tmp_path / "run" / "model.npy"), lossless[1])
    assert min(result["retransmissions"], result["duplicates"], result["frames_rejected"]) > 0
    status, out, _ = _replay(capsys, tmp_path / "run")
    assert (status, out.split()[-2:]) == (0, ["0", "differ"])


@pytest.mark.slow
def test_switchml_trains_the_same_model_without_an_ack(capsys, tmp_path, lossless):
    folder = tmp_path / "run"
    status, out, _ = _run(capsys, *NODES, "--protocol", "switchml", "-o", folder, "--json")
    result = json.loads(out)
    assert status == 0
    assert result["bit_exact"] is True
    assert result["options"]["node"]["protocol"] == "switchml"
    assert np.array_equal(np.load(folder / "model.npy"), lossless[1])
    assert result["packets"] == 2 * 2 * -(-426 // 8)  # an AGG for each micro-batch of 2 nodes in 2 epochs
    assert [node["ack_sent"] + node["confirms"] + node["bad_malformed"] for node in result["counters"]] == [
        0,
        0,
    ]
    assert "<td>switchml</td>" in (folder / "report.html").read_text()
    status, out, _ = _run(capsys, "doctor", folder, "--json")
    nodes = json.loads(out)["nodes"]
    assert status == 0
    assert [(list(node["steps"]), node["missing"]) for node in nodes] == [(list(STEPS[:4]), None)] * 2


@pytest.mark.slow
def test_faults_change_nothing_in_switchml_either(capsys, tmp_path, lossless):
    faults = [text for fault in ("drop", "duplicate", "reorder", "corrupt") for text in (f"--{fault}", "0.02")]
    status, out, _ = _run(capsys, *NODES, "--protocol", "switchml", *faults, "-o", tmp_path / "run", "--json")
    result = json.loads(out)
    assert status == 0
    assert np.array_equal(np.load(tmp_path / "run" / "model.npy"), lossless[1])
    assert min(result["retransmissions"], result["duplicates"], result["frames_rejected"]) > 0


def test_a_dead_network_ends_the_run_and_the_doctor_says_where(capsys, tmp_path):
    folder = tmp_path / "run"
    dead = ("--drop", 1, "--retries", 2, "--timeout-ns", 2000)
    capture = tmp_path / "copy.pcap"
    status, out, err = _run(capsys, *NODES, *dead, "-o", folder, "--json", "--pcap", capture)
    assert status == 1
    assert capture.read_bytes() == (folder / "frames.pcap").read_bytes()
    assert not (folder / "model.npy").exists()
    result = json.loads(out)
    assert "TIMEOUT" in result["error"]
    assert any(counters.get("retransmissions", 0) >= 2 for counters in result["counters"]), result["counters"]
    assert err.count("\n") == 1
    status, out, err = _run(capsys, "doctor", folder)
    assert status == 1
    assert "AGG reached the switch       never" in out
    assert re.search(r"link of node 0, up: dropped [1-9]", out)
