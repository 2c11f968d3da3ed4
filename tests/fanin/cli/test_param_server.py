"""``fanin ps train`` on the event model: what it writes, what it says, and every kind of bad input."""

import json
from pathlib import Path

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.evaluation.models.rdma_wild import PAPER, cluster
from fanin.param_server.run.options import BUNDLED, ParamServerOptions
from fanin.param_server.run.stragglers import Stragglers, parse_stragglers
from fanin.runs.option import option_of, options_of
from fanin.runs.pairs import parse_stops
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.glm import data
from fanin.sim.learning import workloads
from fanin.sim.learning.learner import NoTraining, Training
from fanin.sim.param_server import cosim, events, training
from fanin.sim.param_server.costs import DESIGN, Compute
from fanin.sim.param_server.recipes import DIGITS
from tests.fanin.cli.json_page import documented
from tests.fanin.cli.ps import EACH, FILES, SMALL, json_of_ps, refused_ps, run_ps


def test_a_run_writes_its_folder_and_counts_every_gradient(capsys, tmp_path):
    found = json_of_ps(capsys, tmp_path / "run")
    assert found == json.loads((tmp_path / "run" / "run.json").read_text())
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES
    assert (found["on"], found["stopped"], found["gradients_lost"], found["gradients_repeated"]) == (
        "model",
        [],
        0,
        0,
    )
    assert found["gradients_pushed"] == found["gradients_applied"] == 4 * 3 * EACH
    assert set(found["configuration"]) == {
        each.name for each in options_of(ParamServerOptions) if each.training
    }
    assert found["accuracy"] == found["epochs"][-1]["accuracy"] > 0.9
    ages = {int(age): times for age, times in found["staleness"]["histogram"].items()}
    assert sum(ages.values()) == 4 * 3 * EACH
    assert found["staleness"]["max"] == max(ages)
    assert found["staleness"]["mean"] == sum(a * n for a, n in ages.items()) / sum(ages.values())
    assert [epoch["epoch"] for epoch in found["epochs"]] == [1, 2, 3]
    times = [epoch["simulated_seconds"] for epoch in found["epochs"]]
    assert times == sorted(times)
    assert found["simulated_seconds"] == times[-1] > 3 * EACH * 8 * PAPER["lr"].per_sample * 0.9


def test_the_model_is_what_was_measured(capsys, tmp_path):
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} --servers 3")
    w = np.load(tmp_path / "run" / "model.npy")
    work = workloads.build("lr", workloads.load(None, 0), decay=DIGITS["lr"].decay)
    assert (w.dtype, w.shape) == (np.float32, (650,))
    assert work.network.accuracy(w, work.test) == found["accuracy"]
    assert work.loss(w, work.train) == found["loss"]


def test_defaults_are_the_models_and_the_configuration_says_all(capsys, tmp_path):
    found = json_of_ps(capsys, tmp_path / "run", "--on model --model lr-rff --epochs 1 --no-optimum")[
        "configuration"
    ]
    assert found == {
        "data": "digits",
        "model": "lr-rff",
        "epochs": 1,
        "batch": 8,
        "lr": DIGITS["lr-rff"].lr,
        "decay": DIGITS["lr-rff"].decay,
        "features": DIGITS["lr-rff"].features,
        "gamma": DIGITS["lr-rff"].gamma,
        "dtype": "float64",
        "seed": 0,
        "optimum": False,
        "algorithm": "wild",
        "push_after": "gradient",
        "receivers": "barter",
        "workers": 15,
        "slots": 1,
        "warm_up": DIGITS["lr-rff"].warm_up,
        "servers": 1,
        "width": 512,
        "costs": "design",
        "sample_seconds": PAPER["lr-rff"].per_sample,
        "jitter": 0.1,
        "stragglers": "",
        "stop": "",
        "drop": 0.0,
        "duplicate": 0.0,
        "reorder": 0.0,
    }


