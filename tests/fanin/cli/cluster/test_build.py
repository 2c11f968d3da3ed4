"""A build that would stop is refused before anything is built; one that was edited, before it is used."""

import json
from types import SimpleNamespace

import pytest

from fanin.cli.cluster import builds, rtl
from fanin.cli.main import main
from fanin.flow.node import Sizes
from fanin.flow.sizes import Flow
from tests.fanin.cli.cluster.runs import refusal, run


def test_a_build_that_would_stop_is_refused_in_one_line_and_nothing_is_written(
    small, tmp_path, capsys, monkeypatch
):
    """As if the ring of a layer held less than no frame."""
    network = builds.read_network(small.plan).network
    sizes = Sizes.of(Flow(network))
    norm = next(index for index, stage in enumerate(network.stages) if stage.name == "online_norm1")
    smaller = Sizes({**sizes.rings, norm: 0}, sizes.skews, sizes.gradient_skews)
    monkeypatch.setattr(builds.Sizes, "of", staticmethod(lambda flow: smaller))
    monkeypatch.setattr(rtl, "Rtl", lambda planned, arithmetic: None)
    assert main(["cluster", "build", str(small.plan), "-o", str(tmp_path / "build")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "small would stop: " in err
    assert "the ring of online_norm1" in err
    assert not (tmp_path / "build").exists()


@pytest.fixture
def with_verilog(small, tmp_path, monkeypatch):
    """A build with ``--verilog``, as if its node were this text."""

    def write_verilog(folder, nodes):
        folder.mkdir()
        (folder / "fpga0.v").write_text("module cluster_node();\nendmodule\n")
        (folder / "fpga0.h").write_text("#define FANIN\n")

    with monkeypatch.context() as patch:
        patch.setattr(rtl, "Rtl", lambda planned, arithmetic: SimpleNamespace(cosim=SimpleNamespace(nodes={})))
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
