"""``fanin ring train`` in RTL: over bad networks, with nodes that die, and on from the folder that is left."""

import json

import pytest
from scapy.utils import rdpcap

from fanin.wire.link import ETHERTYPE_LINK
from tests.fanin.cli.ring.runs import run, run_json, state_of

HARDWARE = "--layers 64,16,10 --nodes 2 --batch 64 --seed 5"
EACH = 1347 // 2 // 64


@pytest.mark.verilator
def test_the_command_trains_in_rtl_as_on_the_model(capsys, tmp_path):
    """Over a bad network, until a node dies; then on from the folder that is left, to the bits of the model."""
    frames, folder = tmp_path / "frames.pcap", tmp_path / "run"
    faults = "--drop 0.02 --duplicate 0.02 --reorder 0.02 --corrupt 0.02"
    dying = f"{HARDWARE} {faults} --epochs 9 --stop 1:5e-4 --pcap {frames}"
    status, out, err = run(capsys, folder, dying)
    assert (status, out) == (1, "")
    assert "node 1 has stopped answering: " in err
    kinds = {bytes(frame)[12:14] for frame in rdpcap(str(frames))}
    assert kinds == {ETHERTYPE_LINK.to_bytes(2)}
    left = json.loads((folder / "run.json").read_text())
    assert EACH < left["steps"] < 9 * EACH
    done = left["steps"] // EACH
    assert state_of(folder).step == done * EACH
    found = run_json(capsys, folder, f"--resume {folder} --epochs {done + 1} {faults}")
    assert (found["configuration"]["on"], found["bit_exact"], found["first_epoch"]) == ("rtl", True, done + 1)
    assert found["retransmitted"] == sum(each["retransmitted"] for each in found["counters"]) > 0
    assert found["frames"] == sum(each["sent"] for each in found["counters"])
    model = run_json(capsys, tmp_path / "model", f"{HARDWARE} --on model --epochs {done + 1}")
    assert state_of(folder).equals(state_of(tmp_path / "model"))
    assert found["loss"] == model["loss"]


@pytest.mark.slow
@pytest.mark.verilator
@pytest.mark.parametrize("exchange", ["ring", "aggregator"])
def test_inceptionns_hosts_train_over_a_bad_network_and_go_on(capsys, tmp_path, exchange):
    given = f"--system inceptionn --exchange {exchange} --codec inceptionn --bound 2^-6 --drop 0.02"
    options = f"{given} --layers 64,16,10 --nodes 3 --batch 64"
    status, out, _ = run(capsys, tmp_path / "first", f"{options} --epochs 1 --json")
    first = json.loads(out)
    assert (status, first["bit_exact"], first["retransmitted"] > 0) == (0, True, True)
    assert sum(leg["packets"] for leg in first["traffic"]) > 0
    status, out, _ = run(capsys, tmp_path / "rest", f"--resume {tmp_path / 'first'} --epochs 2 --json")
    rest = json.loads(out)
    assert (status, rest["bit_exact"], rest["first_epoch"]) == (0, True, 2)
    assert rest["iteration"]["communicate"] > rest["iteration"]["compute"]


@pytest.mark.slow
@pytest.mark.verilator
def test_groups_of_nodes_train_in_rtl(capsys, tmp_path):
    options = "--groups 2x2 --layers 64,16,10 --batch 64 --epochs 1 --codec bfp"
    status, out, _ = run(capsys, tmp_path / "rtl", f"{options} --json")
    found = json.loads(out)
    assert (status, found["bit_exact"], [each["round"] for each in found["traffic"]]) == (0, True, [0, 1, 2])
    model = run_json(capsys, tmp_path / "model", f"{options} --on model")
    assert state_of(tmp_path / "rtl").equals(state_of(tmp_path / "model"))
    assert found["loss"] == model["loss"] != found["epochs"][0]["binary32"]["loss"]
