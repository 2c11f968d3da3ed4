# amaranth: UnusedElaboratable=no
"""Three nodes as a machine: what the network does to frames changes no bit, and a cut ends the run by name."""

import re
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from fanin.base.errors import CheckFailed
from fanin.cnn.examples import EXAMPLES
from fanin.cnn.golden.network import initial_state
from fanin.cnn.page import trace as cnn_trace
from fanin.cnn.parts import PlacedNetwork
from fanin.cnn.run.conditions import LOSSLESS, RELIABLE_L2, Conditions, Cut, Wires
from fanin.cnn.run.hardware import connections_of, hardware_of
from fanin.cnn.run.machine import ignore_progress
from fanin.cnn.run.models import Golden
from fanin.cnn.run.options import PUBLISHED
from fanin.cnn.run.rtl import Rtl, link_of, memory_gbps_of
from fanin.cnn.training import Job
from fanin.planner.plan.network import PlannedNetwork, Rates
from fanin.sim.capture import read_capture
from fanin.wire.connection import decode_connection
from fanin.wire.link import LinkKind
from tests.fanin.report.traces import read

pytestmark = pytest.mark.verilator

FRAMES, BATCH = 11, 4
NAMES = ("host", "conv", "bias")
GBPS = 10**9
CYCLE_NS = 10  # at 100 MHz
FAULTS = dict.fromkeys(("drop", "duplicate", "reorder", "corrupt"), 0.02)


@pytest.fixture(scope="module")
def three():
    network = EXAMPLES["tiny"]
    placement = PlacedNetwork(network, (*NAMES[:1] * 3, *NAMES[1:], *NAMES[:1] * 5))
    cycles = tuple(stage.layer.cycles(stage.parallelism) for stage in network.stages)
    rates = [Rates(50 * GBPS, 40 * GBPS), Rates(60 * GBPS, 40 * GBPS), Rates(0, 100 * GBPS)]
    clock = 100_000_000
    throughput = Fraction(clock, max(cycles))
    return PlannedNetwork(placement, clock, throughput, cycles, "", dict(zip(NAMES, rates, strict=True)))


@pytest.fixture(scope="module")
def data(three):
    rng = np.random.default_rng(5)
    shape = three.network.stages[three.network.images].layer.output
    classes = three.network.stages[three.network.labels].layer.output.words
    images = rng.standard_normal((FRAMES, shape.h, shape.w, shape.c)).astype(np.float32)
    return images, rng.integers(0, classes, FRAMES)


def machine(three, conditions, wires=RELIABLE_L2):
    """The nodes, with their first parameters."""
    found = Rtl(three, "c", wires, conditions)
    found.load(tuple(initial_state(three.network, 1)))
    return found


def trained(machine, data, jobs=2):
    """Results of as many jobs, and of an evaluation."""
    job = Job.of(FRAMES, BATCH, 0.5, 0.9)
    return [*(machine.train(*data, job, ignore_progress) for _ in range(jobs)), machine.evaluate(data[0])]


def ends(three, machine):
    return [end for one in connections_of(three.placement, machine) for end in one["ends"]]


def test_links_and_memories_are_as_fast_as_the_slowest_of_the_plan(three):
    assert link_of(three, Conditions({"drop": 0.1})).gbps == 40
    assert link_of(three, Conditions({"drop": 0.1})).drop == 0.1
    assert memory_gbps_of(three) == 50
    port = PlannedNetwork(three.placement, three.clock, three.throughput, three.cycles, "", {})
    assert memory_gbps_of(port) is None  # so is one that no rate is said of


