"""The checker names each figure that is misstated in a right plan, and each file that is malformed."""

import json
import random
import re
from copy import deepcopy
from itertools import product

import pytest

from fanin.base.errors import InputError
from fanin.planner.check.plan import check_plan
from tests.planner.plans import (
    CONNECTIONS,
    GONE,
    PLAN,
    build,
    change,
    complaints,
    description,
    steps,
    write,
)
from tests.support import new_seed, slow

D0, D1, D2 = (f"devices/fpga{n}.json" for n in range(3))
# What is said of the plan as it is: (file, place in it, what stands there, the complaints as they begin).
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
    (PLAN, "layers/relu2/saved_words", 0, "relu2: saved_words is 0, not 32"),
    (PLAN, "layers/bias1/saved_words", 1024, "bias1: saved_words is 1,024, not 0"),
    (PLAN, "layers/conv1/cycles", 1151, "conv1: cycles is 1,151, not 1,152"),
    (PLAN, "layers/conv2/cycles", 576, "conv2: cycles is 576, not 1,152"),
    (PLAN, "layers/dwconv1/cycles", 256, "dwconv1: cycles is 256, not 1,152"),
    (PLAN, "layers/dense1/cycles", 128, "dense1: cycles is 128, not 512"),
    (PLAN, "layers/pool1/cycles", 64, "pool1: cycles is 64, not 256"),
    (PLAN, "layers/labels/cycles", 1, "labels: cycles is 1, not 5"),
    (PLAN, "layers/conv2/dsp", 969, "conv2: dsp is 969, not 388"),
    (PLAN, "layers/norm1/ram_bits", 0, "norm1: ram_bits is 0, not 85,312"),
    (PLAN, "layers/conv2/ram_blocks", 113, "conv2: ram_blocks is 113, not 126"),
    (PLAN, "layers/conv2/ram_blocks_by_kind", {"bram18": 125, "uram": 1},
     "conv2: ram_blocks_by_kind bram18 is 125, not 126", "conv2: ram_blocks_by_kind uram is 1, not 0"),
    (PLAN, "layers/relu1/ram_blocks_by_kind/ebr", 1, "relu1: ram_blocks_by_kind ebr is 1, not 0"),
    (PLAN, "layers/conv2/dram_read", 331776, "conv2: dram_read is 331,776, not 405,504"),
    (PLAN, "layers/conv2/dram_write", 294912, "conv2: dram_write is 294,912, not 331,776"),
    (PLAN, "layers/relu1/dram_write", 0, "relu1: dram_write is 0, not 32,768"),
    (PLAN, "layers/loss1/delay_frames", 0.5, "loss1: delay_frames is 0.5, not 1.0"),
    # Edges and connections.
    (PLAN, "edges/1/bits", 32, "edge conv1 → norm1: bits is 32, not 38,400"),
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
    (CONNECTIONS, "connections/1/bits", 1, "connection 1: bits is 1, not 38,400"),
    (CONNECTIONS, "connections/1/bits_per_second", 3072000010.0,
     "connection 1: bits_per_second is 3,072,000,010.0, not 3,072,000,000.0"),
    (CONNECTIONS, "connections/3/hops", 1, "connection 3: hops is 1, not 2"),
    # Utilisation, throughput and bound.
    *((PLAN, f"utilisation/fpga1/{field}", 0.9, f"fpga1: utilisation {field} is 0.9, not 0.")
      for field in ("dsp", "ram_blocks", "dram_bytes", "dram_read", "dram_write", "network", "connections")),
    (PLAN, "utilisation/fpga2/ram_bits", 0.5, "fpga2: utilisation ram_bits is 0.5, not 0.0136192"),
    (PLAN, "utilisation/fpga1/dram_bytes", None, "fpga1: utilisation dram_bytes is null, not 0.283447266"),
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
    (PLAN, "flow_throughput", 80_001, "flow_throughput: 80,001 is above the throughput, 80,000"),
    (PLAN, "flow_throughput", 60_000, "throughput_with_update: 69,189.1892 is above flow_throughput, 60,000"),
    (PLAN, "throughput_with_update", 80_001, "throughput_with_update: 80,001 is above flow_throughput, 80,000"),
    (PLAN, "throughput_with_update", 50_000,
     "throughput_with_update: 50,000 is below 59,534.8837, which is draining and updating one after the other"),
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
    change(documents[file], steps(path), value)
    found = complaints(documents, tmp_path)
    assert len(found) == len(lines)
    for line, start in zip(found, lines, strict=True):
        assert line.startswith(start)
        assert "\n" not in line


def test_a_plan_without_layers_is_none(tmp_path):
    documents = build(description())
    documents[PLAN] |= {"layers": [], "edges": []}
    assert complaints(documents, tmp_path) == ["layers: there are none"]


def test_a_file_of_a_device_without_layers_is_told(tmp_path):
    documents = build(description())
    documents["devices/fpga3.json"] = documents[D2]
    assert complaints(documents, tmp_path) == ["devices/fpga3.json: no device of that name has layers"]


def test_a_priority_in_the_files_of_both_devices_is_the_connections(tmp_path):
    documents = build(description())
    documents[CONNECTIONS]["connections"][0]["priority"] = 4
    assert complaints(documents, tmp_path) == [
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
    change(documents[file], steps(path), value)
    with pytest.raises(InputError) as error:
        complaints(documents, tmp_path)
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
    r"cluster/name|solver/seconds|layers/\d+/(masked|parallelism/frames)|layers/\d+/ram_blocks_by_kind/.*|.*/\d+|"
    r"layers/\d+/specification/(kernel_shape|padding|stride|parallel_horizontal|parameters)"
)


@pytest.mark.parametrize("file", FILES)
def test_a_field_that_is_missing_is_named(tmp_path, file):
    plan = build(description())
    write(plan, tmp_path)
    for path in _places(plan[file]):
        if NOT_NEEDED.fullmatch("/".join(map(str, path))):
            continue
        (tmp_path / file).write_text(json.dumps(change(deepcopy(plan[file]), path, GONE)))
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
        (tmp_path / file).write_text(json.dumps(change(deepcopy(plan[file]), path, value)))
        try:
            lines = check_plan(tmp_path)
        except InputError as error:
            lines = [str(error)]
        assert all("\n" not in line for line in lines)
