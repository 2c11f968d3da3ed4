"""A run of ``fanin ring train`` goes on from the folder of another; what a failed one leaves; the doctor."""

import json

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.ring import train_cosim
from tests.fanin.ring.run.runs import FILES, RTL, SMALL, STEPS, refused, run, run_json, state_of


@pytest.mark.parametrize(
    "codec",
    ["", "--codec bfp --block 8", "--codec inceptionn --bound 0.015625", "--codec bf16 --rounding stochastic"],
)
def test_a_resumed_run_ends_as_the_whole_one(capsys, tmp_path, codec):
    whole = run_json(capsys, tmp_path / "whole", f"{SMALL} --seed 3 {codec}")
    run_json(capsys, tmp_path / "first", f"{SMALL} --seed 3 --epochs 1 {codec}")
    rest = run_json(capsys, tmp_path / "rest", f"--resume {tmp_path / 'first'} --epochs 3 --on model")
    assert state_of(tmp_path / "rest").equals(state_of(tmp_path / "whole"))
    assert rest["configuration"] == whole["configuration"]
    assert (rest["resumed"], rest["first_epoch"], rest["steps"]) == (str(tmp_path / "first"), 2, 2 * STEPS)
    assert [epoch["epoch"] for epoch in rest["epochs"]] == [2, 3]
    for mine, theirs in zip(rest["epochs"], whole["epochs"][1:], strict=True):
        assert {**mine, "simulated_seconds": 0} == {**theirs, "simulated_seconds": 0}
    assert rest["distance"] == whole["distance"]


def test_random_bits_of_groups_go_on_where_the_first_run_ended(capsys, tmp_path):
    given = f"{SMALL} --nodes 4 --groups 2x2 --codec mx --element e2m1 --rounding stochastic"
    run_json(capsys, tmp_path / "whole", f"{given} --epochs 2")
    run_json(capsys, tmp_path / "first", f"{given} --epochs 1")
    run_json(capsys, tmp_path / "rest", f"--resume {tmp_path / 'first'} --epochs 2 --on model")
    assert state_of(tmp_path / "rest").equals(state_of(tmp_path / "whole"))


def test_a_run_is_resumed_in_its_own_folder_with_the_same_options(capsys, tmp_path):
    run_json(capsys, tmp_path / "out", SMALL)
    given = f"{SMALL} --epochs 4 --lr 0.1 --seed 0 digits"
    found = run_json(capsys, tmp_path / "out", f"{given} --resume {tmp_path / 'out'}")
    assert found["first_epoch"] == 4
    assert "This run resumes" in (tmp_path / "out" / "report.html").read_text()


def test_a_run_of_before_the_learning_rate_was_renamed_is_resumed(capsys, tmp_path):
    folder = tmp_path / "run"
    found = run_json(capsys, folder, f"{SMALL} --lr 0.25")
    options = found["configuration"]
    options["rate"] = options.pop("lr")
    (folder / "run.json").write_text(json.dumps(found))
    rest = run_json(capsys, tmp_path / "rest", f"--on model --resume {folder} --epochs 4")
    assert rest["configuration"]["lr"] == 0.25


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("", "epochs must be more than the 3 that FOLDER has, not 3"),
        ("--epochs 4 --lr 0.2", "--lr 0.2: FOLDER was trained with 0.1"),
        ("--epochs 4 --layers 64,10", "--layers 64,10: FOLDER was trained with 64,16,10"),
        ("--epochs 4 --nodes 4", "--nodes 4: FOLDER was trained with 3"),
        ("--epochs 4 --codec bfp", "--codec bfp: FOLDER was trained with none"),
        ("--epochs 4 --bound 2^-6", "--bound 2^-6: FOLDER was trained with none"),
        ("--epochs 4 other.npz", "DATA other.npz: FOLDER was trained with digits"),
    ],
)
def test_what_contradicts_the_run_that_is_resumed_is_refused(capsys, tmp_path, arguments, cause):
    folder = tmp_path / "run"
    run_json(capsys, folder)
    given = arguments if "--epochs" in arguments else "--epochs 3"
    err = refused(capsys, tmp_path, f"--on model --resume {folder} {given}")
    assert cause.replace("FOLDER", str(folder)) in err


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("run.json", "{}", "FOLDER: not a run of fanin ring train, cannot be resumed"),
        ("run.json", '{"all_reduces": 1}', '"configuration" is missing'),
        ("run.json", '{"all_reduces": 1, "configuration": {}}', 'configuration: "data" is missing'),
        (
            "run.json",
            '{"all_reduces": 1, "configuration": {"data": "digits", "layers": "64,10", "batch": "32"}}',
            "run.json: configuration: batch must be an integer, not '32'",
        ),
        ("state.npz", None, "no such file: the run has no state to resume from"),
        ("state.npz", "text", "no state of such a network"),
    ],
)
def test_a_folder_that_cannot_be_resumed_is_named(capsys, tmp_path, name, content, cause):
    folder = tmp_path / "run"
    run_json(capsys, folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    err = refused(capsys, tmp_path, f"--on model --resume {folder} --epochs 4")
    assert cause.replace("FOLDER", str(folder)) in err


def test_a_state_of_another_network_or_within_an_epoch_is_refused(capsys, tmp_path):
    folder = tmp_path / "run"
    run_json(capsys, folder)
    path = folder / "state.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    for changes, cause in (
        ({"parameters0": np.zeros(5, np.float32)}, "no state of such a network"),
        ({"velocities1": arrays["velocities1"].astype(np.float64)}, "no state of such a network"),
        ({"step": np.array([3])}, "no state of such a network"),
        ({"step": np.int64(STEPS + 1)}, f"step {STEPS + 1} ends no epoch of {STEPS} steps"),
    ):
        np.savez(path, **(arrays | changes))
        assert cause in refused(capsys, tmp_path, f"--on model --resume {folder} --epochs 4")


