"""What a build says of itself, and which are refused: what would stop, what was edited."""

import json
from types import SimpleNamespace

import pytest

from fanin.cli.main import main
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.flow.node import Sizes
from fanin.cnn.flow.predict import predict
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.memory import MemoryMap
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.run import build as builds
from fanin.cnn.run import rtl
from fanin.cnn.run.contents import memory_json, sizes_json
from fanin.planner.plan.network import PlannedNetwork
from tests.fanin.cnn.run.runs import refusal, run


def test_a_build_that_would_stop_is_refused_in_one_line_and_nothing_is_written(
    small, tmp_path, capsys, monkeypatch
):
    """As if the ring of a layer held less than no frame."""
    network = builds.read_network(small.plan).network
    sizes = Sizes.of(Flow(network))
    norm = next(index for index, stage in enumerate(network.stages) if stage.name == "online_norm1")
    smaller = Sizes({**sizes.rings, norm: 0}, sizes.skews, sizes.gradient_skews)
    monkeypatch.setattr(PlannedNetwork, "sizes", smaller)
    monkeypatch.setattr(rtl, "Rtl", lambda *_: None)
    assert main(["cluster", "build", str(small.plan), "-o", str(tmp_path / "build")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "small would stop: " in err
    assert "the ring of online_norm1" in err
    assert not (tmp_path / "build").exists()


def test_a_build_has_its_sizes_its_verdict_and_what_is_predicted(small):
    record = json.loads((small.build / "build.json").read_text())
    network = builds.read_network(small.plan).network
    sizes = Sizes.of(Flow(network))
    assert record["sizes"] == {
        "fifos": [],
        "rings": [{"layer": network.stages[i].name, "frames": n} for i, n in sizes.rings.items()],
        "connections": [],
    }
    assert record["liveness"]["ends"] is True
    assert record["liveness"]["frames"] >= 2 * (1 + 2)  # two batches: a ring's frame and two more in each
    found, said = predict(network, sizes), record["predicted"]
    assert said["cycles_per_frame"] == pytest.approx(found.period)
    assert said["drain_cycles"] == pytest.approx(found.drain)
    assert said["latency_cycles"] == pytest.approx(found.results[0])
    clock, batch = record["clock_hz"], said["batch"]
    seconds = (batch * said["cycles_per_frame"] + said["exposed_cycles"]) / clock
    assert said["frames_per_second_with_updates"] == pytest.approx(batch / seconds)


def test_memory_files_say_what_lies_where(small):
    """As the node has it: everything of the map, none of it on top of another, by the names of layers."""
    planned = builds.read_network(small.plan)
    (part,) = planned.placement.parts
    found = json.loads((small.build / "memory" / f"{part.device}.json").read_text())
    memory_map = MemoryMap(part.network, frames=3, rings=part.rings)
    ends = 0
    for region in found["regions"]:
        assert region["address"] == ends
        ends += region["bytes"]
        layers = [n for n, stage in enumerate(part.network.stages) if stage.name == region.get("layer")]
        name = " ".join([region["name"], *map(str, layers)])
        assert memory_map.region(name).address == region["address"]
    assert ends == found["bytes"] == memory_map.region("images").address
    for region in found["of_job"]:
        assert memory_map.region(region["name"]).size == 3 * region["bytes_per_frame"]
    assert {"parameters", "ring"} <= {region["name"] for region in found["regions"]}


def test_sizes_of_several_devices_have_their_connections(small):
    """Buffers of 11,264 bytes: as many rows of 24 words, of 128 bytes in whole beats, as a power of two has."""
    network = EXAMPLES["residual"]
    planned = builds.read_network(small.plan)
    apart = PlannedNetwork(
        PlacedNetwork(network, tuple("aaaabbbaaaaaaa")),
        planned.clock,
        planned.throughput,
        planned.cycles,
        "",
        planned.rates,
    )
    found = sizes_json(apart)
    assert {(one["from"], one["to"]): one["frames"] for one in found["connections"]} == {
        ("norm1", "relu1"): 128,
        ("norm2", "add"): 128,
        ("relu1", "add"): 128,
    }
    (join,) = (one for one in found["fifos"] if (one["from"], one["to"]) == ("relu1", "add"))
    assert (join["forward"], join["backward"]) == (apart.sizes.skews[7, 1], apart.sizes.gradient_skews[7, 1])
    host, other = map(memory_json, apart.placement.parts)
    assert [region["name"] for region in host["of_job"]] == ["images", "labels", "results"]
    assert other["of_job"] == []


@pytest.fixture
def with_verilog(small, tmp_path, monkeypatch):
    """A build with ``--verilog``, as if its node were this text."""

    def write_verilog(folder, nodes):
        folder.mkdir()
        (folder / "fpga0.v").write_text("module cluster_node();\nendmodule\n")
        (folder / "fpga0.h").write_text("#define FANIN\n")

    with monkeypatch.context() as patch:
        patch.setattr(rtl, "Rtl", lambda *_: SimpleNamespace(cosim=SimpleNamespace(nodes={})))
        patch.setattr(rtl, "write_verilog", write_verilog)
        words = ["build", small.plan, "-o", tmp_path / "build", "--verilog"]
        assert main(["cluster", *map(str, words)]) == 0
    return tmp_path / "build"


def test_a_build_with_verilog_trains_and_the_run_keeps_what_it_needs_of_it(small, with_verilog, tmp_path):
    paths = SimpleNamespace(**vars(small) | {"build": with_verilog})
    assert run(paths, tmp_path / "run", "--epochs", "1") == 0
    assert set(json.loads((with_verilog / "build.json").read_text())["verilog"]) == {"fpga0.h", "fpga0.v"}
    assert sorted(path.name for path in (tmp_path / "run/build").iterdir()) == ["build.json", "plan"]
    assert builds.open_build(tmp_path / "run/build") == builds.open_build(with_verilog)
    assert main(["cluster", "check", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize("name", ["fpga0.v", "fpga0.h"])
def test_verilog_that_was_edited_or_is_missing_is_refused(small, with_verilog, tmp_path, capsys, name):
    file = with_verilog / "verilog" / name
    words = "cluster", "run", with_verilog, small.data, "--on", "golden", "-o", tmp_path / "run"
    capsys.readouterr()
    file.write_text(file.read_text() + "\n")
    assert refusal(capsys, *words) == f"{file}: was edited; build again"
    file.unlink()
    assert refusal(capsys, *words) == f"{file}: is missing; build again"
    assert not (tmp_path / "run").exists()
