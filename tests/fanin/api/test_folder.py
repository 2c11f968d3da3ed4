"""Commands as functions: the same options, the same folder, the same errors."""

import argparse
import gc
import inspect
import json
import os
import shutil
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import fanin
from fanin.api.plan import Planned
from fanin.api.train import TrainRun
from fanin.cli.main import build_parser, main
from fanin.param_server.run import execute

COMMANDS = {
    "train": ("train",),
    "ring_train": ("ring", "train"),
    "ps_train": ("ps", "train"),
    "plan": ("plan",),
    "cluster_build": ("cluster", "build"),
    "cluster": ("cluster", "run"),
}
#: What a function does not have: how a command tells, what is a function or a method of its own, and how many
#: processes there are, which a program has been started as.
APART = {"help", "json", "no_cache", "check", "ranks", "mpi"}
#: What a function alone has: a command's samples are in a file, with their labels.
ALONE = {"train": {"labels"}}


def parser_of(command, parser):
    for name in command:
        (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = commands.choices[name]
    return parser


@pytest.mark.parametrize("name", COMMANDS)
def test_a_function_has_its_commands_options_and_defaults(name):
    signature = inspect.signature(getattr(fanin, name)).parameters
    actions = {action.dest: action for action in parser_of(COMMANDS[name], build_parser())._actions}
    alone = ALONE.get(name, set())
    assert set(signature) - alone == set(actions) - APART
    assert alone <= set(signature)
    for option, parameter in signature.items():
        if option in alone or option == "output" or parameter.default is inspect.Parameter.empty:
            continue
        keyword = bool(actions[option].option_strings)
        if keyword:  # argparse does not know a table's default of a positional
            assert parameter.default == actions[option].default, option
        assert (parameter.kind is inspect.Parameter.KEYWORD_ONLY) == keyword, option


def test_a_plan_and_a_training_on_it(tmp_path):
    plan = fanin.plan("digits_cnn", "arria10x1", time_limit=2, gap=5)
    assert plan.throughput <= plan.bound
    assert plan.limit["device"] == "fpga0"
    assert repr(plan).startswith("digits_cnn on arria10x1: ")
    assert "<iframe" in plan._repr_html_()
    assert os.fspath(plan) == str(plan.folder)
    run = fanin.cluster(on="golden", epochs=1, batch=512, output=tmp_path / "run")
    assert run.values == json.loads((tmp_path / "run/run.json").read_text())
    assert run.accuracy == run.values["accuracy"]
    assert run.frames_per_second is None
    assert [epoch["epoch"] for epoch in run.epochs] == [1]
    run.write_report(tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == (tmp_path / "run/report.html").read_text()
    folder = plan.folder
    del plan
    gc.collect()
    assert not folder.exists()


@pytest.mark.slow
def test_a_folder_of_a_function_can_be_run_again(tmp_path):
    fanin.cluster(on="golden", epochs=1, batch=512, output=tmp_path / "run")
    assert main(["rerun", str(tmp_path / "run"), "-o", str(tmp_path / "second")]) == 0


def test_a_class_keeps_the_folder_of_its_training(tmp_path):
    for folder in (tmp_path, tmp_path / "classes/0"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text("{}")
    run = TrainRun(tmp_path, "")
    weakref.finalize(run, shutil.rmtree, tmp_path)
    (part,) = run.classes
    del run
    gc.collect()
    assert part.folder.is_dir()
    del part
    gc.collect()
    assert not tmp_path.exists()


def test_a_plan_of_one_number_of_parts_is_no_sweep():
    assert type(fanin.plan("digits_cnn", "arria10x1", mp="1,1", time_limit=1)) is Planned


def test_several_plans():
    sweep = fanin.plan("digits_cnn", "arria10x2", devices="1..2", time_limit=1)
    assert [row["devices"] for row in sweep.plans] == [1, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fanin.plan("nothing", "arria10x1"), "nothing: must be a .py or .onnx file or one of "),
        (lambda: fanin.plan("digits_cnn", "arria10x1", gap=-1), r"gap must be in \[0, 100\], not -1"),
        (
            lambda: fanin.plan("digits_cnn", "arria10x1", batch="many"),
            "batch must be an integer, not 'many'",
        ),
        (lambda: fanin.cluster(None, "images.npz"), "data needs build before it"),
        (lambda: fanin.plan("digits_cnn", "arria10x1", mp=3), "--mp must be some of 1, 2, 4, 8, with commas"),
        (lambda: fanin.cluster(pcap="my.pcap"), "pcap must be True or False, not 'my.pcap'"),
        (lambda: fanin.train("digits", bias="no"), "bias must be True or False, not 'no'"),
        (lambda: fanin.train(5), "data must be a path, not 5"),
        (lambda: fanin.train("digits", output=5), "output must be a path, not 5"),
        (lambda: fanin.ps_train(on="model", slots=9), r"slots must be in \[1, 8\], not 9"),
        (lambda: fanin.train("nothing.csv"), "nothing.csv: "),
        (
            lambda: fanin.train("digits", loss="squared"),
            "loss must be one of linear, logistic, hinge, not 'squared'",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(fanin.InputError, match=f"^{message}"):
        call()


def test_numpys_numbers_are_taken_and_matrix_products_have_one_thread(monkeypatch):
    """So that ``fanin rerun`` finds the same bits."""
    threads = []
    train = execute._TrackedRun.train

    def counted(*args, **options):
        threads.extend(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
        return train(*args, **options)

    monkeypatch.setattr(execute._TrackedRun, "train", counted)
    fanin.ps_train(on="model", epochs=np.int64(1), workers=2, optimum=np.bool_(False))
    assert set(threads) == {1}


def test_functions_in_threads_return_the_results_of_functions_one_after_the_other():
    def ps(seed):
        return fanin.ps_train(on="model", epochs=1, workers=2, optimum=False, seed=seed).result[0].w

    def ring(seed):
        return fanin.ring_train(on="model", nodes=2, epochs=1, seed=seed).result.state.parameters[0]

    calls = [(ps, 1), (ps, 2), (ring, 1), (ring, 2)]
    before = os.environ.copy()
    with ThreadPoolExecutor(len(calls)) as pool:
        together = list(pool.map(lambda call: call[0](call[1]), calls))
    assert os.environ == before
    for (function, seed), found in zip(calls, together, strict=True):
        assert found.tobytes() == function(seed).tobytes()
    assert not np.array_equal(together[0], together[1])
    assert not np.array_equal(together[2], together[3])


@pytest.mark.slow
def test_a_training_on_nodes_and_one_that_gives_up():
    run = fanin.train("breast_cancer", epochs=3, drop=0.02)
    assert run.bit_exact
    assert len(run.losses) == len(run.float64_losses) == 3
    assert run.losses[0] > run.losses[-1]
    assert 0.8 < run.test_accuracy <= 1
    assert run.model.weights.shape == (31,)
    with pytest.raises(fanin.CheckFailed, match=r"TIMEOUT|no answer|retries"):
        fanin.train("breast_cancer", epochs=1, drop=1.0, retries=2)
