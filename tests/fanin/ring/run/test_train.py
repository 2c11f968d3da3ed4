"""``fanin ring train``: what it writes and says, and what reaches the simulation."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

import fanin
from fanin.base.errors import CheckFailed, InputError
from fanin.inceptionn.facts import Topology
from fanin.ring.groups import BARRIER, Scheme
from fanin.ring.run import smart_nic
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.inceptionn import training as inceptionn_training
from fanin.sim.inceptionn.training import reducer
from fanin.sim.learning.mlp import load_digits
from fanin.sim.learning.replica import Dataset, train
from fanin.sim.ring import train_cosim
from fanin.sim.ring.schedule import Overlap
from tests.fanin.ring.run.runs import FILES, RTL, SMALL, STEPS, run, run_json, state_of

#: Options that run.json has, whatever the run.
NAMES = {
    *("data", "layers", "epochs", "batch", "lr", "momentum", "decay", "seed", "system", "nodes", "exchange"),
    *("groups", "above", "lanes", "codec", "all_reduce", "on", "overlap", "outstanding", "flops"),
    *("memory_bandwidth", "pcie", "gbps", "drop", "duplicate", "reorder", "corrupt", "stop"),
}


def test_a_run_writes_its_folder_and_says_what_was_compared(capsys, tmp_path):
    found = run_json(capsys, tmp_path / "run")
    assert found == json.loads((tmp_path / "run" / "run.json").read_text())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES
    assert set(found["configuration"]) == NAMES
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
    assert state_of(tmp_path / "run").step == 3 * STEPS


def test_an_iteration_is_the_sum_of_its_parts(capsys, tmp_path):
    for overlap in Overlap:
        found = run_json(capsys, tmp_path / "run", f"{SMALL} --overlap {overlap}")
        iteration = found["iteration"]
        parts = [iteration[name] for name in ("forward", "backward", "exposed", "update", "posting")]
        assert iteration["seconds"] == pytest.approx(sum(parts))
        assert iteration["seconds"] == pytest.approx(found["simulated_seconds"] / found["steps"])
        weights = 65 * 16 + 17 * 10
        assert iteration["forward"] == pytest.approx(2 * weights * 64 / 2.08e12)
        assert iteration["backward"] == pytest.approx(2 * iteration["forward"])


def test_a_codec_is_seen_beside_binary32(capsys, tmp_path):
    found = run_json(capsys, tmp_path / "run", f"{SMALL} --codec inceptionn --bound 2^-6 --lanes 16")
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
    bfp = run_json(capsys, tmp_path / "run", f"{SMALL} --codec bfp --mantissa 4")["configuration"]
    assert (bfp["block"], bfp["mantissa"]) == (16, 4)


def test_hosts_that_reduce_themselves_take_longer_and_the_same_bits(capsys, tmp_path):
    nic = run_json(capsys, tmp_path / "nic")
    host = run_json(capsys, tmp_path / "host", f"{SMALL} --all-reduce host")
    assert host["configuration"]["on"] == "model"
    unused = {"outstanding", "memory_bandwidth", "pcie", "gbps"}
    assert {name for name in unused if host["configuration"][name] is None} == unused
    assert "memory bandwidth" not in (tmp_path / "host" / "report.html").read_text()
    assert host["loss"] == nic["loss"]
    assert state_of(tmp_path / "host").equals(state_of(tmp_path / "nic"))
    assert host["iteration"]["seconds"] > nic["iteration"]["seconds"]
    assert host["iteration"]["backward"] == pytest.approx(1.11 * nic["iteration"]["backward"])


def test_a_faster_link_and_more_outstanding_change_no_bit(capsys, tmp_path):
    # The backward pass of the large first layer is what the last one's long all-reduce may run beside.
    widths = (64, 256, 4, 2000)
    sizes = f"{SMALL} --layers {','.join(map(str, widths))} --flops 2e11 --epochs 1"
    runs = {
        name: run_json(capsys, tmp_path / name, f"{sizes} {options}")
        for name, options in (("one", ""), ("eight", "--outstanding 8"), ("fast", "--gbps 100"))
    }
    seconds = {name: run["iteration"]["seconds"] for name, run in runs.items()}
    assert seconds["fast"] < 0.9 * seconds["one"]
    assert seconds["eight"] < 0.9 * seconds["one"]
    states = [state_of(tmp_path / name, widths) for name in runs]
    assert all(state.equals(states[0]) for state in states)


@pytest.mark.parametrize("nodes", ["--nodes 4", "--groups 2x2"])
def test_a_slow_pcie_binds_on_the_model(capsys, tmp_path, nodes):
    sizes = f"{SMALL.replace('--nodes 3', nodes)} --epochs 1"
    exposed = {
        pcie: run_json(capsys, tmp_path / pcie, f"{sizes} --pcie {pcie}")["iteration"]["exposed"]
        for pcie in ("1e9", "51e9")
    }
    bits = 32 * (65 * 16 + 17 * 10)
    assert exposed["1e9"] > max(bits / 1e9, 1.2 * exposed["51e9"])


@pytest.mark.parametrize(
    ("options", "rounds"), [("", 3), ("--above aggregator", 2 + 2 * 2), ("--exchange aggregator", 2 * (2 + 2))]
)
def test_groups_add_up_in_rounds(capsys, tmp_path, options, rounds):
    given = SMALL.replace("--nodes 3", "--groups 2x2")
    found = run_json(capsys, tmp_path / "run", f"{given} {options}")
    assert (found["configuration"]["nodes"], found["configuration"]["groups"]) == (4, "2x2")
    assert found["bit_exact"]
    assert found["iteration"]["exposed"] > 2 * rounds * BARRIER
    whole = run_json(capsys, tmp_path / "ring", SMALL.replace("--nodes 3", "--nodes 4"))
    assert found["epochs"][-1]["binary64"] == whole["epochs"][-1]["binary64"]
    assert whole["iteration"]["exposed"] < found["iteration"]["exposed"]
    rest = run_json(capsys, tmp_path / "rest", f"--on model --resume {tmp_path / 'run'} --epochs 4")
    assert rest["configuration"]["above"] == found["configuration"]["above"]


def test_layers_may_stand_in_a_file(capsys, tmp_path):
    widths = tmp_path / "widths.txt"
    widths.write_text("64\n16, 10\n")
    assert run_json(capsys, tmp_path / "run", f"{SMALL} --layers {widths}") == run_json(
        capsys, tmp_path / "other"
    )


def test_layers_fit_the_data_unless_they_are_given(capsys, tmp_path):
    rng, path = np.random.default_rng(1), tmp_path / "set.npz"
    labels = np.arange(60) % 3
    images = rng.integers(0, 60, (60, 2, 2)).astype(np.uint8)
    images[np.arange(60), labels // 2, labels % 2] = 255
    np.savez(path, x_train=images, y_train=labels, x_test=images[:9], y_test=labels[:9])
    found = run_json(capsys, tmp_path / "run", f"--on model --nodes 2 --batch 5 --epochs 4 {path}")
    assert (found["configuration"]["layers"], found["configuration"]["data"]) == ("4,128,3", str(path))
    assert found["accuracy"] == 1


def test_the_summary_is_a_table_and_says_where_the_report_is(capsys, tmp_path):
    status, out, err = run(capsys, tmp_path / "run", f"{SMALL} --epochs 45")
    assert (status, err) == (0, "")
    assert out.startswith("64-16-10 on digits: 3 nodes, 8 lanes, no codec, batches of 64\n")
    lines = [line.split() for line in out.splitlines()]
    epochs = [int(line[0]) for line in lines if line and line[0].isdecimal()]
    assert epochs == [*range(3, 46, 3)]
    assert f"sums are the golden model's; all 3 replicas are equal after each of {45 * STEPS} steps" in out
    time = r"[\d.]+ µs"
    parts = rf"forward {time}, backward {time}, all-reduce exposed {time}, update {time}\n"
    assert re.search(rf"iteration +{time}: {parts}", out)
    assert ["report", str(tmp_path / "run" / "report.html")] in lines


def test_the_progress_says_epoch_and_steps(capsys, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr("fanin.runs.progress.StatusLine.show", lambda self, text: shown.append(text))
    run_json(capsys, tmp_path / "run")
    assert f"epoch 2/3: {STEPS + 1} of {3 * STEPS} steps" in shown
    assert shown[-1] == f"epoch 3/3: {3 * STEPS} of {3 * STEPS} steps"


def test_an_interrupted_run_leaves_what_it_knows_and_can_be_resumed(capsys, tmp_path, monkeypatch):
    def interrupted(*arguments, progress, **options):
        progress(STEPS + 1)
        raise KeyboardInterrupt

    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(smart_nic, "run_model", interrupted)
        said = f"fanin: error: interrupted (fanin doctor {folder} says more)\n"
        assert run(capsys, folder, SMALL) == (130, "", said)
    assert sorted(path.name for path in folder.iterdir()) == FILES
    found = json.loads((folder / "run.json").read_text())
    assert (found["error"], found["steps"]) == ("interrupted", STEPS + 1)
    assert json.loads((folder / "provenance.json").read_text())["ended"] is False
    rest = run_json(capsys, tmp_path / "rest", f"--on model --resume {folder} --epochs 3")
    assert rest["loss"] == run_json(capsys, tmp_path / "whole")["loss"]


def test_options_reach_inceptionns_simulation(capsys, tmp_path, monkeypatch):
    asked = {}

    def simulate(job, data, plan, *, state, link, pcap, link_log, wave, progress, quiet):
        asked.update(job=job, plan=plan, link=link, state=state)
        progress(STEPS)
        raise SimulationFailed("enough")

    monkeypatch.setattr(inceptionn_training, "run", simulate)
    sizes = "--layers 64,16,10 --groups 2x2 --above aggregator --batch 64 --epochs 2"
    options = "--codec inceptionn --bound 2^-6 --drop 0.1 --flops 1e12 --memory-bandwidth 2e9 --stop 4:1"
    folder = tmp_path / "run"
    status, _, err = run(capsys, folder, f"--system inceptionn {sizes} {options}")
    assert (status, err) == (1, f"fanin: error: enough (fanin doctor {folder} says more)\n")
    plan, link = asked["plan"], asked["link"]
    assert plan.topology == Topology(4, Scheme.RING, 2, Scheme.AGGREGATOR)
    assert (plan.codec.bound, plan.codec.group, plan.stops) == (6, 8, {4: 1.0})
    assert (link.drop, link.gbps) == (0.1, 10)
    weights = 65 * 16 + 17 * 10
    assert plan.costs.compute == pytest.approx(6 * weights * 64 / 1e12)
    assert plan.costs.update * 4 == pytest.approx(20 / 2e9)
    job = replace(asked["job"], epochs=1)
    golden = train(job, Dataset(job, *load_digits(job.seed)), reducer(plan), single_vector=True)
    assert state_of(folder).equals(golden)  # of the first epoch's 5 steps, of 7


def test_what_python_is_given_is_what_the_command_is_given(capsys, tmp_path):
    sizes = {"layers": "64,16,10", "nodes": np.int64(3), "batch": 64, "epochs": 3, "seed": 3}
    run = fanin.ring_train(on="model", codec="inceptionn", bound=0.015625, **sizes)
    whole = run_json(capsys, tmp_path / "whole", f"{SMALL} --seed 3 --codec inceptionn --bound 2^-6")
    assert run.values == whole
    assert run.said.startswith("64-16-10 on digits: 3 nodes, 8 lanes, INCEPTIONN's codec, batches of 64\n")
    assert capsys.readouterr() == ("", "")
    rest = fanin.ring_train(resume=run, on="model", epochs=4, output=tmp_path / "rest")
    assert (rest.values["first_epoch"], rest.values["configuration"]["bound"]) == (4, "2^-6")
    recorded = json.loads((tmp_path / "rest" / "provenance.json").read_text())
    assert (recorded["options"]["lr"], recorded["options"]["nodes"]) == (0.1, 3)


def test_the_learning_rates_earlier_name_is_taken_with_a_note(capsys, tmp_path):
    status, out, err = run(capsys, tmp_path / "run", f"{SMALL} --epochs 1 --rate 0.25 --json")
    assert (status, err) == (0, "fanin: note: --rate is --lr now\n")
    assert json.loads(out)["configuration"]["lr"] == 0.25
    with (
        pytest.warns(DeprecationWarning, match="rate is lr now"),
        pytest.raises(InputError, match=r"^lr must be"),
    ):
        fanin.ring_train(rate="fast")


def test_options_reach_the_simulation(capsys, tmp_path, monkeypatch):
    asked = {}

    def simulate(job, data, state, *, link, pcap, link_log, wave, progress, quiet):
        asked.update(job=job, link=link, pcap=pcap)
        raise CheckFailed("enough")

    monkeypatch.setattr(train_cosim, "run_rtl", simulate)
    faults = "--drop 0.1 --duplicate 0.2 --reorder 0.3 --corrupt 0.4 --gbps 10"
    profile = "--flops 1e12 --memory-bandwidth 2e9 --pcie 3e9 --stop 2:0.5 --lanes 16 --outstanding 2"
    training = "--momentum 0.5 --decay 0.25 --lr 0.125 --seed 9"
    assert run(capsys, tmp_path / "run", f"{RTL} {faults} {profile} {training}")[0] == 1
    link, job = asked["link"], asked["job"]
    assert (link.drop, link.duplicate, link.reorder, link.corrupt, link.gbps) == (0.1, 0.2, 0.3, 0.4, 10)
    assert (job.profile.flops, job.profile.memory_bandwidth, job.profile.pcie) == (1e12, 2e9, 3e9)
    assert (job.stops, job.config.lanes, job.schedule.outstanding) == ({2: 0.5}, 16, 2)
    same = job.training
    assert (same.momentum, same.decay, same.rate, same.seed, same.batch) == (0.5, 0.25, 0.125, 9, 64)
    assert asked["pcap"] is None
