"""``fanin cluster verify``: its table, what a stopped one goes on with, and which layers it names."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from distributed import Client, LocalCluster

from fanin.base.errors import ToolFailed
from fanin.cli.main import main
from fanin.cnn.run import verify
from fanin.hdl.layers.components import component_of
from fanin.sim.cnn import layer_check
from tests.fanin.cli.json_page import documented
from tests.fanin.cnn.run.runs import refusal
from tests.sim.cnn.test_layer_check import Mutated

pytestmark = pytest.mark.verilator

LIMIT = 600  # seconds; a busy machine


def command(small, output, *options):
    return ["cluster", "verify", str(small.plan), *map(str, options), "-o", str(output)]


@contextlib.contextmanager
def thread_of_this_process(options, file, batch, scratch):
    """A cluster whose worker has what a test has changed in this process."""
    with (
        LocalCluster(
            processes=False, n_workers=1, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client, []


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr(verify, "connected_client", thread_of_this_process)


@pytest.fixture(scope="module")
def done(small, tmp_path_factory):
    """A verification of one layer: its folder."""
    output = tmp_path_factory.mktemp("verify") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(verify, "connected_client", thread_of_this_process)
        assert main(command(small, output, "--layers", "bias2")) == 0
    return output


@pytest.fixture
def copied(done, tmp_path):
    return shutil.copytree(done, tmp_path / "out")


def test_a_verification_counts_words_and_goes_on_with_the_layers_that_are_missing(
    small, copied, here, capsys, monkeypatch
):
    """bias1: 6·6·4 outputs and gradients of two frames, 2·4 words of state, in two runs."""
    (first,) = (copied / "layers").iterdir()
    before = first.stat().st_mtime_ns
    assert main(command(small, copied, "--layers", "bias*", "--json")) == 0
    document = documented("cluster verify", capsys.readouterr().out)
    assert [layer["name"] for layer in document["layers"]] == ["bias1", "bias2"]
    bias1, bias2 = document["layers"]
    assert bias1["words"] == 2 * (2 * 2 * 6 * 6 * 4 + 2 * 4)
    assert bias1["cycles"] == bias1["planned_cycles"] == 6 * 6 * 8  # at least 8 cycles a position
    assert bias1["as_planned"]
    assert document["words"] == bias1["words"] + bias2["words"]
    assert document["differing"] == 0
    assert first.stat().st_mtime_ns == before
    assert {path.name for path in copied.iterdir()} == {
        *(".files.json", "layers", "report.html", "verification.json")
    }
    assert "yes: every word of every layer" in (copied / "report.html").read_text()
    monkeypatch.setattr(verify, "connected_client", None)  # not needed any more
    assert main(command(small, copied, "--layers", "bias1")) == 0
    out = capsys.readouterr().out
    assert "  cycles within 1 % of plan  2 of 2 layers\n" in out


@pytest.mark.parametrize(("cycles", "status"), [(1.0, 0), (0.992, 0), (1.009, 0), (0.98, 1), (1.02, 1)])
def test_cycles_may_differ_from_the_plan_by_one_percent(small, copied, capsys, cycles, status):
    (path,) = (copied / "layers").iterdir()
    layer = json.loads(path.read_text())
    path.write_text(json.dumps(layer | {"planned_cycles": 10_000, "cycles": round(10_000 * cycles)}))
    assert main(command(small, copied, "--layers", "bias2")) == status
    out, err = capsys.readouterr()
    assert ("equal, NOT AS PLANNED" in out) == bool(status)
    assert err == status * f"fanin: error: {copied}: cycles differ from the plan by over 1 %: bias2\n"


@pytest.mark.slow
def test_a_mutated_layer_is_named_and_the_others_are_equal(small, tmp_path, here, capsys, monkeypatch):
    def mutated(stage):
        is_chosen = stage.name == "bias2"
        return Mutated(stage=stage, stream="outputs", transfer=1) if is_chosen else component_of(stage)

    monkeypatch.setattr(layer_check, "component_of", mutated)
    output = tmp_path / "out"
    assert main(command(small, output, "--layers", "bias1,bias2,relu1")) == 1
    out, err = capsys.readouterr()
    rows = {line.split()[0]: line.split()[-1] for line in out.splitlines() if line.startswith("  ")}
    assert (rows["bias1"], rows["bias2"], rows["relu1"]) == ("equal", "DIFFERS", "equal")
    assert err.startswith(f"fanin: error: {output}: bias2: output, frame ")
    assert err.endswith(", without stalls\n")
    assert main(command(small, output, "--layers", "bias2")) == 1, "the result is kept"


@pytest.mark.slow
def test_a_killed_verification_goes_on_with_what_is_missing(small, tmp_path):
    output = tmp_path / "out"
    layers = ("--layers", "bias1,bias2,relu1", "--workers", 1)
    words = [sys.executable, "-m", "fanin", *command(small, output, *layers)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT
    while not (first := list((output / "layers").glob("[0-9]*.json"))):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = {path: path.stat().st_mtime_ns for path in first}
    finished = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert finished.returncode == 0, finished.stderr
    assert len(list((output / "layers").iterdir())) == 3
    assert {path: path.stat().st_mtime_ns for path in first} == before
    assert not list(output.glob(".fanin-*"))


def test_layers_and_options_that_do_not_fit_are_refused(small, copied, tmp_path, capsys):
    def refused(*options, output=tmp_path / "new"):
        return refusal(capsys, *command(small, output, *options))

    assert refused("--layers", "bias1,conv7") == "--layers conv7: no layer of small has this name"
    assert refused("--layers", "image") == "--layers image: no layer of small has this name"
    assert refused("--frames", 1) == "frames must be in [2, 256], not 1"
    assert refused("--workers", 1, "--scheduler", "tls://a:1") == "--workers: only for the local cluster"
    assert refused(small.data, "--frames", 41) == f"--frames 41: {small.data} has 40 images"
    for option in (("--seed", 1), ("--frames", 3)):
        name = option[0][2:]
        reason = f"{copied}: its results are of another {name}; choose another -o, or delete it"
        assert refused("--layers", "bias2", *option, output=copied) == reason
    assert not (tmp_path / "new" / "verification.json").exists()


def test_images_of_a_file_are_its_first_and_a_build_may_be_given(small, tmp_path, monkeypatch):
    """What the golden model records is seen through the streams of the images' stage."""
    recorded = {}

    def record(folder, network, states, images, labels, job):
        recorded.update(images=images, labels=labels, job=job)
        raise ToolFailed("recorded")

    monkeypatch.setattr(verify, "record_streams", record)
    words = ["cluster", "verify", str(small.build), str(small.data), "--frames", "5", "-o", str(tmp_path / "o")]
    assert main(words) == 1
    with np.load(small.data) as data:
        assert np.array_equal(recorded["images"], data["x_train"][:5])
        assert np.array_equal(recorded["labels"], data["y_train"][:5])
    assert recorded["job"].last_eta == np.float32(-0.1 / 5)