def test_options_reach_the_run(capsys, tmp_path):
    given = (
        "--model lr-rff --features 50 --gamma 0.1 --lr 3 --decay 0.01 --dtype float32 --batch 20 --slots 2"
        " --warm-up 1"
    )
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} {given} --servers 2 --sample-seconds 1e-6 --seed 3")
    samples = workloads.load(None, 3)
    work = workloads.build("lr-rff", samples, decay=0.01, features=50, gamma=0.1, dtype="float32", seed=3)
    learner = Training(work, workers=4, batch=20, seed=3, convergence=False)
    compute = Compute(per_sample=1e-6, jitter=0.1)
    sizes = {"workers": 4, "slots": 2, "servers": 2, "warm_up": 1, "batch": 20, "epochs": 3}
    outcome = events.run(training.TrainingJob(**sizes, lr=3.0, compute=compute, costs=DESIGN, seed=3), learner)
    assert found["simulated_seconds"] == outcome.seconds
    assert found["gradients_applied"] == outcome.tally.applied == 2 * 3 * 4 * (1347 // 4 // 20)
    assert np.array_equal(np.load(tmp_path / "run" / "model.npy"), outcome.w)
    assert found["loss"] == outcome.epochs[-1].measures.loss


def test_what_argparse_knows_is_what_the_models_have():
    assert option_of(ParamServerOptions, "model").values == tuple(DIGITS) == tuple(PAPER)
    assert BUNDLED == workloads.BUNDLED in data.BUNDLED


def test_sync_has_no_stale_gradient(capsys, tmp_path):
    sync = json_of_ps(capsys, tmp_path / "sync", f"{SMALL} --algorithm sync")
    wild_run = json_of_ps(capsys, tmp_path / "wild")
    assert sync["staleness"] == {"mean": 0, "max": 0, "histogram": {"0": 4 * 3 * EACH}}
    assert wild_run["staleness"]["mean"] > 2
    assert sync["simulated_seconds"] > wild_run["simulated_seconds"]
    assert sync["worker_seconds"]["wait"] > 2 * wild_run["worker_seconds"]["wait"]
    assert sync["accuracy"] > 0.9


def test_the_optimum_gives_figure_8s_measures(capsys, tmp_path):
    given = "--on model --workers 4 --epochs 2 --model lr --decay 0.1 --lr 0.05"
    epochs = json_of_ps(capsys, tmp_path / "run", given)["epochs"]
    for name in ("distance", "gradient_norm", "loss_gap"):
        assert epochs[0]["convergence"][name] > epochs[1]["convergence"][name] > 0
    assert "distance to w*" in (tmp_path / "run" / "report.html").read_text()
    without = json_of_ps(capsys, tmp_path / "run", f"{given} --no-optimum")["epochs"]
    assert [epoch["convergence"] for epoch in without] == [None, None]
    assert "distance to w*" not in (tmp_path / "run" / "report.html").read_text()


def test_the_optimum_is_of_convex_models_alone(capsys, tmp_path):
    given = "--on model --workers 4 --epochs 1"
    for model in "--model fcnn", "--model lr --decay 0":
        found = json_of_ps(capsys, tmp_path / "run", f"{given} {model}")
        assert found["configuration"]["optimum"] is False
        assert found["epochs"][0]["convergence"] is None
        assert "--optimum: only lr and lr-rff with a --decay above 0 have a unique w*" in refused_ps(
            capsys, tmp_path, f"{given} {model} --optimum"
        )


def test_a_seed_repeats_a_run(capsys, tmp_path):
    first, again, other = (json_of_ps(capsys, tmp_path / "run", f"{SMALL} --seed {seed}") for seed in (5, 5, 6))
    assert first == again
    assert first["simulated_seconds"] != other["simulated_seconds"]
    assert first["loss"] != other["loss"]


@pytest.mark.parametrize("stragglers", ["2:3", "20%:5", "1:2,10%:4"])
def test_stragglers_slow_the_run(capsys, tmp_path, stragglers):
    plain = json_of_ps(capsys, tmp_path / "plain")
    slowed = json_of_ps(capsys, tmp_path / "slowed", f"{SMALL} --stragglers {stragglers}")
    assert slowed["simulated_seconds"] > 1.5 * plain["simulated_seconds"]
    assert slowed["worker_seconds"]["compute"] > 1.3 * plain["worker_seconds"]["compute"]
    assert slowed["configuration"]["stragglers"] == stragglers


def test_wild_goes_on_without_a_worker_that_stops(capsys, tmp_path):
    status, out, err = run_ps(capsys, tmp_path / "run", f"{SMALL} --stop 2:0.001")
    assert (status, err) == (0, "")
    assert out.count("worker 2 stopped answering; the others continued without it\n") == 1
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (found["stopped"], found["gradients_lost"]) == ([2], 0)
    assert found["gradients_pushed"] == 3 * 3 * EACH
    assert 3 * 3 * EACH < found["gradients_applied"] < 4 * 3 * EACH
    assert "Worker 2 stopped answering" in (tmp_path / "run" / "report.html").read_text()
    _, out, _ = run_ps(capsys, tmp_path / "run", f"{SMALL} --stop 2:0.001,0:0.002 --stop 1:0.001")
    assert "workers 0, 1 and 2 stopped answering; the others continued without them\n" in out


def test_a_stop_beyond_the_end_is_told(capsys, tmp_path):
    status, out, _ = run_ps(capsys, tmp_path / "run", f"{SMALL} --stop 2:5,1:0.001")
    assert status == 0
    assert out.count("--stop changed nothing for worker 2: by then it had pushed the last gradient\n") == 1
    found = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (found["stopped"], found["unused_stops"]) == ([1], [2])
    assert "--stop changed nothing for worker 2" in (tmp_path / "run" / "report.html").read_text()


def test_digits_are_the_bundled_set_as_in_fanin_train(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()  # a folder of that name is ./digits
    assert json_of_ps(capsys, tmp_path / "named", f"digits {SMALL}") == json_of_ps(capsys, tmp_path / "unnamed")
    assert "digits/train-images-idx3-ubyte: no such file" in refused_ps(capsys, tmp_path, f"./digits {SMALL}")


def test_the_doctor_says_how_far_workers_and_servers_got(capsys, tmp_path):
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} --servers 2 --stop 2:0.001")
    each, stopped = found["gradients_each"], found["workers"][2]
    assert each == 3 * EACH
    assert found["workers"][0] == {"pushed": each, "applied": [each] * 2, "stopped_by": None}
    assert 0 < stopped["pushed"] < each
    assert sum(sum(worker["applied"]) for worker in found["workers"]) == found["gradients_applied"]
    assert main(["doctor", str(tmp_path / "run")]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == f"worker 0 pushed {each} of {each} gradients"
    assert lines[2] == f"worker 2 pushed {stopped['pushed']} of {each} gradients stopped by --stop 2:0.001"
    for server in range(2):
        applied = sum(worker["applied"][server] for worker in found["workers"])
        assert lines[4 + server].startswith(f"server {server} applied {applied:,} of {4 * each:,}")
        missing = stopped["pushed"] - stopped["applied"][server]
        assert (f"not applied, though pushed: of worker 2 ({missing})" in lines[4 + server]) == (missing > 0)
    assert main(["doctor", str(tmp_path / "run"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    told = {name: found[name] for name in ("error", "gradients_each", "workers")}
    assert answer == told | {"process": None, "advice": None}


def test_the_doctor_names_a_fault_and_what_is_no_run(capsys, tmp_path):
    status, _, err = run_ps(capsys, tmp_path / "run", f"{SMALL} --lr 1e9 --decay 1")
    assert main(["doctor", str(tmp_path / "run")]) == status == 1
    assert capsys.readouterr().err == err
    mark = tmp_path / "run" / "run.json"
    found = json.loads(mark.read_text())
    mark.write_text(json.dumps({**found, "workers": [{"pushed": -1}]}))
    assert main(["doctor", str(tmp_path / "run")]) == 2
    assert 'run.json: workers[0]: "pushed" must be an integer in 0' in capsys.readouterr().err


def test_a_run_without_any_worker_ends(capsys, tmp_path):
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} --stop 0:0,1:0,2:0,3:0")
    assert (found["gradients_applied"], found["staleness"]["mean"]) == (0, 0)
    assert [epoch["simulated_seconds"] for epoch in found["epochs"]] == [0]


def test_sync_ends_with_the_name_of_the_worker_that_stops(capsys, tmp_path):
    status, out, err = run_ps(capsys, tmp_path / "run", f"{SMALL} --algorithm sync --stop 2:0.001")
    assert (status, out) == (1, "")
    cause = "worker 2 stopped answering; Sync-DSGD cannot continue without it"
    assert err == f"fanin: error: {cause} (fanin doctor {tmp_path / 'run'} says more)\n"
    assert json.loads((tmp_path / "run" / "run.json").read_text())["error"] == cause


def test_a_model_that_diverges_is_told_and_has_no_numbers(capsys, tmp_path):
    status, out, err = run_ps(capsys, tmp_path / "run", f"{SMALL} --lr 1e9 --decay 1 --json")
    assert status == 1
    assert err == (
        "fanin: error: the model diverged: it has values that are not finite; choose a smaller --lr\n"
    )
    found = json.loads(out, parse_constant=pytest.fail)  # NaN is no JSON
    assert found["loss"] is None
    assert "the model diverged" in (tmp_path / "run" / "report.html").read_text()


def test_lost_gradients_fail_the_run(capsys, tmp_path, monkeypatch):
    def overwritten(job, learner, *, progress):
        outcome = events.run(job, learner)
        outcome.tally = type(outcome.tally)(504, 503, 2, 1)
        return outcome

    monkeypatch.setattr("fanin.param_server.run.execute.backend_of", lambda setup, **outputs: overwritten)
    status, _, err = run_ps(capsys, tmp_path / "run", SMALL)
    assert (status, err) == (1, "fanin: error: 2 gradients were lost, 1 applied again\n")
    assert "gradients were lost or applied again" in (tmp_path / "run" / "report.html").read_text()


def test_the_summary_is_a_table_and_says_where_the_report_is(capsys, tmp_path):
    status, out, err = run_ps(capsys, tmp_path / "run", f"{SMALL} --epochs 45 --servers 2")
    assert (status, err) == (0, "")
    assert out.startswith("lr on digits, wild: 4 workers, 2 servers, K = 1, batches of 8\n")
    lines = [line.split() for line in out.splitlines()]
    epochs = [int(line[0]) for line in lines if line and line[0].isdecimal()]
    assert epochs == [*range(3, 46, 3)]
    fates = (
        f"gradients {8 * 45 * EACH:,} pushed, {8 * 45 * EACH:,} applied, 0 lost, 0 repeated, in 2 parts each"
    )
    assert fates.split() in lines
    assert ["report", str(tmp_path / "run" / "report.html")] in lines


def test_a_run_replaces_the_one_before_and_leaves_other_folders_alone(capsys, tmp_path):
    for seed in (1, 2):
        json_of_ps(capsys, tmp_path / "run", f"{SMALL} --epochs 1 --seed {seed}")
    assert json.loads((tmp_path / "run" / "run.json").read_text())["configuration"]["seed"] == 2
    (tmp_path / "run" / "run.json").write_text("{}")
    status, _, err = run_ps(capsys, tmp_path / "run", SMALL)
    assert (status, "choose another -o" in err) == (2, True)


def test_an_interrupted_run_leaves_what_it_knows(capsys, tmp_path, monkeypatch):
    def interrupted(job, learner, progress):
        progress(3, 0.5, ())
        raise KeyboardInterrupt

    monkeypatch.setattr(events, "run", interrupted)
    folder = tmp_path / "run"
    status, out, err = run_ps(capsys, folder, f"{SMALL} --json")
    said = f"fanin: error: interrupted (fanin doctor {folder} says more)\n"
    assert (status, err) == (130, said)
    found = documented("ps train", out)
    assert (found["error"], found["gradients_applied"]) == ("interrupted", 3)
    assert found["simulated_seconds"] == 0.5
    assert "interrupted" in (folder / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "cause"),
    [
        ("--workers 0", "workers must be in [1, 64], not 0"),
        ("--workers 65", "workers must be in [1, 64], not 65"),
        ("--slots 0", "slots must be in [1, 8], not 0"),
        ("--slots 9", "slots must be in [1, 8], not 9"),
        ("--slots 2 --algorithm sync", "slots must be 1 with Sync-DSGD, whose workers wait for all, not 2"),
        ("--servers 0", "servers must be in [1, 8], not 0"),
        ("--servers 9", "servers must be in [1, 8], not 9"),
        ("--batch 0", "batch must be 1 to 336, a worker's share of 1347 samples, not 0"),
        ("--batch 337", "batch must be 1 to 336, a worker's share of 1347 samples, not 337"),
        ("--epochs 0", "epochs must be in [1, 1000000], not 0"),
        ("--lr nan", "lr must be in [1e-09, 1e+09], not nan"),
        ("--lr -1", "lr must be in [1e-09, 1e+09], not -1"),
        ("--decay -1", "decay must be in [0, 1e+09], not -1"),
        ("--seed -1", "seed must be in [0, 4294967295], not -1"),
        ("--jitter inf", "jitter must be in [0, 10], not inf"),
        ("--sample-seconds -1", "sample-seconds must be in [0, 3600], not -1"),
        ("--model lr-rff --features 0", "features must be in [1, 1000000], not 0"),
        ("--model lr-rff --gamma 0", "gamma must be in [1e-09, 1e+09], not 0"),
        ("--features 10", "--features: applies to lr-rff, not to lr"),
        ("--gamma 1 --model fcnn", "--gamma: applies to lr-rff, not to fcnn"),
        ("--model cnn", "argument --model: invalid choice: 'cnn'"),
        ("--stragglers 3", "--stragglers: '3' is not of the form 3:2.5 or 5%:4"),
        ("--stragglers 3:x", "--stragglers: '3:x' is not of the form 3:2.5 or 5%:4"),
        ("--stragglers 3:inf", "--stragglers: '3:inf' is not of the form 3:2.5 or 5%:4"),
        ("--stragglers 3:0", "--stragglers 3:0: a factor must be above 0 and at most 1,000,000"),
        ("--stragglers 3:1e7", "--stragglers 3:1e7: a factor must be above 0 and at most 1,000,000"),
        ("--stragglers 4:2", "--stragglers 4:2: workers are 0 to 3"),
        ("--stragglers -1:2", "expected one argument"),
        ("--stragglers=-1:2", "--stragglers -1:2: workers are 0 to 3"),
        ("--stragglers 3:2,3:4", "--stragglers 3:4: worker 3 has been named before"),
        ("--stragglers 101%:2", "--stragglers 101%:2: a probability is 0% to 100%"),
        ("--stragglers x%:2", "--stragglers x%:2: a probability is 0% to 100%"),
        ("--stragglers 5%:2,6%:2", "--stragglers 5%:2,6%:2: one probability can be given, not 2"),
        ("--stop 4:1", "--stop 4:1: workers are 0 to 3"),
        ("--stop 1", "--stop: '1' is not of the form 4:0.02"),
        ("--stop 1:1e300", "--stop 1:1e300: at most 1,000,000,000 s"),
        ("--stop 1:-1", "--stop: '1:-1' is not of the form 4:0.02"),
        ("--stop 1:1 --stop 1:2", "--stop 1:2: worker 1 has been named before"),
        ("--drop 0.1", "--drop: needs --on rtl"),
        ("--duplicate 0.1 --reorder 0.1", "--duplicate, --reorder: needs --on rtl"),
        ("--pcap frames", "--pcap: needs --on rtl"),
        ("--width 128", "--width 128: needs --on rtl; the event model has words of 512 bits"),
        ("--width 64 --on rtl", "argument --width: invalid choice: 64"),
        ("--warm-up -1", "warm-up must be in [0, 1000000], not -1"),
        ("--on rtl --drop 2", "drop must be a probability, not 2.0"),
        ("--beside sync", "--beside sync: 'sync' is not of the form algorithm=sync"),
        (
            "--beside model=fcnn",
            "--beside model=fcnn: model is none of batch, lr, dtype, algorithm,",
        ),
        ("--beside algorithm=both", "--beside algorithm=both: algorithm must be one of wild, sync, not 'both'"),
        ("--beside slots=x", "--beside slots=x: slots must be an integer, not 'x'"),
        (
            "--beside algorithm=sync,slots=2",
            "slots must be 1 with Sync-DSGD, whose workers wait for all, not 2",
        ),
        ("--algorithm sync --push-after scan", "push_after must be None with Sync-DSGD"),
        (
            "--costs cluster --jitter 2",
            "jitter must be smaller with the paper's cluster: with 2 Sync-DSGD takes",
        ),
        ("--on rtl --costs cluster", "--costs cluster: needs --on model"),
        ("nowhere", "nowhere: no folder with MNIST's four idx files, no .npz; the bundled set is digits"),
    ],
)
def test_bad_input_takes_one_line_and_writes_nothing(capsys, tmp_path, monkeypatch, arguments, cause):
    monkeypatch.chdir(tmp_path)
    assert cause in refused_ps(capsys, tmp_path, f"{SMALL} {arguments}")


def test_the_papers_cluster_has_its_times_and_sizes(capsys, tmp_path):
    found = json_of_ps(capsys, tmp_path / "run", f"{SMALL} --costs cluster --jitter 0 --beside algorithm=sync")
    row = PAPER["lr"]
    job = training.TrainingJob(
        workers=4,
        epochs=3,
        lr=DIGITS["lr"].lr,
        warm_up=DIGITS["lr"].warm_up,
        model_bytes=row.bytes,
        compute=Compute(per_sample=row.per_sample),
        costs=cluster(row, 0.0),
    )
    assert found["simulated_seconds"] == events.run(job, NoTraining(650, EACH)).seconds
    assert found["configuration"]["push_after"] == "scan"
    assert found["simulated_seconds"] < found["beside"][0]["simulated_seconds"]


def test_computing_may_take_no_time(capsys, tmp_path):
    given = f"{SMALL} --epochs 1 --costs cluster --sample-seconds 0"
    found = json_of_ps(capsys, tmp_path / "run", given)
    assert found["worker_seconds"]["compute"] == 0
    assert "What workers and servers do" in (tmp_path / "run" / "report.html").read_text()


def test_features_that_memory_has_no_room_for_are_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 1 << 12)  # 16 MiB
    err = refused_ps(capsys, tmp_path, f"{SMALL} --model lr-rff --features 20000")
    assert "20,000 features of 1,797 samples take 1 GiB; this machine has 0 GiB" in err


@pytest.mark.parametrize(
    ("where", "cause"),
    [
        (".", "cannot be written: Is a directory"),
        ("out", "out: cannot be a file and the folder of others"),
        ("out/model.npy", "out/model.npy: cannot be frames.pcap and model.npy at once"),
    ],
)
def test_a_capture_that_cannot_be_written_is_refused(capsys, tmp_path, monkeypatch, where, cause):
    monkeypatch.chdir(tmp_path)
    assert cause in refused_ps(capsys, tmp_path, f"--workers 2 --pcap {where}")


def test_frames_are_written_only_where_they_are_wanted(capsys, tmp_path, monkeypatch):
    """What a backend that writes frames is asked for."""
    asked = {}

    def rtl(setup, *, pcap, link_log, wave, finished):
        def run(job, learner, *, progress):
            pcap.write_bytes(b"frames")
            asked.update(link=setup.link, on=setup.options.on)
            return events.run(job, learner, progress)

        return run

    monkeypatch.setattr("fanin.param_server.run.execute.backend_of", rtl)
    faults = "--on rtl --drop 0.1 --duplicate 0.2 --reorder 0.3"
    json_of_ps(capsys, tmp_path / "run", f"{SMALL} {faults} --pcap {tmp_path / 'my.pcap'}")
    assert (tmp_path / "my.pcap").read_bytes() == b"frames"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES
    assert (asked["link"].drop, asked["link"].duplicate, asked["link"].reorder) == (0.1, 0.2, 0.3)


def test_the_sample_in_the_docs_is_of_the_recipe():
    page = (Path(__file__).parents[3] / "docs/systems/param-server-training.md").read_text()
    epochs, each = DIGITS["lr"].epochs, 1347 // 15 // 8
    assert f"\n     {epochs}  0." in page
    assert f"{15 * each * epochs:,} pushed, {15 * each * epochs:,} applied" in page


def test_stragglers_and_stops_are_read_as_they_are_written():
    assert parse_stragglers("", 4) == Stragglers()
    assert parse_stragglers("3:2.5,5%:4,0:1e1", 4) == Stragglers(0.05, 4.0, {3: 2.5, 0: 10.0})
    assert parse_stops("1:0.5,0:0", 2) == {1: 0.5, 0: 0.0}


def test_the_progress_is_told_behind_every_gradient():
    told = []
    job = training.TrainingJob(workers=3, servers=2, epochs=2, compute=Compute(per_sample=1e-6), costs=DESIGN)
    outcome = events.run(job, NoTraining(64, 5), lambda *now: told.append((*now[:2], len(now[2]))))
    assert [applied for applied, _, _ in told] == list(range(1, 31))
    assert [seconds for _, seconds, _ in told] == sorted(seconds for _, seconds, _ in told)
    assert [ended for _, _, ended in told] == [0] * 14 + [1] * 15 + [2]
    assert told[-1][1] == outcome.seconds
    assert outcome.w.shape == (64,)


def test_a_failed_simulation_is_a_failed_check(capsys, tmp_path, monkeypatch):
    def failed(job, learner, *, pcap, **options):
        pcap.write_bytes(b"frames")
        raise SimulationFailed("the simulator\nsays no")

    monkeypatch.setattr(cosim, "run_rtl", failed)
    packets = tmp_path / "packets.pcap"
    status, out, err = run_ps(capsys, tmp_path / "run", f"{SMALL} --on rtl --pcap {packets}")
    folder = tmp_path / "run"
    cause = "the simulator says no"
    assert (status, out, err) == (1, "", f"fanin: error: {cause} (fanin doctor {folder} says more)\n")
    assert packets.read_bytes() == b"frames"  # when they are needed most
    assert {path.name for path in folder.iterdir()} == {*FILES} - {"model.npy"}
    assert json.loads((folder / "run.json").read_text())["error"] == cause
    assert cause in (folder / "report.html").read_text()
    assert main(["doctor", str(folder)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("there is no state to resume from: fanin ps train ")
    assert err == f"fanin: error: {cause}\n"
    assert out.strip().replace("<", "&lt;") in (folder / "report.html").read_text()  # in the same words
