"""A run beside the golden model: one bit of an output, of a state or of an evaluation that differs ends it."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.cli.main import main
from fanin.cnn.run import execute
from fanin.cnn.run.machine import NotFinite
from fanin.cnn.run.models import Golden
from fanin.cnn.run.summary import summary
from tests.fanin.cnn import test_page as cnn

JOBS = 2  # the job, counted from 1, in which a bit differs


class Node(Golden):
    """Stands for the RTL; ``wrong``: what differs in the second job: outputs, state, evaluation, or nothing."""

    trained = None
    trace = SimpleNamespace(text=lambda: "{}")
    meetings = SimpleNamespace(facts=list)
    wrong = ""

    def __init__(self, network):
        super().__init__(network)
        self._jobs = 0

    def train(self, images, labels, job, progress):
        self._jobs += 1
        if self.wrong == "nonfinite" and self._jobs == JOBS:
            raise NotFinite("conv1", "output", 3)
        outputs = super().train(images, labels, job, progress)
        if self.wrong == "outputs" and self._jobs == JOBS:
            outputs.view(np.uint32)[13, 2] ^= 1
        return outputs

    def dump(self):
        states = super().dump()
        if self.wrong == "state" and self._jobs == JOBS:
            states[1]["velocity"] = states[1]["velocity"].copy()
            states[1]["velocity"].view(np.uint32)[0, 0, 0, 1] ^= 1
        return states

    def evaluate(self, images):
        outputs = super().evaluate(images)
        if self.wrong == "evaluation" and self._jobs == JOBS:
            outputs.view(np.uint32)[3, 0] ^= 1
        return outputs


@pytest.fixture
def run(small, tmp_path, monkeypatch):
    """A run's exit status and run.json."""

    def with_wrong(wrong):
        def machines(setup):
            return {"rtl": Node(setup.network), "golden": Golden(setup.network)}

        monkeypatch.setattr(Node, "wrong", wrong)
        monkeypatch.setattr(execute, "machines_of", machines)
        words = ["run", small.build, small.data, "--batch", "8", "--epochs", "3", "-o", tmp_path / "run"]
        status = main(["cluster", *map(str, words)])
        return status, json.loads((tmp_path / "run/run.json").read_text())

    return with_wrong


def test_throughput_is_told_beside_the_plan_s():
    lines = summary(cnn.run(accuracy=0.7), Path("run"), []).splitlines()
    assert "  throughput     121,951 frames/s, 97.6 % of the plan's 125,000" in lines
    unmeasured = cnn.run(accuracy=0.7, hardware=cnn.HARDWARE | {"frames_per_second": None})
    assert "throughput" not in summary(unmeasured, Path("run"), [])


def test_equal_bits_are_counted(run, capsys):
    status, record = run("")
    assert (status, record["bit_exact"], record["frames_compared"]) == (0, True, 120)
    assert "yes: the outputs of all 120 frames, and the state 3 times" in capsys.readouterr().out
    assert record["epochs"][2]["rtl"] == record["epochs"][2]["golden"]


@pytest.mark.parametrize(
    ("wrong", "said", "states"),
    [
        (
            "outputs",
            "epoch 2: outputs of 1 of 40 frames are not the golden model's, the first of them frame 13",
            2,
        ),
        ("state", "epoch 2: conv1/velocity: 1 of 72 words differ; word 1 is 0x", 2),
        ("evaluation", "evaluation after epoch 2: outputs of 1 of 12 frames are not the golden model's, ", 3),
    ],
)
def test_one_bit_that_differs_ends_the_run(run, capsys, wrong, said, states):
    status, record = run(wrong)
    assert status == 1
    assert capsys.readouterr().err.startswith(f"fanin: error: {said}")
    assert record["error"].startswith(said)
    assert record["bit_exact"] is False
    assert len(record["checkpoints"]) == states


def test_an_infinity_that_the_golden_model_does_not_meet_is_the_rtl_s(run):
    status, record = run("nonfinite")
    assert status == 1
    met = "in RTL conv1: first infinity or NaN in the output of frame 3 of epoch 2"
    assert record["error"].startswith(f"{met}; in the golden model all is finite")
