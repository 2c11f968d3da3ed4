"""``fanin ring train`` in RTL: over bad networks, with nodes that die, and on from the folder that is left."""

import json
from collections import Counter

import pytest
from scapy.utils import rdpcap

from fanin.sim.capture import read_capture
from fanin.wire.link import ETHERTYPE_LINK, LinkKind
from fanin.wire.ring import RING_LINK
from tests.fanin.report.traces import read
from tests.fanin.ring.run.runs import run, run_json, state_of

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
    trace = read((folder / "trace.json").read_text())
    assert {process for process, _ in trace.slices} == {"network", "node 0", "node 1"}
    assert trace.names("network", "to node 0")["DATA"] > 0
    assert trace.faults("from node 1")["dropped"] > 0
    found = run_json(capsys, folder, f"--resume {folder} --epochs {done + 1} {faults} --pcap {frames}")
    check_trace(folder, found, frames, first_step=done * EACH)
    assert (found["configuration"]["on"], found["bit_exact"], found["first_epoch"]) == ("rtl", True, done + 1)
    assert found["retransmitted"] == sum(each["retransmitted"] for each in found["counters"]) > 0
    assert found["frames"] == sum(each["sent"] for each in found["counters"])
    model = run_json(capsys, tmp_path / "model", f"{HARDWARE} --on model --epochs {done + 1}")
    assert state_of(folder).equals(state_of(tmp_path / "model"))
    assert found["loss"] == model["loss"]


def check_trace(folder, found, frames, *, first_step):
    """The timeline has the steps, the all-reduces and the frames that run.json counts and the capture has."""
    trace, kinds = read((folder / "trace.json").read_text()), Counter()
    for _, frame in read_capture(frames):
        kinds[LinkKind(RING_LINK.read_header(frame)["kind"]).name] += 1
    carried = sum((trace.names("network", f"to node {node}") for node in range(2)), Counter())
    assert {kind: 2 * count for kind, count in carried.items()} == kinds  # to the switch, and from it
    for node, counters in enumerate(found["counters"]):
        name = f"node {node}"
        steps = trace.slices[name, "steps"]
        assert [step for step, *_ in steps] == [f"step {first_step + n}" for n in range(found["steps"])]
        sent = trace.names("network", f"from {name}")
        assert sent["DATA"] == counters["sent"]
        again = [begin for text, begin, *_ in trace.slices["network", f"from {name}"] if text == "DATA again"]
        # Its host reads the counters behind its last step; what is lost then is sent again uncounted.
        assert sum(begin < steps[-1][2] for begin in again) <= counters["retransmitted"] <= len(again)
        assert trace.names(name, "all-reduces, frames").total() == found["all_reduces"]
        phases = trace.names(name, "phases")
        assert set(phases) == {"reduce-scatter, segment 0", "all-gather, segment 0"}
        assert set(phases.values()) == {found["all_reduces"]}
        assert sum(facts["frames"] for *_, facts in trace.slices[name, "phases"]) == counters["sent"]
        assert min(value for _, value in trace.counters["network", f"credit of {name}"]) >= 0
    for fault in ("dropped", "duplicated", "reordered", "corrupted"):
        assert trace.faults()[fault] > 0


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
    trace = read((tmp_path / "first" / "trace.json").read_text())
    for node, counters in enumerate(first["counters"]):
        sent = trace.names("network", f"from node {node}")
        assert sent["segment"] + sent["segment again"] == counters["segments"]
        assert (sent["segment again"], sent["ACK"]) == (counters["repeated"], counters["acknowledgements"])
        assert trace.names(f"node {node}", "steps").total() == first["steps"]
    assert (("node 0", "phases") in trace.slices) == (exchange == "ring")
    down = [f"to node {node}" for node in range(len(first["counters"]))]
    carried = sum(trace.names("network", link).total() for link in down)
    assert carried == sum(leg["packets"] + leg["acknowledgements"] for leg in first["traffic"])
    assert trace.faults(*down)["dropped"] > 0
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
    trace = read((tmp_path / "rtl" / "trace.json").read_text())
    sent = [trace.names("network", f"from node {node}") for node in range(4)]
    assert [each["DATA"] for each in sent] == [counters["sent"] for counters in found["counters"]]
    rounds = [trace.names(f"node {node}", "all-reduces, frames").total() for node in range(4)]
    assert rounds == [found["all_reduces"] * (3 if node in (0, 2) else 2) for node in range(4)]
    assert found["loss"] == model["loss"] != found["epochs"][0]["binary32"]["loss"]
