"""``fanin ring train``: what it writes, what it says, how it goes on, and every kind of bad input."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest
from scapy.utils import rdpcap

from fanin.cli.codec.options import PARAMETERS
from fanin.cli.main import main
from fanin.cli.output import RING_RUN
from fanin.cli.ring import smart_nic
from fanin.cli.ring.defaults import DEFAULTS, EXCHANGES, OF_MODEL, OF_SMART_NIC
from fanin.cli.ring.resume import load_state
from fanin.cli.ring.train import OVERLAPS
from fanin.errors import CheckFailed
from fanin.golden.mlp import Mlp
from fanin.inceptionn import Scheme, Topology
from fanin.ring_groups import BARRIER, Level
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.inceptionn import training as inceptionn_training
from fanin.sim.inceptionn.training import reducer
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import Dataset, train
from fanin.sim.ring import train_cosim
from fanin.sim.ring.schedule import Overlap
from fanin.wire.ring import ETHERTYPE_RING

SMALL = "--on model --layers 64,16,10 --nodes 3 --batch 64 --epochs 3"
STEPS = 1347 // 3 // 64  # of an epoch
FILES = ["report.html", "run.json", "state.npz"]


def _run(capsys, folder, arguments):
    status = main(["ring", "train", "-o", str(folder), *shlex.split(arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def _json(capsys, folder, arguments=SMALL):
    status, out, err = _run(capsys, folder, f"{arguments} --json")
    assert (status, err) == (0, "")
    return json.loads(out)


def _refused(capsys, folder, arguments):
    """The one line with which the command is refused; nothing may have been written."""
    before = sorted(folder.iterdir())
    status, out, err = _run(capsys, folder / "out", arguments)
    assert (status, out) == (2, "")
    assert err.startswith("fanin: error: ")
    assert err.count("\n") == 1
    assert sorted(folder.iterdir()) == before
    return err


def _state(folder, widths=(64, 16, 10)):
    return load_state(folder / "state.npz", Mlp(widths))


def test_a_run_writes_its_folder_and_says_what_was_compared(capsys, tmp_path):
    found = _json(capsys, tmp_path / "run")
    assert found == json.loads((tmp_path / "run" / "run.json").read_text())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES
    assert set(found["configuration"]) == set(DEFAULTS)
    assert (found["error"], found["bit_exact"], found["resumed"], found["first_epoch"]) == (None, True, None, 1)
    assert found["steps"] == found["steps_asked"] == 3 * STEPS
    assert found["all_reduces"] == 2 * 3 * STEPS
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3]
    last = found["epochs"][-1]
    assert (found["accuracy"], found["loss"]) == (last["accuracy"], last["loss"])
    assert found["accuracy"] > 0.7
    assert last["binary32"] == {name: last[name] for name in ("loss", "accuracy", "train_accuracy")}
    assert last["binary64"]["loss"] == pytest.approx(last["loss"], rel=1e-4)
    assert last["binary64"]["loss"] != last["loss"]
    assert 0 < found["distance"] < 1e-4
    assert _state(tmp_path / "run").step == 3 * STEPS


def test_an_iteration_is_the_sum_of_its_parts(capsys, tmp_path):
    for overlap in OVERLAPS:
        found = _json(capsys, tmp_path / "run", f"{SMALL} --overlap {overlap}")
        iteration = found["iteration"]
        parts = [iteration[name] for name in ("forward", "backward", "exposed", "update", "posting")]
        assert iteration["seconds"] == pytest.approx(sum(parts))
        assert iteration["seconds"] == pytest.approx(found["simulated_seconds"] / found["steps"])
        weights = 65 * 16 + 17 * 10
        assert iteration["forward"] == pytest.approx(2 * weights * 64 / 2.08e12)
        assert iteration["backward"] == pytest.approx(2 * iteration["forward"])


def test_a_codec_is_seen_beside_binary32(capsys, tmp_path):
    found = _json(capsys, tmp_path / "run", f"{SMALL} --codec inceptionn --bound 2^-6 --lanes 16")
    options = found["configuration"]
    assert (options["codec"], options["bound"], options["mode"], options["group"]) == (
        "inceptionn",
        "2^-6",
        "strict",
        16,
    )
    last = found["epochs"][-1]
    assert last["loss"] != last["binary32"]["loss"]
    assert found["distance"] > 1e-4
    bfp = _json(capsys, tmp_path / "run", f"{SMALL} --codec bfp --mantissa 4")["configuration"]
    assert (bfp["block"], bfp["mantissa"]) == (16, 4)


def test_hosts_that_reduce_themselves_take_longer_and_the_same_bits(capsys, tmp_path):
    nic = _json(capsys, tmp_path / "nic")
    host = _json(capsys, tmp_path / "host", f"{SMALL} --all-reduce host")
    assert host["configuration"]["on"] == "model"
    assert host["loss"] == nic["loss"]
    assert _state(tmp_path / "host").equals(_state(tmp_path / "nic"))
    assert host["iteration"]["seconds"] > nic["iteration"]["seconds"]
    assert host["iteration"]["backward"] == pytest.approx(1.11 * nic["iteration"]["backward"])


def test_a_faster_link_and_more_outstanding_change_no_bit(capsys, tmp_path):
    runs = {
        name: _json(capsys, tmp_path / name, f"{SMALL} {options}")
        for name, options in (("one", ""), ("eight", "--outstanding 8"), ("fast", "--gbps 100"))
    }
    seconds = {name: run["iteration"]["seconds"] for name, run in runs.items()}
    assert seconds["fast"] < 0.9 * seconds["one"]
    assert seconds["eight"] <= seconds["one"]
    assert all(_state(tmp_path / name).equals(_state(tmp_path / "one")) for name in runs)


@pytest.mark.parametrize(
    ("options", "rounds"), [("", 3), ("--above aggregator", 2 + 2 * 2), ("--exchange aggregator", 2 * (2 + 2))]
)
def test_groups_add_up_in_rounds(capsys, tmp_path, options, rounds):
    given = SMALL.replace("--nodes 3", "--groups 2x2")
    found = _json(capsys, tmp_path / "run", f"{given} {options}")
    assert (found["configuration"]["nodes"], found["configuration"]["groups"]) == (4, "2x2")
    assert found["bit_exact"]
    assert found["iteration"]["exposed"] > 2 * rounds * BARRIER
    whole = _json(capsys, tmp_path / "ring", SMALL.replace("--nodes 3", "--nodes 4"))
    assert found["epochs"][-1]["binary64"] == whole["epochs"][-1]["binary64"]
    assert whole["iteration"]["exposed"] < found["iteration"]["exposed"]
    rest = _json(capsys, tmp_path / "rest", f"--on model --resume {tmp_path / 'run'} --epochs 4")
    assert rest["configuration"]["above"] == found["configuration"]["above"]


def test_layers_may_stand_in_a_file(capsys, tmp_path):
    widths = tmp_path / "widths.txt"
    widths.write_text("64\n16, 10\n")
    assert _json(capsys, tmp_path / "run", f"{SMALL} --layers {widths}") == _json(capsys, tmp_path / "other")


def test_layers_fit_the_data_unless_they_are_given(capsys, tmp_path):
    rng, path = np.random.default_rng(1), tmp_path / "set.npz"
    labels = np.arange(60) % 3
    images = rng.integers(0, 60, (60, 2, 2)).astype(np.uint8)
    images[np.arange(60), labels // 2, labels % 2] = 255
    np.savez(path, x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    found = _json(capsys, tmp_path / "run", f"--on model --nodes 2 --batch 5 --epochs 4 {path}")
    assert (found["configuration"]["layers"], found["configuration"]["data"]) == ("4,128,3", str(path))
    assert found["accuracy"] == 1


@pytest.mark.parametrize("codec", ["", "--codec bfp --block 8", "--codec inceptionn --bound 0.015625"])
def test_a_resumed_run_ends_as_the_whole_one(capsys, tmp_path, codec):
    whole = _json(capsys, tmp_path / "whole", f"{SMALL} --seed 3 {codec}")
    _json(capsys, tmp_path / "first", f"{SMALL} --seed 3 --epochs 1 {codec}")
    rest = _json(capsys, tmp_path / "rest", f"--resume {tmp_path / 'first'} --epochs 3 --on model")
    assert _state(tmp_path / "rest").equals(_state(tmp_path / "whole"))
    assert rest["configuration"] == whole["configuration"]
    assert (rest["resumed"], rest["first_epoch"], rest["steps"]) == (str(tmp_path / "first"), 2, 2 * STEPS)
    assert [epoch["epoch"] for epoch in rest["epochs"]] == [2, 3]
    for mine, theirs in zip(rest["epochs"], whole["epochs"][1:], strict=True):
        assert {**mine, "simulated_seconds": 0} == {**theirs, "simulated_seconds": 0}
    assert rest["distance"] == whole["distance"]


def test_a_run_is_resumed_in_its_own_folder_with_the_same_options(capsys, tmp_path):
    _json(capsys, tmp_path / "out", SMALL)
    given = f"{SMALL} --epochs 4 --rate 0.1 --seed 0 digits"
    found = _json(capsys, tmp_path / "out", f"{given} --resume {tmp_path / 'out'}")
    assert found["first_epoch"] == 4
    assert "goes on from" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("", "epochs must be more than the 3 that FOLDER has, not 3"),
        ("--epochs 4 --rate 0.2", "--rate 0.2: FOLDER was trained with 0.1"),
        ("--epochs 4 --layers 64,10", "--layers 64,10: FOLDER was trained with 64,16,10"),
        ("--epochs 4 --nodes 4", "--nodes 4: FOLDER was trained with 3"),
        ("--epochs 4 --codec bfp", "--codec bfp: FOLDER was trained with none"),
        ("--epochs 4 --bound 2^-6", "--bound 2^-6: FOLDER was trained with none"),
        ("--epochs 4 other.npz", "DATA other.npz: FOLDER was trained with digits"),
    ],
)
def test_what_contradicts_the_run_that_is_resumed_is_refused(capsys, tmp_path, arguments, cause):
    folder = tmp_path / "run"
    _json(capsys, folder)
    given = arguments if "--epochs" in arguments else "--epochs 3"
    err = _refused(capsys, tmp_path, f"--on model --resume {folder} {given}")
    assert cause.replace("FOLDER", str(folder)) in err


@pytest.mark.parametrize(
    ("name", "content", "cause"),
    [
        ("run.json", "{}", "FOLDER: no run of fanin ring train to go on from"),
        ("run.json", '{"all_reduces": 1}', '"configuration" is missing'),
        ("state.npz", None, "no such file: the run has made no whole epoch to go on from"),
        ("state.npz", "text", "no state of such a network"),
    ],
)
def test_a_folder_that_cannot_be_resumed_is_named(capsys, tmp_path, name, content, cause):
    folder = tmp_path / "run"
    _json(capsys, folder)
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    err = _refused(capsys, tmp_path, f"--on model --resume {folder} --epochs 4")
    assert cause.replace("FOLDER", str(folder)) in err


def test_a_state_of_another_network_or_within_an_epoch_is_refused(capsys, tmp_path):
    folder = tmp_path / "run"
    _json(capsys, folder)
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
        assert cause in _refused(capsys, tmp_path, f"--on model --resume {folder} --epochs 4")


def test_a_state_that_was_changed_is_no_golden_one(capsys, tmp_path):
    folder = tmp_path / "run"
    _json(capsys, folder)
    path = folder / "state.npz"
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["parameters1"][0] += 1
    np.savez(path, **arrays)
    status, _, err = _run(capsys, tmp_path / "out", f"--on model --resume {folder} --epochs 4")
    assert status == 1
    assert "the weights are not the golden model's" in err


@pytest.fixture
def dies(monkeypatch):
    """A simulation that ends when one step of the second epoch has been made."""

    def run(job, data, state, *, link, pcap, progress, quiet):
        progress(STEPS + 1)
        if pcap:
            pcap.write_bytes(b"frames")
        raise SimulationFailed("node 1 has stopped answering:\nnode 0 gives up")

    monkeypatch.setattr(train_cosim, "run_rtl", run)


RTL = SMALL.replace("--on model", "--on rtl")


def test_a_run_that_fails_says_why_and_can_be_resumed(capsys, tmp_path, dies):
    folder, packets = tmp_path / "run", tmp_path / "packets.pcap"
    status, out, err = _run(capsys, folder, f"{RTL} --stop 1:1e-4 --pcap {packets}")
    assert (status, out) == (1, "")
    cause = "node 1 has stopped answering: node 0 gives up"
    assert err == f"fanin: error: {cause} (fanin doctor {folder} says more)\n"
    assert packets.read_bytes() == b"frames"  # when they are needed most
    assert sorted(path.name for path in folder.iterdir()) == ["run.json", "state.npz"]
    found = json.loads((folder / "run.json").read_text())
    assert (found["error"], found["steps"], found["steps_asked"]) == (cause, STEPS + 1, 3 * STEPS)
    whole = _json(capsys, tmp_path / "whole")
    rest = _json(capsys, tmp_path / "rest", f"--on model --resume {folder} --epochs 3")
    assert rest["first_epoch"] == 2
    assert rest["accuracy"] == whole["accuracy"]
    assert _state(tmp_path / "rest").equals(_state(tmp_path / "whole"))


def test_a_run_that_fails_in_its_first_epoch_has_no_state(capsys, tmp_path, dies, monkeypatch):
    folder = tmp_path / "run"
    status, _, _ = _run(capsys, folder, f"{RTL} --batch 100 --stop 1:1e-4")  # epochs of 4 steps: two are whole
    assert (status, _state(folder).step) == (1, 8)
    status, _, _ = _run(capsys, folder, f"{RTL} --batch 20")  # epochs of 22 steps
    assert (status, [path.name for path in folder.iterdir()]) == (1, ["run.json"])


def test_the_doctor_says_how_far_a_run_got(capsys, tmp_path, dies):
    folder = tmp_path / "run"
    _run(capsys, folder, RTL)
    assert main(["doctor", str(folder)]) == 1
    captured = capsys.readouterr()
    assert captured.out.startswith(f"all nodes have made {STEPS + 1} of {3 * STEPS} steps")
    assert f"fanin ring train --resume {folder}" in captured.out
    assert captured.err == "fanin: error: node 1 has stopped answering: node 0 gives up\n"
    _json(capsys, folder)
    assert main(["doctor", str(folder)]) == 0
    assert capsys.readouterr().out.startswith(f"all nodes have made {3 * STEPS} of {3 * STEPS} steps")
    assert main(["doctor", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "error": None,
        "steps": 3 * STEPS,
        "steps_asked": 3 * STEPS,
        "nodes": [],
    }


def test_the_doctor_counts_what_links_lost(capsys, tmp_path):
    folder = tmp_path / "run"
    found = _json(capsys, folder)
    names = ("sent", "retransmitted", "received", "bad_fcs", "duplicates", "out_of_order")
    found["counters"] = [{name: 10 * node + place for place, name in enumerate(names)} for node in range(3)]
    (folder / "run.json").write_text(json.dumps(found))
    assert main(["doctor", str(folder)]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[2] == "node 1 sent 10, again 11 received 12, bad FCS 13, duplicate 14, out of order 15"
    found["counters"] = [{}]
    (folder / "run.json").write_text(json.dumps(found))
    assert main(["doctor", str(folder)]) == 2
    assert 'counters[0]: "sent" is missing' in capsys.readouterr().err


def test_a_gradient_that_is_not_finite_is_named(capsys, tmp_path):
    status, out, err = _run(capsys, tmp_path / "run", f"{SMALL} --rate 1e9 --decay 1e9")
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert (
        "node 0, layer 1, step 2: the gradient has values that are not finite; choose a smaller --rate" in err
    )
    assert list(tmp_path.iterdir()) == []


def test_the_summary_is_a_table_and_says_where_the_report_is(capsys, tmp_path):
    status, out, err = _run(capsys, tmp_path / "run", f"{SMALL} --epochs 45")
    assert (status, err) == (0, "")
    assert out.startswith("64-16-10 on digits: 3 nodes, 8 lanes, no codec, batches of 64\n")
    lines = [line.split() for line in out.splitlines()]
    epochs = [int(line[0]) for line in lines if line and line[0].isdecimal()]
    assert epochs == [*range(3, 46, 3)]
    assert f"sums are the golden model's; all 3 replicas are equal after each of {45 * STEPS} steps" in out
    assert ["report", str(tmp_path / "run" / "report.html")] in lines


def test_the_progress_says_epoch_and_steps(capsys, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("fanin.cli.progress.StatusLine.show", lambda self, text: shown.append(text))
    _json(capsys, tmp_path / "run")
    assert f"epoch 2/3: {STEPS + 1} of {3 * STEPS} steps" in shown
    assert shown[-1] == f"epoch 3/3: {3 * STEPS} of {3 * STEPS} steps"


def test_what_argparse_knows_is_what_the_schedule_has():
    assert {each.value for each in Overlap} == set(OVERLAPS)
    assert {each.value for each in Scheme} == {each.value for each in Level} == set(EXCHANGES)
    assert set(OF_MODEL) - set(PARAMETERS) | set(OF_SMART_NIC) < set(DEFAULTS)


def test_the_runs_of_other_commands_are_left_alone(capsys, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / RING_RUN.mark).write_text('{"options": {}}')
    assert "choose another -o" in _refused(capsys, tmp_path, SMALL)
    (tmp_path / "file").write_text("")
    status, _, err = _run(capsys, tmp_path / "file", SMALL)
    assert (status, "is a file; -o names a directory" in err) == (2, True)


def test_an_interrupted_run_leaves_nothing(capsys, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(smart_nic, "run_model", interrupted)
    assert _run(capsys, tmp_path / "run", SMALL) == (130, "", "fanin: error: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def test_options_reach_inceptionns_simulation(capsys, tmp_path, monkeypatch):
    asked = {}

    def run(job, data, plan, *, state, link, pcap, progress, quiet):
        asked.update(job=job, plan=plan, link=link, state=state)
        progress(STEPS)
        raise SimulationFailed("enough")

    monkeypatch.setattr(inceptionn_training, "run", run)
    sizes = "--layers 64,16,10 --groups 2x2 --above aggregator --batch 64 --epochs 2"
    options = "--codec inceptionn --bound 2^-6 --drop 0.1 --flops 1e12 --memory-bandwidth 2e9 --stop 4:1"
    folder = tmp_path / "run"
    status, _, err = _run(capsys, folder, f"--system inceptionn {sizes} {options}")
    assert (status, err) == (1, f"fanin: error: enough (fanin doctor {folder} says more)\n")
    plan, link = asked["plan"], asked["link"]
    assert plan.topology == Topology(4, Scheme.RING, 2, Scheme.AGGREGATOR)
    assert (plan.codec.bound, plan.codec.group, plan.stops) == (6, 8, {4: 1.0})
    assert (link.drop, link.gbps) == (0.1, 10)
    weights = 65 * 16 + 17 * 10
    assert plan.costs.compute == pytest.approx(6 * weights * 64 / 1e12)
    assert plan.costs.update * 4 == pytest.approx(20 / 2e9)
    job = replace(asked["job"], epochs=1)
    golden = train(job, Dataset(job, *load_digits(job.seed)), reducer(plan), whole=True)
    assert _state(folder).equals(golden)  # of the first epoch's 5 steps, of 7


def test_options_reach_the_simulation(capsys, tmp_path, monkeypatch):
    asked = {}

    def run(job, data, state, *, link, pcap, progress, quiet):
        asked.update(job=job, link=link, pcap=pcap)
        raise CheckFailed("enough")

    monkeypatch.setattr(train_cosim, "run_rtl", run)
    faults = "--drop 0.1 --duplicate 0.2 --reorder 0.3 --corrupt 0.4 --gbps 10"
    profile = "--flops 1e12 --memory-bandwidth 2e9 --pcie 3e9 --stop 2:0.5 --lanes 16 --outstanding 2"
    training = "--momentum 0.5 --decay 0.25 --rate 0.125 --seed 9"
    assert _run(capsys, tmp_path / "run", f"{RTL} {faults} {profile} {training}")[0] == 1
    link, job = asked["link"], asked["job"]
    assert (link.drop, link.duplicate, link.reorder, link.corrupt, link.gbps) == (0.1, 0.2, 0.3, 0.4, 10)
    assert (job.profile.flops, job.profile.memory_bandwidth, job.profile.pcie) == (1e12, 2e9, 3e9)
    assert (job.stops, job.config.lanes, job.schedule.outstanding) == ({2: 0.5}, 16, 2)
    same = job.training
    assert (same.momentum, same.decay, same.rate, same.seed, same.batch) == (0.5, 0.25, 0.125, 9, 64)
    assert asked["pcap"] is None


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--nodes 1", "nodes must be in [2, 255], not 1"),
        ("--layers 63,10", "layers must begin with the data's 64 features, not 63"),
        ("--layers 64,9", "layers must end with at least the data's 10 classes, not 9"),
        ("--layers 64", "layers must be at least 2 widths of at least 1, not [64]"),
        ("--layers 64,0,10", "layers must be at least 2 widths of at least 1, not [64, 0, 10]"),
        ("--layers 64,999999999,10", "weights on 3 nodes take"),
        ("--layers 64,9999999999,10", "--layers 64,9999999999,10: '9999999999' is no width"),
        ("--layers 64,x,10", "--layers 64,x,10: neither widths, such as 64,128,10, nor a file"),
        ("--layers .", ".: cannot be read: Is a directory"),
        ("--layers widths", "widths:2: '1.5' is no width"),
        ("--epochs 0", "epochs must be in [1, 1000000], not 0"),
        ("--batch 0", "batch must be"),
        ("--batch 450", "batch must be 1 to 449, a worker's share of 1347 samples, not 450"),
        ("--rate nan", "rate must be in [1e-09, 1e+09], not nan"),
        ("--momentum 1", "momentum must be at least 0 and below 1, not 1.0"),
        ("--decay -1", "decay must be in [0, 1e+09], not -1"),
        ("--seed -1", "seed must be in [0, 4294967295], not -1"),
        ("--lanes 4", "argument --lanes: invalid choice: 4"),
        ("--codec zip", "argument --codec: invalid choice: 'zip'"),
        ("--bound 2^-6", "--bound: needs a --codec"),
        ("--codec bfp --bound 2^-6", "--bound is a parameter of inceptionn, not of bfp"),
        ("--codec inceptionn --bound 2^-16", "--bound 2^-16: must be a power of two, 2^-15 to 2^-1"),
        ("--codec inceptionn --group 16", "group must be the lanes, 8, not 16"),
        ("--codec bfp --mantissa 2", "mantissa must be 3 to 15 bits, not 2"),
        ("--codec bfp --block 5", "block must be one of 4, 8, 16, 32, 64, not 5"),
        ("--outstanding 0", "outstanding must be in [1, 8], not 0"),
        ("--outstanding 9", "outstanding must be in [1, 8], not 9"),
        ("--outstanding 2 --overlap none", "outstanding must be 1 without overlap, not 2"),
        ("--flops 0", "flops must be in [1e+06, 1e+21], not 0"),
        ("--memory-bandwidth nan", "memory-bandwidth must be in [1e+06, 1e+18], not nan"),
        ("--pcie inf", "pcie must be in [1e+08, 1e+15], not inf"),
        ("--gbps 0", "gbps must be at least 0.001, not 0.0"),
        ("--on rtl --drop 2", "drop must be a probability, not 2.0"),
        ("--drop 0.1 --corrupt 0.1", "--drop, --corrupt: faults and frames need --on rtl"),
        ("--stop 1:0.1 --pcap x", "--stop, --pcap: faults and frames need --on rtl"),
        ("--on rtl --stop 3:0.1", "--stop 3:0.1: nodes are 0 to 2"),
        ("--on rtl --all-reduce host", "--on rtl: no RTL is in hosts that reduce themselves"),
        (
            "--all-reduce host --codec bfp",
            "--codec bfp: a NIC has a codec, and hosts of --all-reduce host have",
        ),
        ("--all-reduce host --outstanding 2", "--outstanding: of a NIC's queue"),
        ("--groups 4", "groups must be like 4x4, groups and workers of each, not '4'"),
        ("--groups 2x2", "groups must be of the 3 nodes that train, not 2x2: 4 workers"),
        ("--groups 1x3", "groups must be at least 2, not 1"),
        ("--above ring", "--above ring: needs --groups"),
        ("--exchange aggregator", "--exchange aggregator: smart NICs are in a ring; --groups of them may have"),
        (
            "--all-reduce host --nodes 4 --groups 2x2",
            "groups are of ring nodes: hosts that reduce on their own",
        ),
        ("--system inceptionn", "--on: of smart NICs, not of --system inceptionn"),
        ("--on rtl --resume nowhere", "nowhere: no run of fanin ring train to go on from"),
        ("nowhere", "nowhere: no folder with MNIST's four idx files, no .npz; the bundled set is digits"),
        ("nowhere.npz", "nowhere.npz: cannot be read: No such file or directory"),
    ],
)
def test_bad_input_takes_one_line_and_writes_nothing(capsys, tmp_path, monkeypatch, arguments, cause):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "widths").write_text("64\n1.5 10\n")
    assert cause in _refused(capsys, tmp_path, f"{SMALL} {arguments}")


HARDWARE = "--layers 64,16,10 --nodes 2 --batch 64 --seed 5"
EACH = 1347 // 2 // 64


@pytest.mark.verilator
def test_the_command_trains_in_rtl_as_on_the_model(capsys, tmp_path):
    """Over a bad network, until a node dies; then on from the folder that is left, to the bits of the model."""
    frames, folder = tmp_path / "frames.pcap", tmp_path / "run"
    faults = "--drop 0.02 --duplicate 0.02 --reorder 0.02 --corrupt 0.02"
    dying = f"{HARDWARE} {faults} --epochs 9 --stop 1:5e-4 --pcap {frames}"
    status, out, err = _run(capsys, folder, dying)
    assert (status, out) == (1, "")
    assert "node 1 has stopped answering: node 0 gives up the all-reduce of layer" in err
    kinds = {bytes(frame)[12:14] for frame in rdpcap(str(frames))}
    assert kinds == {ETHERTYPE_RING.to_bytes(2)}
    left = json.loads((folder / "run.json").read_text())
    assert EACH < left["steps"] < 9 * EACH
    done = left["steps"] // EACH
    assert _state(folder).step == done * EACH
    found = _json(capsys, folder, f"--resume {folder} --epochs {done + 1} {faults}")
    assert (found["configuration"]["on"], found["bit_exact"], found["first_epoch"]) == ("rtl", True, done + 1)
    assert found["retransmitted"] == sum(each["retransmitted"] for each in found["counters"]) > 0
    assert found["frames"] == sum(each["sent"] for each in found["counters"])
    model = _json(capsys, tmp_path / "model", f"{HARDWARE} --on model --epochs {done + 1}")
    assert _state(folder).equals(_state(tmp_path / "model"))
    assert found["loss"] == model["loss"]


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--lanes 8", "--lanes: of smart NICs, not of --system inceptionn"),
        ("--overlap none", "--overlap: of smart NICs, not of --system inceptionn"),
        ("--all-reduce nic", "--all-reduce: of smart NICs, not of --system inceptionn"),
        ("--codec bfp", "--codec bfp: INCEPTIONN's NIC has its own codec, or none"),
        ("--codec inceptionn --group 16", "group must be 8, the NIC's, not 16"),
        ("--groups 3x2", "groups must divide the 4 workers, not be 3"),
        (
            "--groups 2x2 --exchange aggregator --above ring",
            "above must be aggregator where groups have aggreg",
        ),
        ("--nodes 65", "workers must be 2 to 64, not 65"),
        ("--exchange aggregator --stop 5:1", "--stop 5:1: nodes are 0 to 4"),
    ],
)
def test_what_inceptionns_nodes_have_nothing_for_is_refused(capsys, tmp_path, arguments, cause):
    nodes = "" if "--nodes" in arguments else "--nodes 4"
    assert cause in _refused(capsys, tmp_path, f"--system inceptionn --batch 8 {nodes} {arguments}")


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
def test_inceptionns_hosts_train_over_a_bad_network_and_go_on(capsys, tmp_path, exchange):
    given = f"--system inceptionn --exchange {exchange} --codec inceptionn --bound 2^-6 --drop 0.02"
    options = f"{given} --layers 64,16,10 --nodes 3 --batch 64"
    status, out, _ = _run(capsys, tmp_path / "first", f"{options} --epochs 1 --json")
    first = json.loads(out)
    assert (status, first["bit_exact"], first["retransmitted"] > 0) == (0, True, True)
    assert sum(leg["packets"] for leg in first["traffic"]) > 0
    status, out, _ = _run(capsys, tmp_path / "rest", f"--resume {tmp_path / 'first'} --epochs 2 --json")
    rest = json.loads(out)
    assert (status, rest["bit_exact"], rest["first_epoch"]) == (0, True, 2)
    assert rest["iteration"]["communicate"] > rest["iteration"]["compute"]


@pytest.mark.slow
@pytest.mark.verilator
def test_groups_of_nodes_train_in_rtl(capsys, tmp_path):
    options = "--groups 2x2 --layers 64,16,10 --batch 64 --epochs 1 --codec bfp"
    status, out, _ = _run(capsys, tmp_path / "rtl", f"{options} --json")
    found = json.loads(out)
    assert (status, found["bit_exact"], [each["round"] for each in found["traffic"]]) == (0, True, [0, 1, 2])
    model = _json(capsys, tmp_path / "model", f"{options} --on model")
    assert _state(tmp_path / "rtl").equals(_state(tmp_path / "model"))
    assert found["loss"] == model["loss"] != found["epochs"][0]["binary32"]["loss"]
