"""A build that would stop is refused before anything is built."""

from fanin.cli.cluster import builds, rtl
from fanin.cli.main import main
from fanin.flow.node import Sizes
from fanin.flow.sizes import Flow


def test_a_build_that_would_stop_is_refused_in_one_line_and_nothing_is_written(
    small, tmp_path, capsys, monkeypatch
):
    """As if the ring of a layer held less than no frame."""
    network = builds.read_network(small.plan).network
    sizes = Sizes.of(Flow(network))
    norm = next(index for index, stage in enumerate(network.stages) if stage.name == "online_norm1")
    smaller = Sizes({**sizes.rings, norm: 0}, sizes.skews, sizes.gradient_skews)
    monkeypatch.setattr(builds.Sizes, "of", staticmethod(lambda flow: smaller))
    monkeypatch.setattr(rtl, "Rtl", lambda *_: None)
    assert main(["cluster", "build", str(small.plan), "-o", str(tmp_path / "build")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "small would stop: " in err
    assert "the ring of online_norm1" in err
    assert not (tmp_path / "build").exists()
