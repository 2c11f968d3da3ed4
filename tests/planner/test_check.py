"""A plan that keeps every rule gives no complaint; one that breaks a rule gives the line that says which."""

import json
import random
import re
from copy import deepcopy
from itertools import product
from pathlib import Path

import pytest

from fanin.errors import InputError
from fanin.planner.check import plan as check
from fanin.planner.check.plan import check_plan
from fanin.planner.model.load import SHIPPED, load_model
from tests.planner.plans import build, description, description_of, write
from tests.support import new_seed, slow

PLAN, CONNECTIONS = "plan.json", "connections.json"
GONE = object()  # in the place of a value: the field is not there
THROUGHPUT = 80_000  # frames/s of the plan as it is; conv1's cycles set it


def _step(value, step):
    if isinstance(value, list) and isinstance(step, str):  # of things with names
        return next(item for item in value if item["name"] == step)
    return value[step]


def _change(document, path, value):
    """Set what is at the path, or take it away. Returns the document."""
    inner = document
    for step in path[:-1]:
        inner = _step(inner, step)
    last = path[-1]
    if isinstance(inner, list) and isinstance(last, str):
        last = inner.index(_step(inner, last))
    if value is GONE:
        del inner[last]
    else:
        inner[last] = value
    return document


def _complaints(documents, directory):
    write(documents, directory)
    return check_plan(directory)


def _path(text):
    return tuple(int(step) if step.isdigit() else step for step in text.split("/"))


def test_a_plan_that_keeps_every_rule_gives_no_complaint(tmp_path):
    assert _complaints(build(description()), tmp_path) == []


def test_the_checker_shares_nothing_with_the_solver():
    for path in Path(check.__file__).parent.glob("check*.py"):
        imported = re.findall(r"(?:from|import) fanin\.planner\.?(\w*)", path.read_text())
        assert [name for name in imported if not name.startswith("check_")] == []


def test_other_placements_that_keep_every_rule_give_no_complaint(tmp_path):
    for number, moved in enumerate([("bias1",), ("im2col1",), ("dense1", "mean1", "pool1", "relu2", "add1")]):
        plan = description()
        for name in moved:
            plan["layers"][name]["device"] = "fpga0" if name == "im2col1" else f"fpga{2 - number // 2}"
        assert _complaints(build(plan), tmp_path / str(number)) == []


@pytest.mark.parametrize("name", SHIPPED)
def test_the_formulas_are_those_of_the_layers_in_every_shipped_model(tmp_path, name):
    plan = description_of(load_model(name), random.Random(name))
    assert _complaints(build(plan), tmp_path) == []


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
    assert _complaints(documents, tmp_path / "plan") == []
    first, second = (layer for layer in documents[PLAN]["layers"] if layer["kind"] == "dense")
    assert first["dram_read"] == 32 * (32 + 2 * 32 * 24)
    assert second["dram_read"] == 32 * (24 + 3 * 24 * 10)


def test_a_figure_may_be_off_by_what_a_float_is(tmp_path):
    documents = build(description())
    for name in ("throughput", "bound"):
        documents[PLAN][name] *= 1 + 1e-12
    documents[PLAN]["utilisation"]["fpga1"]["dram_read"] *= 1 - 1e-12
    assert _complaints(documents, tmp_path) == []


