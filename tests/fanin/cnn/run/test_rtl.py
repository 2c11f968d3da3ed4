# amaranth: UnusedElaboratable=no
"""The node as a machine: the golden model's bits, what it counted, and what there is no hardware for."""

import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.cnn.driver import StreamCounters
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.facts import Network
from fanin.cnn.golden.network import initial_state
from fanin.cnn.layers.layer import Storage
from fanin.cnn.layers.relu import Relu
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.run import hardware
from fanin.cnn.run.checkpoint import flatten_states
from fanin.cnn.run.hardware import hardware_of
from fanin.cnn.run.machine import NotFinite, ignore_progress
from fanin.cnn.run.models import Golden
from fanin.cnn.run.rtl import Rtl, parts_of, write_verilog
from fanin.cnn.training import Job
from fanin.hdl.layers.registers import Direction, StageStream
from fanin.planner.plan.network import PlannedNetwork, Rates, read_network
from fanin.sim.cnn.batch_times import timeline_of
from fanin.sim.cnn.cosim import node_of
from fanin.sim.learning.images import load_images
from tests.support import slow

FRAMES, BATCH = 11, 4


def planned(network):
    cycles = tuple(stage.layer.cycles(stage.parallelism) for stage in network.stages)
    clock = 100_000_000
    placement = PlacedNetwork(network, ("fpga0",) * len(network.stages))
    rates = {"fpga0": Rates(dram=50_000_000_000, network=40_000_000_000)}
    return PlannedNetwork(placement, clock, Fraction(clock, max(cycles)), cycles, "", rates)


@pytest.fixture(scope="module")
def tiny():
    return planned(EXAMPLES["tiny"])


@pytest.fixture(scope="module")
def node(tiny):
    return Rtl(tiny, "c")


@pytest.fixture
def data(tiny):
    rng = np.random.default_rng(5)
    shape = tiny.network.stages[tiny.network.images].layer.output
    classes = tiny.network.stages[tiny.network.labels].layer.output.words
    images = rng.standard_normal((FRAMES, shape.h, shape.w, shape.c)).astype(np.float32)
    return images, rng.integers(0, classes, FRAMES)


@pytest.mark.verilator
class TestNode:
    def test_it_trains_classifies_and_keeps_its_state_as_the_golden_model_does(self, tiny, node, data):
        golden, job = Golden(tiny.network), Job.of(FRAMES, BATCH, 0.5, 0.9)
        for machine in (node, golden):
            machine.load(tuple(initial_state(tiny.network, 1)))
        for _ in range(2):
            told = []
            found, right = node.train(*data, job, told.append), golden.train(*data, job, ignore_progress)
            assert np.array_equal(found.view(np.uint32), right.view(np.uint32))
            assert told == [FRAMES]
            assert np.array_equal(node.evaluate(data[0]), golden.evaluate(data[0]))
        states = (flatten_states(tiny.network, machine.dump()) for machine in (node, golden))
        found, right = ({name: values.tobytes() for name, values in each.items()} for each in states)
        assert found == right

    def test_it_names_where_an_infinity_came_first(self, tiny, node, data):
        images = data[0].copy()
        images[6, 1, 1, 0] = np.inf
        node.load(tuple(initial_state(tiny.network, 1)))
        with pytest.raises(NotFinite) as caught:
            node.train(images, data[1], Job.of(FRAMES, BATCH, 0.5, 0.9), ignore_progress)
        image = tiny.network.stages[tiny.network.images].name
        assert (caught.value.layer, caught.value.part, caught.value.frame) == (image, "output", 6)

    def test_what_it_counted_is_set_beside_the_plan(self, tiny, node, data):
        node.load(tuple(initial_state(tiny.network, 1)))
        node.train(*data, Job.of(FRAMES, BATCH, 0.5, 0.9), ignore_progress)
        found = hardware_of(tiny, node)
        assert found["frames"] == FRAMES
        assert len(found["results"]) == FRAMES
        assert found["results"][0] == 0
        assert 0.5 < found["of_planned"] <= 1.001  # never faster than planned
        assert found["frames_per_second_with_updates"] < found["frames_per_second"]
        predicted = found["predicted"]
        assert predicted["cycles_per_frame"] == pytest.approx(found["cycles_per_frame"], rel=0.02)
        after = predicted["drain_cycles"] + predicted["update_cycles"]
        assert found["drain_and_update_cycles"] == pytest.approx(after, rel=0.02)
        names = [stage.name for stage in tiny.network.stages]
        for way in found["ways"]:
            shares = [way[f"{kind}_share"] for kind in ("busy", "starved", "blocked")]
            assert sum(shares) == pytest.approx(1, abs=0.01)
            assert way["planned"] == tiny.cycles[names.index(way["layer"])]
        words = sum(stage.layer.saved_words for stage in tiny.network.stages)
        assert found["devices"][0]["written_bytes_per_frame"] >= 4 * words
        assert {fifo["name"] for fifo in found["fifos"] if fifo["kind"] == "ring"} == {
            f"saved by {stage.name}" for stage in tiny.network.stages if stage.layer.saved_words
        }
        assert all(0 < fifo["fill"] <= fifo["size"] for fifo in found["fifos"])
        timeline = found["timeline"]
        assert (timeline["frames"], timeline["start"] > 0) == (BATCH, True)
        assert [row["layer"] for row in timeline["layers"]] == names[2:-1]
        json.dumps(found)


