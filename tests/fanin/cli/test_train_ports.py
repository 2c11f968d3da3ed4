"""A process for each worker, at a served switch: one is killed, and takes part again."""

import json
import random
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest

from fanin.host.lab import Lab
from fanin.sim.nic.agreement import SLOTS
from tests.fanin.cli.nic_command import FANIN, running
from tests.support import new_seed

BUILD = 600  # of a simulator, and a run
EPOCHS = 60
TRAIN = ("train", "breast_cancer", "--preset", "tiny", "--workers", "2", "--epochs", str(EPOCHS))
SURVIVE = ("--checkpoint", "1", "--restart", "7", "--retries", "150")  # 15 s of the wall clock
JOBS = 8


@contextmanager
def switch(folder):
    """A lab whose namespace ``switch`` serves the jobs of two workers."""
    options = ["--workers", "2", "--jobs", str(JOBS), "--slots", str(JOBS * 2 * SLOTS)]
    with Lab(["switch", "nodes"]) as lab:
        for port in range(2):
            lab.wire("switch", f"port{port}", "nodes", f"node{port}")
        lab.run("switch", [*FANIN, "p4", "emit", *options, "-o", folder])
        named = [text for port in range(2) for text in ("--port", f"{port}=port{port}")]
        serve = ["p4", "serve", folder / "aggregation.p4", "--job", folder / "job.json", *named]
        with running(lab, "switch", *serve, "--grpc", "none"):
            yield lab


def start(lab, worker, *words):
    where = ("--worker", str(worker), "--ports", f"node{worker}")
    return lab.start(
        "nodes",
        [*FANIN, *words, *where],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def states(folder):
    return len(list(folder.glob("states/epoch*")))


def until_states(folder, count, *processes):
    end = time.monotonic() + BUILD
    while states(folder) < count:
        assert time.monotonic() < end
        for process in processes:
            if process.poll() is not None:
                return
        time.sleep(0.02)


@pytest.mark.needs("namespaces")
@pytest.mark.verilator
@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced(tmp_path):
    rng = random.Random(new_seed())
    folders = [tmp_path / f"run{worker}" for worker in range(2)]
    with switch(tmp_path / "switch") as lab, ExitStack() as opened:
        runs = [start(lab, n, *TRAIN, *SURVIVE, "-o", str(folders[n])) for n in range(2)]
        for number in range(2):
            until_states(folders[1], rng.randrange(2, 20) + 20 * number, *runs)
            time.sleep(rng.random())
            killed = rng.randrange(2)
            runs[killed].send_signal(signal.SIGKILL)
            runs[killed].communicate()
            runs[killed] = start(lab, killed, "train", "--resume", str(folders[killed]))
        for process in runs:
            opened.callback(process.communicate)
            opened.callback(process.kill)
        ended = [process.communicate(timeout=BUILD) for process in runs]
    assert [process.returncode for process in runs] == [0, 0], ended
    records = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert all(record["bit_exact"] for record in records)
    assert [len(record["epochs"]) for record in records] == [EPOCHS] * 2
    assert records[0]["job"] == records[1]["job"] > 1
    models = [np.load(folder / "model.npz")["weights"] for folder in folders]
    assert np.array_equal(*models)