def test_what_a_device_file_need_not_say_may_be_left_out_or_said(tmp_path):
    documents = build(description())
    layers = documents["devices/fpga1.json"]["layers"]
    _step(layers, "dwconv1")["specification"] |= {"groups": 16, "parallel_input_channel": 1}
    del _step(documents["devices/fpga2.json"]["layers"], "dense1")["specification"]["kernel_shape"]
    assert _complaints(documents, tmp_path) == []


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
    ({"devices/fpga1/luts": 172_975}, "fpga1: 172,976 LUTs of 172,975"),
    ({"devices/fpga2/ram_bits": 435_711}, "fpga2: 435,712 bits of RAM of 435,711"),
    ({"devices/fpga2/ram/0/blocks": 85}, "fpga2: 86 m20k blocks of 85"),
    ({"devices/fpga1/ram/1/blocks": 23}, "fpga1: 24 uram blocks of 23"),
    (
        {"devices/fpga1/dram_bits_per_second": 30_000_000_000},
        "fpga1: 35,061,760,000 bits/s read from DRAM of 30,000,000,000",
    ),
    (
        {"devices/fpga2/dram_bits_per_second": 3_276_799_000},
        "fpga2: 3,276,800,000 bits/s read from DRAM of 3,276,799,000",
        "fpga2: 3,276,800,000 bits/s written to DRAM of 3,276,799,000",
    ),
    (
        {"devices/fpga1/network_bits_per_second": 10_000_000_000},
        "fpga1: 10,485,760,000 bits/s over the network of 10,000,000,000",
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
        _change(plan, _path(path), value)
    assert _complaints(build(plan), tmp_path) == list(lines)


# What is said of the plan as it is: (file, place in it, what stands there, the complaints as they begin).
D0, D1, D2 = (f"devices/fpga{n}.json" for n in range(3))
FILES = [PLAN, CONNECTIONS, D1, D2]
SPEC = "layers/dwconv1/specification"
MISSTATED = [
    # The graph.
    (PLAN, "cluster/host", "fpga9", "host: there is no device fpga9"),
    (PLAN, "cluster/devices/fpga3/name", "fpga2", "fpga2: there are 2 devices of that name"),
    (PLAN, "layers/relu1/device", "fpga9", "relu1: there is no device fpga9"),
    (PLAN, "layers/classes/name", "features", "features: there are 2 layers of that name",
     "edge loss1 → classes: there is no layer classes"),
    (PLAN, "layers/norm1/kind", "add", "norm1: 1 edges lead to it, and add has 2 inputs"),
    (PLAN, "edges/7", GONE, "add1: 1 edges lead to it, and add has 2 inputs"),
    (PLAN, "edges/7/from", "bias2", "edge bias2 → add1: there is no layer bias2"),
    (PLAN, "edges/7/from", "relu2", "edge relu2 → add1: relu2 does not stand before add1"),
    (PLAN, "edges/9/from", "relu2", "edge relu2 → relu2: relu2 does not stand before relu2"),
    (PLAN, "edges/7/from", "im2col1",
     "add1: its inputs differ in shape: 8×8×144 by im2col1 and 8×8×16 by conv2"),
    # Layers that cannot be, and shapes that they have not.
    (PLAN, "layers/conv1/kernel", [3, 11], "conv1: a window of 3×11 does not fit 10×10 (padding included)"),
    (PLAN, "layers/conv2/groups", 3, "conv2: 3 groups do not divide 144 input channels and 16 output channels"),
    (PLAN, "layers/conv2/output_channels", 15, "conv2: 2 groups do not divide 144 input channels and 15"),
    (PLAN, "layers/dwconv1/groups", 8, "dwconv1: 8 groups and 16 output channels, but a depthwise convolution"),
    (PLAN, "layers/dense1/kernel", [4, 4], "dense1: a dense layer has a kernel of 1×1"),
    (PLAN, "layers/conv1/inputs", [[8, 8, 3]], "conv1: inputs 8×8×3, but it gets 8×8×4 by image"),
    (PLAN, "layers/add1/inputs", [[8, 8, 16]],
     "add1: inputs 8×8×16, but it gets 8×8×16 by bias1 and 8×8×16 by conv2"),
    (PLAN, "layers/image/inputs", [[8, 8, 4]], "image: inputs 8×8×4, but it gets none"),
    (PLAN, "layers/conv1/output", [8, 8, 4], "conv1: output 8×8×4, but it makes 8×8×16"),
    (PLAN, "layers/im2col1/output", [8, 8, 16], "im2col1: output 8×8×16, but it makes 8×8×144"),
    (PLAN, "layers/pool1/output", [8, 8, 16], "pool1: output 8×8×16, but it makes 4×4×16"),
    (PLAN, "layers/mean1/output", [4, 4, 16], "mean1: output 4×4×16, but it makes 1×1×16"),
    (PLAN, "layers/dense1/output", [1, 1, 256], "dense1: output 1×1×256, but it makes 1×1×10"),
    (PLAN, "layers/relu1/output", [8, 16, 8], "relu1: output 8×16×8, but it makes 8×8×16"),
    # Figures of layers.
    (PLAN, "layers/norm1/gradient", False, "norm1: gradient is false, but a layer before it has parameters"),
    (PLAN, "layers/conv1/gradient", True, "conv1: gradient is true, but no layer before it has parameters"),
    (PLAN, "layers/conv1/parameter_words", 575, "conv1: parameter_words is 575, not 576"),
    (PLAN, "layers/conv2/parameter_words", 2304, "conv2: parameter_words is 2,304, not 1,152"),
    (PLAN, "layers/dwconv1/parameter_words", 0, "dwconv1: parameter_words is 0, not 144"),
    (PLAN, "layers/dense1/parameter_words", 160, "dense1: parameter_words is 160, not 2,560"),
    (PLAN, "layers/bias1/parameter_words", 0, "bias1: parameter_words is 0, not 16"),
    (PLAN, "layers/conv1/saved_words", 0, "conv1: saved_words is 0, not 256"),
    (PLAN, "layers/norm1/saved_words", 0, "norm1: saved_words is 0, not 1,040"),
    (PLAN, "layers/relu2/saved_words", 0, "relu2: saved_words is 0, not 1,024"),
    (PLAN, "layers/bias1/saved_words", 1024, "bias1: saved_words is 1,024, not 0"),
    (PLAN, "layers/conv1/cycles", 1151, "conv1: cycles is 1,151, not 1,152"),
    (PLAN, "layers/conv2/cycles", 576, "conv2: cycles is 576, not 1,152"),
    (PLAN, "layers/dwconv1/cycles", 256, "dwconv1: cycles is 256, not 1,152"),
    (PLAN, "layers/dense1/cycles", 128, "dense1: cycles is 128, not 512"),
    (PLAN, "layers/pool1/cycles", 64, "pool1: cycles is 64, not 256"),
    (PLAN, "layers/labels/cycles", 1, "labels: cycles is 1, not 5"),
    (PLAN, "layers/conv2/dsp", 969, "conv2: dsp is 969, not 388"),
    (PLAN, "layers/norm1/ram_bits", 0, "norm1: ram_bits is 0, not 70,656"),
    (PLAN, "layers/conv2/ram_blocks", 128, "conv2: ram_blocks is 128, not 129"),
    (PLAN, "layers/conv2/ram_blocks_by_kind", {"bram18": 129},
     "conv2: ram_blocks_by_kind bram18 is 129, not 105", "conv2: ram_blocks_by_kind uram is 0, not 24"),
    (PLAN, "layers/relu1/ram_blocks_by_kind/ebr", 1, "relu1: ram_blocks_by_kind ebr is 1, not 0"),
    (PLAN, "layers/conv2/dram_read", 331776, "conv2: dram_read is 331,776, not 405,504"),
    (PLAN, "layers/conv2/dram_write", 294912, "conv2: dram_write is 294,912, not 331,776"),
    (PLAN, "layers/relu1/dram_write", 0, "relu1: dram_write is 0, not 32,768"),
    (PLAN, "layers/loss1/delay_frames", 0.5, "loss1: delay_frames is 0.5, not 1.0"),
    # Edges and connections.
    (PLAN, "edges/1/bits", 32, "edge conv1 → norm1: bits is 32, not 32,768"),
    (PLAN, "edges/13/label", True, "edge dense1 → loss1: label is true, not false"),
    (PLAN, "edges/14/label", False, "edge labels → loss1: label is false, not true"),
    (PLAN, "edges/3/connection", None, "edge relu1 → dwconv1: leads from fpga0 to fpga1, but has no connection",
     "connection 0: no cut edge has it",
     f"{D0}: network entry 0 (out, relu1, fpga1, priority 0) is not the plan's",
     f"{D1}: network entry 0 (in, dwconv1, fpga0, priority 0) is not the plan's"),
    (PLAN, "edges/1/connection", 0, "edge conv1 → norm1: stays on fpga0, but has connection 0"),
    (CONNECTIONS, "connections/5", GONE, "edge mean1 → features: there is no connection 5",
     f"{D0}: network entry 5 (in, features, fpga2, priority 5) is not the plan's",
     f"{D2}: network entry 5 (out, mean1, fpga0, priority 5) is not the plan's"),
    (PLAN, "edges/16/connection", 4, "edge mean1 → features: connection 4 is that of edge dense1 → loss1",
     "connection 5: no cut edge has it",
     f"{D0}: network entry 5 (in, features, fpga2, priority 5) is not the plan's",
     f"{D2}: network entry 5 (out, mean1, fpga0, priority 5) is not the plan's"),
    (CONNECTIONS, "connections/1/id", 7, "connection 1: id is 7"),
    (CONNECTIONS, "connections/1/from/layer", "norm1",
     "connection 1: leads from norm1 on fpga0, not relu1 on fpga0"),
    (CONNECTIONS, "connections/1/to/device", "fpga2",
     "connection 1: leads to im2col1 on fpga2, not im2col1 on fpga1"),
    (CONNECTIONS, "connections/1/bits", 1, "connection 1: bits is 1, not 32,768"),
    (CONNECTIONS, "connections/1/bits_per_second", 2621440010.0,
     "connection 1: bits_per_second is 2,621,440,010.0, not 2,621,440,000.0"),
    (CONNECTIONS, "connections/3/hops", 1, "connection 3: hops is 1, not 2"),
    # Utilisation, throughput and bound.
    *((PLAN, f"utilisation/fpga1/{field}", 0.9, f"fpga1: utilisation {field} is 0.9, not 0.")
      for field in ("dsp", "ram_blocks", "dram_read", "dram_write", "network", "connections")),
    (PLAN, "utilisation/fpga2/ram_bits", 0.5, "fpga2: utilisation ram_bits is 0.5, not 0.0124489143"),
    (PLAN, "utilisation/fpga1/ram_bits", 0.5, "fpga1: utilisation ram_bits is 0.5, not null"),
    (PLAN, "utilisation/fpga0/ram_blocks", 0, "fpga0: utilisation ram_blocks is 0, not null"),
    (PLAN, "utilisation/fpga3/dsp", 0.01, "fpga3: utilisation dsp is 0.01, not 0"),
    (PLAN, "limit", {"device": "fpga1", "resource": "dram_read"},
     "limit: fpga1's dram_read is faster than fpga0's cycles of conv1"),
    (PLAN, "limit/layer", "conv2", "limit: there is no fpga0's cycles of conv2"),
    (PLAN, "limit/layer", "norm1", "limit: fpga0's cycles of norm1 is faster than fpga0's cycles of conv1"),
    (PLAN, "gap", 0.2, "gap: is 0.2, not 0.25"),
    (PLAN, "bound", 79_000, "bound: 79,000 is below the throughput, 80,000", "gap: is 0.25, not -0.0125"),
    (PLAN, "solver/status", "optimal", "solver: status is optimal, but the gap 0.25"),
    (PLAN, "throughput_with_update", 80_001, "throughput_with_update: 80,001 is above the throughput"),
    # Files of devices.
    (D1, "device", "fpga2", f"{D1}: device is fpga2"),
    (D1, "host", True, f"{D1}: host is true, not false"),
    (D1, "clock_hz", 100, f"{D1}: clock_hz is 100, not 92,160,000"),
    (D1, "throughput", 1, f"{D1}: throughput is 1.0, not 80,000.0"),
    (D1, "layers/bias1", GONE, f"{D1}: layer bias1 is missing"),
    (D1, "layers/bias1/name", "bias2", f"{D1}: layer bias1 is missing", f"{D1}: layer bias2 is not the plan's"),
    (D1, "layers/bias1/kind", "relu", f"{D1}: bias1: kind is relu, not bias"),
    (D1, f"{SPEC}/output_channels", 8, f"{D1}: dwconv1: output_channels is 8, not 16"),
    (D1, f"{SPEC}/kernel_shape", [1, 3], f"{D1}: dwconv1: kernel_shape is (1, 3), not (3, 3)"),
    (D1, f"{SPEC}/padding", [0, 1, 1, 1], f"{D1}: dwconv1: padding is (0, 1, 1, 1), not (1, 1, 1, 1)"),
    (D1, f"{SPEC}/stride", [2, 2], f"{D1}: dwconv1: stride is (2, 2), not (1, 1)"),
    (D1, f"{SPEC}/parallel_output_channel", 2, f"{D1}: dwconv1: parallel_output_channel is 2, not 4"),
    (D1, f"{SPEC}/parallel_horizontal", 1, f"{D1}: dwconv1: parallel_horizontal is 1, not 2"),
    (D1, f"{SPEC}/parallel_input_channel", 2, f"{D1}: dwconv1: parallel_input_channel is 2, not 1"),
    (D1, "layers/conv2/specification/parallel_input_channel", 2,
     f"{D1}: conv2: parallel_input_channel is 2, not 4"),
    (D1, f"{SPEC}/parallel_io", [4, 8], f"{D1}: dwconv1: parallel_io is (4, 8), not (4, 4)"),
    (D1, f"{SPEC}/input_shape", [8, 8, 4], f"{D1}: dwconv1: input_shape is (8, 8, 4), not (8, 8, 16)"),
    (D1, f"{SPEC}/output_shape", [8, 8, 4], f"{D1}: dwconv1: output_shape is (8, 8, 4), not (8, 8, 16)"),
    (D1, f"{SPEC}/induced_delay_frames", 1, f"{D1}: dwconv1: induced_delay_frames is 1.0, not 0.5"),
    (D1, f"{SPEC}/target_throughput", 1, f"{D1}: dwconv1: target_throughput is 1.0, not 80,000.0"),
    (D1, f"{SPEC}/actual_throughput", 1, f"{D1}: dwconv1: actual_throughput is 1.0, not in 80,000.0…80,000.0"),
    (D1, f"{SPEC}/parameters", "dram", f"{D1}: dwconv1: parameters is dram, not chip"),
    (D1, "layers/bias1/specification/stride", [1, 1], f"{D1}: bias1: stride is (1, 1), but bias has none"),
    (D1, "connections/0", GONE, f"{D1}: connection dwconv1 → bias1 is missing"),
    (D1, "connections/0/to", "conv2", f"{D1}: connection dwconv1 → bias1 is missing",
     f"{D1}: connection dwconv1 → conv2 is not the plan's"),
    (D1, "network/0", GONE, f"{D1}: network entry 0 (in, dwconv1, fpga0, priority 0) is missing"),
    *((D1, f"network/0/{field}", value, f"{D1}: network entry 0 (in, dwconv1, fpga0, priority 0) is missing",
       f"{D1}: network entry {shown} is not the plan's")
      for field, value, shown in [("id", 7, "7 (in, dwconv1, fpga0, priority 0)"),
                                  ("direction", "out", "0 (out, dwconv1, fpga0, priority 0)"),
                                  ("layer", "conv2", "0 (in, conv2, fpga0, priority 0)"),
                                  ("peer", "fpga2", "0 (in, dwconv1, fpga2, priority 0)"),
                                  ("priority", 3, "0 (in, dwconv1, fpga0, priority 3)")]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("file", "path", "value", "lines"),
    [(*case[:3], case[3:]) for case in MISSTATED],
    ids=[case[3] for case in MISSTATED],
)
def test_what_is_misstated_is_told_and_nothing_else(tmp_path, file, path, value, lines):
    documents = build(description())
    _change(documents[file], _path(path), value)
    found = _complaints(documents, tmp_path)
    assert len(found) == len(lines)
    for line, start in zip(found, lines, strict=True):
        assert line.startswith(start)
        assert "\n" not in line


def test_a_plan_without_layers_is_none(tmp_path):
    documents = build(description())
    documents[PLAN] |= {"layers": [], "edges": []}
    assert _complaints(documents, tmp_path) == ["layers: there are none"]


def test_a_file_of_a_device_without_layers_is_told(tmp_path):
    documents = build(description())
    documents["devices/fpga3.json"] = documents[D2]
    assert _complaints(documents, tmp_path) == ["devices/fpga3.json: no device of that name has layers"]


def test_a_priority_in_the_files_of_both_devices_is_the_connections(tmp_path):
    documents = build(description())
    documents[CONNECTIONS]["connections"][0]["priority"] = 4
    assert _complaints(documents, tmp_path) == [
        "fpga0: connections 0 and 4 both have priority 4",
        f"{D0}: network entry 0 (out, relu1, fpga1, priority 4) is missing",
        f"{D0}: network entry 0 (out, relu1, fpga1, priority 0) is not the plan's",
        f"{D1}: network entry 0 (in, dwconv1, fpga0, priority 4) is missing",
        f"{D1}: network entry 0 (in, dwconv1, fpga0, priority 0) is not the plan's",
    ]


MALFORMED = [
    (PLAN, "throughput", GONE, '"throughput" is missing'),
    (PLAN, "throughput", 0, '"throughput" must be above 0'),
    (PLAN, "throughput", "fast", '"throughput" must be a number of at least 0, not "fast"'),
    (PLAN, "throughput", float("nan"), '"throughput" must be a number of at least 0, not NaN'),
    (PLAN, "bound", float("inf"), '"bound" must be a number of at least 0, not Infinity'),
    (PLAN, "batch", 0, '"batch" must be an integer in 1…'),
    (PLAN, "layers", {}, '"layers" must be a list, not {}'),
    (PLAN, "layers/0", 7, "layers[0]: must be an object, not 7"),
    (PLAN, "layers/2/kind", "lstm", 'layers[2]: "kind" must be one of input, conv'),
    (PLAN, "layers/2/name", "a\nb", 'layers[2]: "name" must be a text of one line'),
    (PLAN, "layers/2/kernel", [3], 'layers[2]: "kernel" must be a list of 2 integers in 1…'),
    (PLAN, "layers/2/stride", [0, 1], 'layers[2]: "stride" must be a list of 2 integers in 1…'),
    (PLAN, "layers/2/inputs", [[8, 8]], 'layers[2]: "inputs" must be a list of lists of 3 integers'),
    (
        PLAN,
        "layers/2/cycles",
        True,
        'layers[2]: "cycles" must be an integer in 0…9223372036854775807, not true',
    ),
    (PLAN, "layers/2/cycles", 1.5, 'layers[2]: "cycles" must be an integer'),
    (PLAN, "layers/2/gradient", 1, 'layers[2]: "gradient" must be true or false, not 1'),
    (PLAN, "layers/2/parallelism/pic", 0, 'layers[2].parallelism: "pic" must be an integer in 1…'),
    (PLAN, "layers/2/parameters", "disk", 'layers[2]: "parameters" must be one of chip, dram, not "disk"'),
    (PLAN, "utilisation/fpga1", GONE, 'utilisation: "fpga1" is missing'),
    (PLAN, "utilisation/fpga1/dsp", GONE, 'utilisation.fpga1: "dsp" is missing'),
    (PLAN, "limit/resource", "luck", 'limit: "resource" must be one of dram_read, dram_write, network, cycles'),
    (PLAN, "limit/layer", GONE, 'limit: "layer" is missing'),
    (PLAN, "cluster/devices/0/name", "../x", 'cluster.devices[0]: "name" must be letters, digits, _ . or -'),
    (PLAN, "cluster/devices/0/family", "6502", 'cluster.devices[0]: "family" must be one of arria10'),
    (PLAN, "cluster/devices/1/ram/0/from_bits", 1, 'cluster.devices[1]: "ram" must list every kind once'),
    (PLAN, "cluster/devices/0/ram/0/shapes", [], 'cluster.devices[0]: "ram" must give every kind shapes'),
    (PLAN, "cluster/devices/0/clock_hz", 0, 'cluster.devices[0]: "clock_hz" must be an integer in 1…'),
    (CONNECTIONS, "connections/0/from/layer", GONE, 'connections[0].from: "layer" is missing'),
    (D1, f"{SPEC}/kernel_shape", GONE, 'layers[0].specification: "kernel_shape" is missing'),
    (D1, "network/0/direction", "up", 'network[0]: "direction" must be one of in, out, not "up"'),
]


@pytest.mark.parametrize(
    ("file", "path", "value", "message"), MALFORMED, ids=[case[3][:50] for case in MALFORMED]
)
def test_what_is_malformed_is_named_with_file_and_field(tmp_path, file, path, value, message):
    documents = build(description())
    _change(documents[file], _path(path), value)
    with pytest.raises(InputError) as error:
        _complaints(documents, tmp_path)
    prefix = f"{tmp_path}/{file}: "
    assert str(error.value).startswith(prefix + message)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", [PLAN, CONNECTIONS, D0, D1, D2])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, ": cannot be read: No such file or directory"),
        (b'{"a": 1,}', ":1:9: "),
        (b"\xff\xfe", ": not JSON: "),
        (b"[" * 100_000, ": not JSON: "),
        (b"[]", ": must be an object, not []"),
        (b"{}", ': "'),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, file, text, message):
    write(build(description()), tmp_path)
    if text is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(text)
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/{file}{message}")):
        check_plan(tmp_path)


def _places(value, path=()):
    """The path of every field, of every list only those of its first and its last item."""
    items = value.items() if isinstance(value, dict) else []
    if isinstance(value, list):
        items = [(n, value[n]) for n in sorted({0, len(value) - 1}) if value]
    for step, item in items:
        yield (*path, step)
        yield from _places(item, (*path, step))


# What may be left out: what the checker has no use for, what there is a default for, and items of lists.
NOT_NEEDED = re.compile(
    r"cluster/name|solver/seconds|layers/\d+/ram_blocks_by_kind/.*|.*/\d+|"
    r"layers/\d+/specification/(kernel_shape|padding|stride|parallel_horizontal|parameters)"
)


@pytest.mark.parametrize("file", FILES)
def test_a_field_that_is_missing_is_named(tmp_path, file):
    plan = build(description())
    write(plan, tmp_path)
    for path in _places(plan[file]):
        if NOT_NEEDED.fullmatch("/".join(map(str, path))):
            continue
        (tmp_path / file).write_text(json.dumps(_change(deepcopy(plan[file]), path, GONE)))
        with pytest.raises(InputError, match=re.escape(f'"{path[-1]}" is missing')) as error:
            check_plan(tmp_path)
        assert str(error.value).startswith(f"{tmp_path}/{file}: ")


@pytest.mark.parametrize(("file", "tries"), [*product(FILES, [50]), *slow(*product(FILES, [None]))])
def test_whatever_a_field_holds_there_is_no_traceback(tmp_path, file, tries):
    """Every field with every value, or as many of these pairs as told, drawn by a printed seed."""
    plan = build(description())
    write(plan, tmp_path)
    pairs = list(product(_places(plan[file]), (None, {}, "x", -1, 10**18, [[]])))
    rng = random.Random(new_seed())
    for path, value in rng.sample(pairs, tries or len(pairs)):
        (tmp_path / file).write_text(json.dumps(_change(deepcopy(plan[file]), path, value)))
        try:
            lines = check_plan(tmp_path)
        except InputError as error:
            lines = [str(error)]
        assert all("\n" not in line for line in lines)
