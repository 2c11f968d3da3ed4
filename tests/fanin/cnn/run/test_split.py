"""Plans with model parallelism: a group of layers in two parts, each on a device of its own."""

import time
from types import SimpleNamespace

import pytest

from fanin.cli.main import main
from fanin.cnn.run import rtl
from fanin.cnn.run.folder import open_run
from fanin.planner.plan.network import read_network
from tests.fanin.cnn.run.runs import bits, refusal, run
from tests.fanin.cnn.run.test_resume import FORK, record_of, resume
from tests.support import new_seed

MODEL = """
from fanin.planner import *

x = add_input("image", [6, 6, 2])
x = relu(bias(conv(4, 1, 1, x, name="stem")))
x = conv(8, 3, 1, x, name="expand")
x = relu6(bias(dwconv(3, 1, x, name="filter")))
x = conv(4, 1, 1, x, name="project")
x = bias(dense(3, global_avg_pool(online_norm(x, forward=0.9, backward=0.8))))
add_output("class", soft_cross_loss(x, add_input("label", [3])))
"""
CLUSTER = """
[[device]]
name = "fpga"
part = "arria10"
count = 3
dsp = 44
"""
PERIOD, WHOLE_PERIOD = 648, 864  # cycles of a frame, with the group in two parts and whole
STATES = [f"states/epoch00000{epoch}-000000{frame:02}.npz" for epoch in (0, 1) for frame in (0, 8, 16, 24, 32)]
LAST = "states/epoch000002-00000000.npz"
OPTIONS = ("--on", "rtl", "--epochs", "2", "--checkpoint", "1")
FAULTS = ("--drop", "0.02", "--duplicate", "0.02", "--reorder", "0.02")


@pytest.fixture(scope="module")
def parted(small, tmp_path_factory):
    """``model``, ``plan`` in two parts, ``whole``: its plan without; ``build``, not made yet; ``data``."""
    folder = tmp_path_factory.mktemp("split")
    paths = SimpleNamespace(**{name: folder / name for name in ("plan", "whole", "build")}, data=small.data)
    paths.model, cluster = folder / "parted.py", folder / "three.toml"
    paths.model.write_text(MODEL)
    cluster.write_text(CLUSTER)
    for plan, ways in (paths.plan, "2"), (paths.whole, "1"):
        words = ["plan", paths.model, cluster, "--mp", ways, "--workers", "1", "-o", plan]
        assert main([str(word) for word in words]) == 0
    return paths


def test_two_parts_on_two_devices_are_faster_and_never_stop(parted):
    planned, whole = read_network(parted.plan), read_network(parted.whole)
    periods = [float(one.clock / one.throughput) for one in (planned, whole)]
    assert periods == pytest.approx([PERIOD, WHOLE_PERIOD])
    on = dict(zip((stage.name for stage in planned.network.stages), planned.placement.devices, strict=True))
    halves = [{on[f"{name}/{part}of2"] for name in ("expand", "filter", "project")} for part in (1, 2)]
    assert [len(half) for half in halves] == [1, 1]
    assert halves[0] != halves[1]
    assert planned.liveness.deadlock is None
    assert planned.prediction(planned.batch).period == pytest.approx(PERIOD)


def test_a_state_of_the_whole_model_is_refused(parted, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(rtl, "Rtl", lambda *_: None)
    first = tmp_path / "first.npz"
    assert main(["cluster", "init", str(parted.model), "-o", str(first)]) == 0
    assert main(["cluster", "build", str(parted.plan), "-o", str(tmp_path / "build")]) == 0
    capsys.readouterr()
    words = "cluster", "run", tmp_path / "build", parted.data, "--init", first, "-o", tmp_path / "run"
    assert refusal(capsys, *words) == f"{first}: holds a state of another model of that name, not of parted"


@pytest.fixture(scope="module")
def built(parted):
    """The same paths, with ``build`` made."""
    assert main(["cluster", "build", str(parted.plan), "-o", str(parted.build)]) == 0
    return parted


@pytest.fixture(scope="module")
def trained(built, tmp_path_factory):
    """A run in RTL: two epochs of five batches of eight frames."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert run(built, folder, *OPTIONS) == 0
    return folder


@pytest.mark.slow
@pytest.mark.verilator
class TestRtl:
    def test_every_bit_is_the_golden_models(self, trained):
        record = record_of(trained)
        assert (record["on"], record["bit_exact"], record["frames_compared"]) == ("rtl", True, 80)
        assert record["checkpoints"] == [*STATES, LAST]
        assert main(["cluster", "check", str(trained)]) == 0

    def test_frames_come_as_planned_and_as_the_flow_model_says(self, built, tmp_path):
        """In one batch of an epoch."""
        assert run(built, tmp_path / "run", "--on", "rtl", "--epochs", "1", "--batch", "32") == 0
        hardware = record_of(tmp_path / "run")["hardware"]
        assert 0.99 < hardware["of_planned"] <= 1
        predicted = hardware["predicted"]
        assert hardware["cycles_per_frame"] == pytest.approx(predicted["cycles_per_frame"], rel=0.01)
        after = predicted["drain_cycles"] + predicted["update_cycles"]
        assert hardware["drain_and_update_cycles"] == pytest.approx(after, rel=0.02)

    def test_a_bad_network_changes_no_bit(self, parted, trained, tmp_path):
        seed = ("--network-seed", str(new_seed()))
        assert run(parted, tmp_path / "run", *OPTIONS, *FAULTS, *seed) == 0
        ends = [end for one in record_of(tmp_path / "run")["connections"] for end in one["ends"]]
        assert sum(end["retransmitted"] for end in ends) > 0
        assert bits(tmp_path / "run", LAST) == bits(trained, LAST)

    def test_a_killed_run_goes_on_to_the_same_bits(self, parted, trained, tmp_path):
        folder = tmp_path / "run"
        process = FORK.Process(target=run, args=(parted, folder, *OPTIONS))
        process.start()
        while not (folder / STATES[4]).exists():
            assert process.is_alive()
            time.sleep(0.01)
        process.kill()
        process.join()
        assert len(open_run(folder).states) < len(STATES)
        assert resume(folder) == 0
        assert bits(folder, LAST) == bits(trained, LAST)
        assert main(["cluster", "check", str(folder)]) == 0