@pytest.mark.slow
def test_a_lossless_network_carries_every_frame_once_and_all_of_them_are_captured(three, data, tmp_path):
    golden = Golden(three.network)
    golden.load(tuple(initial_state(three.network, 1)))
    nodes = machine(three, Conditions(capture=tmp_path / "frames.pcap"))
    for found, right in zip(trained(nodes, data), trained(golden, data), strict=True):
        assert np.array_equal(found.view(np.uint32), right.view(np.uint32))
    counters = ends(three, nodes)
    assert len(counters) == 6
    # a row a frame, both ways in two jobs, and one way in the evaluation
    assert sum(end["sent"] for end in counters) == 6 * (2 * 2 + 1) * FRAMES // 2 * 6
    for name in ("retransmitted", "duplicates", "out_of_order", "bad_fcs", "naks", "foreign"):
        assert sum(end[name] for end in counters) == 0
    assert {end["failure"] for end in counters} == {None}
    assert "fanin_connection" in (tmp_path / "link.lua").read_text()
    frames = read_capture(tmp_path / "frames.pcap")
    kinds = [decode_connection(frame).kind for _, frame in frames]
    assert kinds.count(LinkKind.DATA) == 2 * sum(end["sent"] for end in counters)  # to the switch, and from it
    times = [time for time, _ in frames]
    assert times == sorted(times)
    check_trace(three, nodes)
    trace = read(nodes.trace.text())
    carried = sum((trace.names("network", f"to {name}") for name in NAMES), Counter())
    assert 2 * carried.total() == len(frames)
    assert trace.faults() == {}
    jobs = trace.slices["run", "jobs"]
    assert [name for name, *_ in jobs] == ["train 11 frames", "train 11 frames", "evaluate 11 frames"]
    assert trace.names("run", "batches, to their last results") == {"batch 1": 3, "batch 2": 2, "batch 3": 2}
    hardware = hardware_of(three, nodes)
    assert (hardware["dram_gbps"], hardware["link_gbps"]) == (50, 40)
    for device in hardware["devices"]:
        assert 0 < device["sent_gbps"] < 40
        assert 0 < device["received_gbps"] < 40
    assert sum(
        device["sent_gbps"] - device["received_gbps"] for device in hardware["devices"]
    ) == pytest.approx(0)


def test_faults_are_repaired_and_differ_from_job_to_job(three, data):
    lossless, bad = (trained(machine(three, c), data) for c in (LOSSLESS, Conditions(FAULTS, seed=3)))
    for found, right in zip(bad, lossless, strict=True):
        assert np.array_equal(found.view(np.uint32), right.view(np.uint32))
    nodes, sent = machine(three, Conditions(FAULTS, seed=3)), []
    for _ in range(2):
        trained(nodes, data, jobs=1)
        sent.append(sum(end["retransmitted"] for end in ends(three, nodes)))
    assert 0 < sent[0] < sent[1] != 2 * sent[0]
    check_trace(three, nodes)
    assert set(read(nodes.trace.text()).faults()) == {"dropped", "duplicated", "reordered", "corrupted"}


def test_the_timeline_has_what_layers_did_and_says_where_a_run_goes_on(three, data):
    nodes = machine(three, LOSSLESS)
    trained(nodes, data, jobs=1)
    trace, hardware = read(nodes.trace.text(goes_on_from="a state")), hardware_of(three, nodes)
    assert trace.notes == {"goes on from": "a state"}
    timeline, devices = (
        hardware["timeline"],
        dict(zip(three.network.stages, three.placement.devices, strict=True)),
    )
    places = {stage.name: device for stage, device in devices.items()}
    began = trace.slices["run", "jobs"][0][1]
    for row in timeline["layers"]:
        for part in ("forward", "backward", "update"):
            found = trace.slices.get((places[row["layer"]], f"{row['layer']} {part}"))
            if row[part] is None:
                assert found is None
                continue
            ((_, *times, _),) = found
            assert times == [began + (timeline["start"] + at) * CYCLE_NS for at in row[part]]
    ((_, drains, updated, _),) = trace.slices["run", "timed batches, from their last images in"]
    assert updated - drains == hardware["drain_and_update_cycles"] * CYCLE_NS