def counters(stage, way, first, last, updated=0, port=0):
    return StreamCounters(StageStream(stage, way, port), 1, 1, 1, 4, None, first, last, updated)


def test_the_rate_is_that_of_frames_that_have_gone_back():
    """Forward they come faster, and so they do to the layers where they turn."""
    streams = [
        counters(4, Direction.FORWARD, 5, 20),
        counters(4, Direction.BACKWARD, 30, 50),
        counters(3, Direction.BACKWARD, 40, 70),
    ]
    assert hardware._period(streams, 4) == 10
    assert hardware._period(streams, 1) is None
    streams += [counters(3, Direction.BACKWARD, 39, 70)]  # its first frame came over a link in a cycle less
    assert hardware._period(streams, 4) == 31 / 3


def test_the_timeline_has_spans_of_all_layers(tiny):
    """Cycles behind the first layer's first frame: 10 of stage 2, which learns what stage 3 gives back."""
    network = tiny.network
    streams = [counters(0, Direction.FORWARD, 1, 2), counters(1, Direction.FORWARD, 1, 2)]
    streams += [counters(n, Direction.FORWARD, 5 * n, 5 * n + 40, updated=200 * (n == 2)) for n in range(2, 9)]
    streams += [counters(n, Direction.BACKWARD, 100 - 5 * n, 150 - 5 * n) for n in range(3, 9)]
    found = timeline_of(network, streams)
    assert found["start"] == 10
    first, second = found["layers"][:2]
    assert first == {
        "layer": network.stages[2].name,
        "forward": [0, 40],
        "backward": None,
        "update": [125, 190],
    }
    assert second == {
        "layer": network.stages[3].name,
        "forward": [5, 45],
        "backward": [75, 125],
        "update": None,
    }
    assert len(found["layers"]) == 7


def test_the_node_is_written_as_verilog_with_its_registers(tiny, tmp_path):
    write_verilog(tmp_path / "verilog", {part.device: node_of(part) for part in parts_of(tiny)})
    assert "module cluster_node(" in (tmp_path / "verilog/fpga0.v").read_text()
    assert "#define FANIN_CLUSTER_NODE_" in (tmp_path / "verilog/fpga0.h").read_text()


class Unbuilt(Relu):
    """A layer that nothing in the gates stands for."""

    kind = "unbuilt"
    component = ""


def test_a_layer_without_hardware_is_named():
    network = EXAMPLES["tiny"]
    index = next(n for n, stage in enumerate(network.stages) if stage.layer.kind == "relu")
    strange = replace(network.stages[index], layer=Unbuilt(inputs=network.stages[index].layer.inputs))
    stages = (*network.stages[:index], strange, *network.stages[index + 1 :])
    cause = f"^{network.name}: {strange.name}: there is no hardware for layers of kind unbuilt$"
    with pytest.raises(InputError, match=cause):
        parts_of(planned(replace(network, stages=stages)))


def test_parameters_of_a_convolution_in_dram_have_no_hardware():
    stages = (
        replace(stage, storage=Storage.DRAM) if stage.name == "conv" else stage
        for stage in EXAMPLES["tiny"].stages
    )
    cause = "there is no hardware for layers of kind conv with parameters in DRAM"
    with pytest.raises(InputError, match=f"^tiny: conv: {cause}$"):
        parts_of(planned(Network("tiny", tuple(stages))))


@pytest.mark.parametrize("arithmetic", slow("c", "rtl"))
@pytest.mark.verilator
def test_a_plan_is_built_and_trains_in_rtl(small, tmp_path, capsys, arithmetic):
    words = ["build", small.plan, "-o", tmp_path / "build", "--verilog", "--arith", arithmetic]
    assert main(["cluster", *map(str, words)]) == 0
    assert (tmp_path / "build/verilog/fpga0.v").is_file()
    words = ["run", tmp_path / "build", small.data, "--epochs", "2", "--batch", "8", "-o", tmp_path / "run"]
    assert main(["cluster", *map(str, words)]) == 0
    record = json.loads((tmp_path / "run/run.json").read_text())
    assert (record["on"], record["bit_exact"], record["frames_compared"]) == ("rtl", True, 80)
    assert main(["cluster", "check", str(tmp_path / "run")]) == 0


@pytest.mark.slow
@pytest.mark.verilator
def test_digits_cnn_has_the_same_bits_with_operators_in_c_and_in_rtl(tmp_path):
    assert main(["plan", "digits_cnn", "arria10x1", "-o", str(tmp_path / "plan"), "--workers", "1"]) == 0
    digits = read_network(tmp_path / "plan")
    images = digits.network.stages[digits.network.images].layer.output
    train = load_images("digits", images, classes=10).train
    frames, first = 100, tuple(initial_state(digits.network, 1))
    outputs, states = [], []
    for arithmetic in "c", "rtl":
        machine = Rtl(digits, arithmetic)
        machine.load(first)
        job = Job.of(frames, 32, 0.1, 0.9)
        outputs.append(
            machine.train(train.images[:frames], train.digits[:frames], job, ignore_progress).tobytes()
        )
        states.append(
            {name: value.tobytes() for name, value in flatten_states(digits.network, machine.dump()).items()}
        )
    assert outputs[0] == outputs[1]
    assert states[0] == states[1]
    assert states[0] != {name: value.tobytes() for name, value in flatten_states(digits.network, first).items()}