def test_a_state_that_was_changed_is_no_golden_one(capsys, tmp_path):
    folder = tmp_path / "run"
    run_json(capsys, folder)
    path = folder / "state.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["parameters1"][0] += 1
    np.savez(path, **arrays)
    status, _, err = run(capsys, tmp_path / "out", f"--on model --resume {folder} --epochs 4")
    assert status == 1
    assert "the weights are not the golden model's" in err
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*FILES} - {"state.npz"}
    found = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (found["bit_exact"], found["error"]) == (False, "the weights are not the golden model's")
    err = refused(capsys, tmp_path, f"--on model --resume {tmp_path / 'out'} --epochs 5")
    assert "state.npz: no such file" in err


@pytest.fixture
def dies(monkeypatch):
    """A simulation that ends when one step of the second epoch has been made."""

    def simulate(job, data, state, *, link, pcap, link_log, wave, progress, quiet):
        progress(STEPS + 1)
        if pcap:
            pcap.write_bytes(b"frames")
        raise SimulationFailed("node 1 has stopped answering:\nnode 0 gives up")

    monkeypatch.setattr(train_cosim, "run_rtl", simulate)


def test_a_run_that_fails_says_why_and_can_be_resumed(capsys, tmp_path, dies):
    folder, packets = tmp_path / "run", tmp_path / "packets.pcap"
    status, out, err = run(capsys, folder, f"{RTL} --stop 1:1e-4 --pcap {packets}")
    assert (status, out) == (1, "")
    cause = "node 1 has stopped answering: node 0 gives up"
    assert err == f"fanin: error: {cause} (fanin doctor {folder} says more)\n"
    assert packets.read_bytes() == b"frames"  # when they are needed most
    assert {path.name for path in folder.iterdir()} == {*FILES, "link.lua"}
    assert cause in (folder / "report.html").read_text()
    found = json.loads((folder / "run.json").read_text())
    assert (found["error"], found["steps"], found["steps_asked"]) == (cause, STEPS + 1, 3 * STEPS)
    whole = run_json(capsys, tmp_path / "whole")
    rest = run_json(capsys, tmp_path / "rest", f"--on model --resume {folder} --epochs 3")
    assert rest["first_epoch"] == 2
    assert rest["accuracy"] == whole["accuracy"]
    assert state_of(tmp_path / "rest").equals(state_of(tmp_path / "whole"))


def test_a_run_that_fails_in_its_first_epoch_has_no_state(capsys, tmp_path, dies, monkeypatch):
    folder = tmp_path / "run"
    status, _, _ = run(capsys, folder, f"{RTL} --batch 100 --stop 1:1e-4")  # epochs of 4 steps: two are whole
    assert (status, state_of(folder).step) == (1, 8)
    status, _, _ = run(capsys, folder, f"{RTL} --batch 20")  # epochs of 22 steps
    assert (status, {path.name for path in folder.iterdir()}) == (1, {*FILES} - {"state.npz"})


def test_the_doctor_says_how_far_a_run_got(capsys, tmp_path, dies):
    folder = tmp_path / "run"
    run(capsys, folder, RTL)
    assert main(["doctor", str(folder)]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith(f"all nodes have made {STEPS + 1} of {3 * STEPS} steps")
    assert f"fanin ring train --resume {folder}" in captured.out
    assert captured.err == "fanin: error: node 1 has stopped answering: node 0 gives up\n"
    run_json(capsys, folder)
    assert main(["doctor", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(f"all nodes have made {3 * STEPS} of {3 * STEPS} steps")
    assert main(["doctor", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "error": None,
        "steps": 3 * STEPS,
        "steps_asked": 3 * STEPS,
        "nodes": [],
        "advice": None,
        "process": None,
    }


def test_the_doctor_counts_what_links_lost(capsys, tmp_path):
    folder = tmp_path / "run"
    found = run_json(capsys, folder)
    names = ("sent", "retransmitted", "received", "bad_fcs", "duplicates", "out_of_order")
    found["counters"] = [{name: 10 * node + place for place, name in enumerate(names)} for node in range(3)]
    (folder / "run.json").write_text(json.dumps(found))
    assert main(["doctor", str(folder)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2] == "node 1 sent 10, again 11 received 12, bad FCS 13, duplicate 14, out of order 15"
    transport = found | {"counters": [{"segments": 5}]}
    transport["configuration"] = found["configuration"] | {"system": "inceptionn"}
    (folder / "run.json").write_text(json.dumps(transport))
    assert main(["doctor", str(folder)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1  # how far it got
    found["counters"] = [{}]
    (folder / "run.json").write_text(json.dumps(found))
    assert main(["doctor", str(folder)]) == 2
    assert 'counters[0]: "sent" is missing' in capsys.readouterr().err


def test_layers_of_a_run_are_widths_and_no_file(capsys, tmp_path):
    (tmp_path / "secret").write_text("hunter2")
    folder = tmp_path / "run"
    found = run_json(capsys, folder, SMALL)
    found["configuration"]["layers"] = str(tmp_path / "secret")
    (folder / "run.json").write_text(json.dumps(found))
    status, _, said = run(capsys, tmp_path / "rest", f"--resume {folder} --epochs 4 --on model")
    assert status == 2
    assert "layers must be widths, not " in said
    assert "hunter2" not in said
