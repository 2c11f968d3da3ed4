"""A plan that keeps every rule gives no complaint; one that breaks a rule gives the line that says which."""

import random
from dataclasses import asdict

import pytest

from fanin.cnn.layers.layer import Parallelism
from fanin.planner.model.load import SHIPPED, load_model
from tests.planner.plans import PLAN, build, change, complaints, description, description_of, step_into, steps
from tests.test_imports import import_graph

THROUGHPUT = 80_000  # frames/s of the plan as it is; conv1's cycles set it


def test_a_plan_that_keeps_every_rule_gives_no_complaint(tmp_path):
    assert complaints(build(description()), tmp_path) == []


def test_the_checker_shares_nothing_with_the_solver():
    graph = {module: {m for m in used if "planner." in m} for module, used in import_graph().items()}
    reached = {module for module in graph if module.startswith("fanin.planner.check.")}
    while more := {other for module in reached for other in graph[module]} - reached:
        reached |= more
    shared = {module for module in reached if not module.startswith("fanin.planner.check.")}
    assert shared == {"fanin.planner.plan.read", "fanin.planner.plan.digest"}


def test_a_device_without_limits_of_luts_or_dram_has_no_shares_of_them(tmp_path):
    plan = description()
    plan["devices"]["fpga1"] |= {"luts": None, "dram_bytes": None}
    assert complaints(build(plan), tmp_path) == []


def test_other_placements_that_keep_every_rule_give_no_complaint(tmp_path):
    for number, moved in enumerate([("bias1",), ("im2col1",), ("dense1", "mean1", "pool1", "relu2", "add1")]):
        plan = description()
        for name in moved:
            plan["layers"][name]["device"] = "fpga0" if name == "im2col1" else f"fpga{2 - number // 2}"
        assert complaints(build(plan), tmp_path / str(number)) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_the_formulas_are_those_of_the_layers_in_every_shipped_model(tmp_path, name):
    plan = description_of(load_model(name), random.Random(name))
    assert complaints(build(plan), tmp_path) == []


def test_updates_cannot_be_hidden_behind_more_than_two_frames(tmp_path):
    """A convolution that has 8 weights for each cycle of a frame."""
    (tmp_path / "model.py").write_text(
        "from fanin.planner import *\nadd_output('y', conv(64, 3, 1, add_input('x', [4, 4, 16])))"
    )
    model = load_model(str(tmp_path / "model.py"))
    plan = description_of(model, random.Random(0))
    (conv,) = (node for node in model.nodes if node.layer.kind == "conv")
    plan["layers"][conv.name]["parallelism"] = asdict(conv.layer.with_streams(Parallelism(pic=16, poc=8)))
    documents = build(plan)
    documents[PLAN]["throughput_with_update"] = documents[PLAN]["throughput"]
    (complaint,) = complaints(documents, tmp_path / "plan")
    assert complaint == "throughput_with_update: 80,000, but conv1 lets 73,142.8571 through, with its updates"


def test_a_first_layer_whose_parameters_lie_in_dram(tmp_path):
    """Its weights are read once a frame, since its input has no gradient; all others' twice."""
    (tmp_path / "model.py").write_text(
        "from fanin.planner import *\nadd_output('y', dense(10, dense(24, add_input('x', [4, 4, 2]))))"
    )
    plan = description_of(load_model(str(tmp_path / "model.py")), random.Random(0))
    spilled = [layer for layer in plan["layers"].values() if layer["kind"] == "dense"]
    for layer in spilled:
        layer["parameters"] = "dram"
    documents = build(plan)
    assert complaints(documents, tmp_path / "plan") == []
    first, second = (layer for layer in documents[PLAN]["layers"] if layer["kind"] == "dense")
    assert first["dram_read"] == 32 * (32 + 2 * 32 * 24)
    assert second["dram_read"] == 32 * (32 + 3 * 24 * 10)  # of 24 words two beats


def test_a_figure_may_be_off_by_what_a_float_is(tmp_path):
    documents = build(description())
    for name in ("throughput", "bound"):
        documents[PLAN][name] *= 1 + 1e-12
    documents[PLAN]["utilisation"]["fpga1"]["dram_read"] *= 1 - 1e-12
    assert complaints(documents, tmp_path) == []


def test_what_a_device_file_need_not_say_may_be_left_out_or_said(tmp_path):
    documents = build(description())
    layers = documents["devices/fpga1.json"]["layers"]
    step_into(layers, "dwconv1")["specification"] |= {"groups": 16, "parallel_input_channel": 1}
    del step_into(documents["devices/fpga2.json"]["layers"], "dense1")["specification"]["kernel_shape"]
    assert complaints(documents, tmp_path) == []


