"""Faults, cuts and captures of a run: what options mean, and one line for what they cannot."""

import pytest

from fanin.base.errors import InputError
from fanin.cli.main import main
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.run.conditions import Wires, check_conditions, conditions_of, wires_of
from fanin.cnn.run.options import BuildOptions, ClusterOptions
from fanin.cnn.training import Training
from fanin.link import LinkConfig

HOST, CONV, LAST = "fpga-0", "fpga-1", "fpga"  # a pair of them has two hyphens, or three
THREE = PlacedNetwork(EXAMPLES["tiny"], (*(HOST,) * 3, CONV, LAST, *(HOST,) * 5))
ONE = PlacedNetwork(EXAMPLES["tiny"], (HOST,) * 10)
TRAINING = Training(epochs=2, batch=8, seed=5)
FRAMES = 20  # three batches an epoch, the last one short


def options(tmp_path, **given):
    return ClusterOptions.read({"output": tmp_path, **given})


def conditions(tmp_path, placement=THREE, **given):
    return conditions_of(options(tmp_path, **given), placement, TRAINING, FRAMES)


def test_faults_are_those_of_the_links_and_have_a_seed(tmp_path):
    found = conditions(tmp_path, drop=0.25, corrupt=0.5)
    assert found.link(40) == LinkConfig(gbps=40, drop=0.25, corrupt=0.5)
    assert (found.seed, found.capture) == (TRAINING.seed, None)
    assert conditions(tmp_path, network_seed=7, pcap=True).seed == 7
    assert conditions(tmp_path, pcap=True).capture == tmp_path / "frames.pcap"
    assert found.as_json() == {
        "drop": 0.25, "duplicate": 0.0, "reorder": 0.0, "corrupt": 0.5, "seed": 5, "cut": None
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "devices", "frames"),
    [
        ("fpga-1@1", (CONV,), 0),
        ("fpga@3", (LAST,), 16),
        ("fpga-0@4", (HOST,), 20),  # the first of the second epoch
        ("fpga-0@6", (HOST,), 36),
        ("fpga-1-fpga@2", (CONV, LAST), 8),
        ("fpga-fpga-1@2", (LAST, CONV), 8),
        ("fpga-1-fpga-0@2", (CONV, HOST), 8),
    ],
)
def test_a_cut_is_at_a_batch_of_the_run_counted_from_1(tmp_path, text, devices, frames):
    found = conditions(tmp_path, cut=text).cut
    assert (found.devices, found.frames) == (devices, frames)
    assert conditions(tmp_path, cut=text).as_json()["cut"] == text


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("fpga-1", "must be DEVICE@BATCH or DEVICE-DEVICE@BATCH, not 'fpga-1'"),
        ("fpga-1@x", "must be DEVICE@BATCH or DEVICE-DEVICE@BATCH, not 'fpga-1@x'"),
        ("fpga-1@0", "the run has batches 1…6, not 0"),
        ("fpga-1@7", "the run has batches 1…6, not 7"),
        ("board@1", "no device board; devices are fpga-0, fpga-1, fpga"),
        ("fpga-1-board@1", "no device fpga-1-board; devices are fpga-0, fpga-1, fpga"),
    ],
)
def test_a_cut_that_cannot_be_is_one_line(tmp_path, text, cause):
    with pytest.raises(InputError, match=f"^--cut: {cause}$".replace("(", r"\(")):
        conditions(tmp_path, cut=text)


def test_devices_without_a_connection_cannot_be_cut_from_one_another(tmp_path):
    chain = PlacedNetwork(EXAMPLES["tiny"], ("a", "a", "a", "b", "c", "d", "a", "a", "a", "a"))
    with pytest.raises(InputError, match=r"^--cut: no connection goes between b and d$"):
        conditions(tmp_path, chain, cut="b-d@1")


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"drop": 1.5}, "--drop must be a probability, not 1.5"),
        ({"corrupt": float("nan")}, "--corrupt must be a probability, not nan"),
        ({"on": "golden", "drop": 0.1, "pcap": True}, "--drop, --pcap: needs --on rtl"),
        ({"on": "golden", "network_seed": 0}, "--network-seed: needs --on rtl"),
    ],
)
def test_what_no_run_can_have_is_one_line(tmp_path, given, cause):
    with pytest.raises(InputError, match=f"^{cause}"):
        check_conditions(options(tmp_path, **given))


def test_one_device_has_no_network(tmp_path, small, capsys):
    cause = "does not apply: the plan has one device and no network"
    with pytest.raises(InputError, match=f"^--cut, --pcap: {cause}$"):
        conditions(tmp_path, ONE, cut="fpga-0@1", pcap=True)
    for words in (
        ["run", small.build, small.data, "--drop", "0.1", "--batch", "8", "-o", tmp_path / "out"],
        ["build", small.plan, "--link", "published", "-o", tmp_path / "out"],
    ):
        assert main(["cluster", *map(str, words)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert err.endswith(f": {cause}\n")
        assert not (tmp_path / "out").exists()


def test_wires_are_as_asked_for(tmp_path):
    paths = {"plan": tmp_path, "output": tmp_path}
    assert wires_of(BuildOptions.read({"link": "published", **paths}), THREE) == Wires("published", "l2")
    assert wires_of(BuildOptions.read(paths), ONE) == Wires("reliable", "l2")