def test_frames_beyond_the_bound_of_all_jobs_together_are_counted(three, data, monkeypatch):
    monkeypatch.setattr(cnn_trace, "MOST_FRAMES", 300)
    nodes = machine(three, LOSSLESS)
    trained(nodes, data, jobs=1)
    trace = read(nodes.trace.text())
    assert sum(len(each) for (process, _), each in trace.slices.items() if process == "network") == 300
    assert trace.notes["frames left out"] > 300


def check_trace(three, nodes):
    """Each end of each connection has sent, and sent again, in the timeline what it has counted."""
    trace, names = read(nodes.trace.text()), [stage.name for stage in three.network.stages]
    jobs = [(begin, end) for _, begin, end, _ in trace.slices["run", "jobs"]]
    for one in connections_of(three.placement, nodes):
        source = three.placement.devices[names.index(one["from"])]
        for end in one["ends"]:
            carries = "features" if end["device"] == source else "gradients"
            own = [
                (name, begin)
                for name, begin, _, facts in trace.slices["network", f"from {end['device']}"]
                if facts["connection"] == one["number"] and name.startswith("DATA")
            ]
            sent = [at for name, at in own if name == f"DATA {carries}"]
            again = [at for name, at in own if name == f"DATA {carries} again"]
            assert len(sent) == end["sent"]
            # A device's counters are read as its job ends: what it sends again from then on is not in them.
            lasts = [
                (begin, max((at for at in sent if begin <= at < stop), default=begin)) for begin, stop in jobs
            ]
            within = sum(any(begin <= at < last for begin, last in lasts) for at in again)
            assert within <= end["retransmitted"] <= len(again) == len(own) - len(sent)
            credit = trace.counters["network", f"credit of {end['device']}, connection {one['number']}"]
            assert min(value for _, value in credit) >= 0


@pytest.mark.parametrize("devices", [("conv",), ("conv", "bias")], ids="-".join)
def test_a_cut_ends_the_run_at_its_batch_and_names_device_and_connection(three, data, devices):
    nodes = machine(three, Conditions(cut=Cut("", devices, FRAMES + BATCH)))  # of the second job's second batch
    trained(nodes, data, jobs=1)
    before = [end["sent"] for end in ends(three, nodes)]
    with pytest.raises(CheckFailed) as failure:
        trained(nodes, data, jobs=1)
    pattern = (
        r"(\w+) failed by cycle \d+: LINK: \w+ to \w+, connection \d to (\w+): the peer does not answer; .*"
    )
    found = re.fullmatch(pattern, str(failure.value))
    assert found
    assert set(devices) <= set(found.groups())
    counters = ends(three, nodes)
    assert "TIMEOUT" in {end["failure"] for end in counters}
    trace = read(nodes.trace.text())
    assert len(trace.slices["run", "jobs"]) == 2  # that have ended
    # What goes between two is lost in the switch: no link drops it.
    assert (trace.faults()["dropped"] > 0) == (len(devices) == 1)
    assert "DATA features again" in trace.names("network", "from host") + trace.names("network", "from conv")
    assert all(after["sent"] > one for after, one in zip(counters, before, strict=True))
    assert hardware_of(three, nodes)["frames"] == FRAMES  # of the job that had ended


@pytest.mark.slow
def test_published_links_over_udp_train_until_a_frame_is_lost(three, data):
    wires = Wires(PUBLISHED, "udp")
    golden = Golden(three.network)
    golden.load(tuple(initial_state(three.network, 1)))
    found = trained(machine(three, LOSSLESS, wires), data)
    assert all(map(np.array_equal, found, trained(golden, data)))
    lossy = machine(three, Conditions({"drop": 0.05}, seed=1), wires)
    with pytest.raises(
        CheckFailed, match=r"failed by cycle \d+: LINK: .*, connection \d to \w+: a frame is lost; .*$"
    ):
        trained(lossy, data)
    failures = [end["failure"] for end in ends(three, lossy)]
    assert "LOSS" in failures
    assert sum(end["retransmitted"] for end in ends(three, lossy)) == 0