# What a plan is, at the throughput of the first: places in the description with what they hold, the complaints.
# All figures follow from it.
BROKEN = [
    # Parallelism that does not divide.
    ({"layers/conv1/parallelism/pic": 3}, "conv1: pic = 3 does not divide 4 input channels"),
    ({"layers/conv2/parallelism/pic": 5}, "conv2: pic = 5 does not divide 72 input channels of a group"),
    ({"layers/conv2/parallelism/poc": 5}, "conv2: poc = 5 does not divide 8 output channels of a group"),
    ({"layers/dwconv1/parallelism/poc": 5}, "dwconv1: poc = 5 does not divide 16 output channels"),
    ({"layers/dwconv1/parallelism/pic": 2}, "dwconv1: pic = 2, but dwconv has none"),
    ({"layers/dense1/parallelism/pic": 7}, "dense1: pic = 7 does not divide 256 input channels"),
    ({"layers/conv1/parallelism/ph": 5}, "conv1: ph = 5 does not divide 8 columns"),
    ({"layers/dense1/parallelism/ph": 2}, "dense1: ph = 2 does not divide 1 columns"),
    ({"layers/relu1/parallelism/ph": 2}, "relu1: ph = 2, but relu has none"),
    ({"layers/add1/parallelism/pi": 3}, "add1: pi = 3 does not divide 16 input channels"),
    ({"layers/im2col1/parallelism/pi": 32}, "im2col1: pi = 32 does not divide 16 input channels"),
    ({"layers/im2col1/parallelism/po": 32}, "im2col1: po = 32 does not divide 144 output channels"),
    ({"layers/image/parallelism/pi": 2}, "image: pi = 2, but input has none"),
    ({"layers/relu1/parameters": "dram"}, "relu1: parameters are in dram, but relu has none"),
    # Devices that carry too much.
    ({"devices/fpga1/dsp": 443}, "fpga1: 444 DSPs of 443"),
    ({"devices/fpga1/luts": 195_313}, "fpga1: 195,314 LUTs of 195,313"),
    ({"devices/fpga1/dram_bytes": 297_215}, "fpga1: 297,216 bytes in DRAM of 297,215"),
    ({"devices/fpga2/ram_bits": 476_671}, "fpga2: 476,672 bits of RAM of 476,671"),
    ({"devices/fpga2/ram/0/blocks": 50}, "fpga2: 51 m20k blocks of 50"),
    ({"devices/fpga1/ram/0/blocks": 185}, "fpga1: 186 bram18 blocks of 185"),
    (
        {"devices/fpga1/dram_bits_per_second": 30_000_000_000},
        "fpga1: 35,061,760,000 bits/s read from DRAM of 30,000,000,000",
    ),
    (
        {"devices/fpga2/dram_bits_per_second": 737_279_000},
        "fpga2: 737,280,000 bits/s read from DRAM of 737,279,000",
        "fpga2: 737,280,000 bits/s written to DRAM of 737,279,000",
    ),
    (
        {"devices/fpga1/network_bits_per_second": 10_000_000_000},
        "fpga1: 12,288,000,000 bits/s over the network of 10,000,000,000",
    ),
    (
        {"devices/fpga2/clock_hz": 25_000_000},
        "dense1: 40,960,000 cycles/s of 25,000,000 (fpga2's clock)",
        "devices/fpga2.json: dense1: actual_throughput is 80,000.0, not in 80,000.0…48,828.125",
    ),
    (
        {"devices/fpga1/connections": 3},
        "connection 3: priority is 3, but fpga1 has 3",
        "fpga1: 4 connections of 3",
    ),
    # Priorities that are not there, or taken.
    ({"devices/fpga0/connections": 7, "priorities": {4: 7}}, "connection 4: priority is 7, but fpga0 has 7"),
    ({"priorities": {4: 0}}, "fpga0: connections 0 and 4 both have priority 0"),
    # Layers away from the host, and joins that frames reach over different numbers of hops.
    (
        {"layers/labels/device": "fpga1"},
        "labels: is on fpga1, but is of kind input and has to be on the host's fpga0",
    ),
    (
        {"layers/conv1/device": "fpga2"},
        "conv1: is on fpga2, but is fed by image and has to be on the host's fpga0",
    ),
    (
        {"layers/classes/device": "fpga2"},
        "classes: is on fpga2, but is of kind output and has to be on the host's fpga0",
    ),
    (
        {"layers/loss1/device": "fpga2", "layers/loss1/sources": ["dense1", "dense1"]},
        "loss1: is on fpga2, but is of kind soft_cross_loss and has to be on the host's fpga0",
    ),
    (
        {"layers/im2col1/device": "fpga0", "layers/conv2/device": "fpga0"},
        "add1: hops 2 by bias1 and 1 by conv2",
    ),
    # A throughput that is not what the devices allow.
    ({"throughput": 70_000}, "throughput: 70,000 frames/s, but fpga0's cycles of conv1 lets 80,000 through"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "lines"), [(case[0], case[1:]) for case in BROKEN], ids=[case[1] for case in BROKEN]
)
def test_a_plan_that_breaks_a_rule_is_told_which(tmp_path, changes, lines):
    plan = description(throughput=THROUGHPUT)
    for path, value in changes.items():
        change(plan, steps(path), value)
    assert complaints(build(plan), tmp_path) == list(lines)
