"""Traces for Perfetto: tracks, lanes, and what the trace of a training says."""

import json
from types import SimpleNamespace

import numpy as np

from fanin.glm.facts import PRESETS
from fanin.glm.page.trace import train_trace
from fanin.job import SWITCH, worker_endpoint
from fanin.link import LinkConfig
from fanin.report import perfetto
from fanin.report.perfetto import Trace
from fanin.sim.glm.course import Timeline
from fanin.sim.network import NetworkConfig
from fanin.wire.aggregation import AggPacket, Encap, Kind, encode
from tests.fanin.report.traces import read


def test_what_overlaps_lies_on_lanes_of_its_own():
    trace = Trace()
    for number, times in enumerate([(0, 10), (5, 15), (10, 20), (12, 30), (15, 16)]):
        trace.slice("node 0", "C", str(number), *times)
    found = read(trace.text()).slices
    lanes = {track: [name for name, *_ in each] for track, each in found.items()}
    assert lanes == {
        ("node 0", "C"): ["0", "2"],
        ("node 0", "C (2)"): ["1", "4"],
        ("node 0", "C (3)"): ["3"],
    }


def test_times_are_whole_nanoseconds_in_which_neighbours_do_not_overlap():
    trace = Trace()
    for number in range(5):
        trace.slice("network", "to node 0", "ACK", number * 6.72, (number + 1) * 6.72)
    ((_, each),) = read(trace.text()).slices.items()
    assert [(begin, end) for _, begin, end, _ in each] == [(0, 7), (7, 13), (13, 20), (20, 27), (27, 34)]


def test_what_happens_and_what_counts():
    trace = Trace()
    trace.instant("network", "to node 0", "dropped", 3.4, frame="ACK")
    trace.counter("network", "credit", 2.6, 7)
    trace.note("goes on from", "a state")
    found = read(trace.text())
    assert dict(found.instants) == {("network", "to node 0"): [("dropped", 3, {"frame": "ACK"})]}
    assert dict(found.counters) == {("network", "credit"): [(3, 7)]}
    assert found.notes == {"goes on from": "a state"}


def test_tracks_lie_as_they_were_declared_and_processes_too():
    trace = Trace()
    for process in ("left", "empty", "right"):
        trace.declare(process, ("conv forward", "bias forward"))
    for process in ("right", "left"):
        for track in ("other", "bias forward", "conv forward", "bias forward"):
            trace.slice(process, track, "x", 0, 1)
    events = json.loads(trace.text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name" and e["pid"] == 1}
    places = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"}
    assert [names[tid] for tid in sorted(names, key=places.get)] == [
        *("conv forward", "bias forward", "bias forward (2)", "other"),
    ]
    assert [e["args"]["name"] for e in events if e["name"] == "process_name"] == ["left", "right"]


def test_of_many_events_the_first_are_shown_and_the_others_counted(monkeypatch):
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 3)
    trace = Trace()
    assert list(trace.first("jobs", range(3))) == [0, 1, 2]
    assert list(trace.first("frames", range(5))) == [0, 1, 2]
    assert list(trace.first("spans", range(5), left_out=7)) == [0, 1, 2]
    assert read(trace.text()).notes == {"frames left out": 2, "spans left out": 9}


def test_threads_are_in_the_order_of_their_numbers():
    trace = Trace()
    for slot in (10, 9, 0):
        trace.slice("AllReduce", f"slot {slot}", "round 1", 0, 1)
    value = json.loads(trace.text())
    places = {
        event["tid"]: event["args"]["sort_index"]
        for event in value["traceEvents"]
        if event["name"] == "thread_sort_index"
    }
    names = {e["tid"]: e["args"]["name"] for e in value["traceEvents"] if e["name"] == "thread_name"}
    assert [names[tid] for tid in sorted(places, key=places.get)] == ["slot 0", "slot 9", "slot 10"]


NODE = PRESETS["tiny"]


def _result(*, data_parallel=False, **link):
    """Of a run with two nodes at 100 MHz: a micro-batch in node 1, from cycle 100 on."""
    names = ("forward_first", "forward_last", "agg", "fa", "backward_first", "backward_last")
    timeline = Timeline(
        np.array([101, 104, 110, 150, 152, 155], dtype=np.uint64),
        np.ones(6, dtype=np.uint32),
        np.arange(6, dtype=np.uint8),
        names,
    )
    network = NetworkConfig(link=LinkConfig(gbps=10, **link))
    return SimpleNamespace(
        training=SimpleNamespace(workers=2, clock_mhz=100, node=NODE, network=network),
        shape=SimpleNamespace(micro_batches=1, data_parallel=data_parallel),
        run=SimpleNamespace(timeline=timeline),
    )


def _frame(kind, worker, *, up, slot=3, round_number=1):
    ends = (worker_endpoint(worker), SWITCH)
    packet = AggPacket(kind, 1, slot, round_number, 1 << worker if up else 3, (0,) * NODE.values)
    source, destination = ends if up else ends[::-1]
    return encode(packet, encap=Encap(NODE.encap), source=source, destination=destination)


FRAMES = [
    (1000, _frame(Kind.AGG, 0, up=True)),
    (1200, _frame(Kind.AGG, 1, up=True)),
    (1600, _frame(Kind.RESULT, 0, up=False)),
    (1600, _frame(Kind.RESULT, 1, up=False)),
    (3000, _frame(Kind.AGG, 1, up=True)),
    (3400, _frame(Kind.RESULT, 1, up=False)),
    (4000, _frame(Kind.ACK, 0, up=True)),
    (4400, _frame(Kind.CONFIRM, 0, up=False)),
]


def test_micro_batches_packets_and_sums_of_a_training():
    trace = read(train_trace(_result(), [FRAMES]))
    found = trace.slices
    wire = (len(FRAMES[0][1]) + 8 + 4) * 8 / 10
    times = {track: [(name, begin, end) for name, begin, end, _ in each] for track, each in found.items()}
    assert times["node 1", "forward"] == [("1.1", 1000, 1040)]
    assert times["node 1", "communication"] == [("1.1", 1100, 1510)]
    assert times["node 1", "backward"] == [("1.1", 1510, 1550)]
    assert times["AllReduce", "slot 3"] == [("round 1", 1000, 1600)]
    names = {track: [name for name, *_ in each] for track, each in found.items() if track[0] == "switch"}
    assert names == {
        ("switch", "from node 0"): ["AGG", "ACK"],
        ("switch", "from node 1"): ["AGG", "AGG again"],
        ("switch", "to node 0"): ["RESULT", "CONFIRM"],
        ("switch", "to node 1"): ["RESULT", "RESULT"],
    }
    _, begin, end, facts = found["switch", "from node 1"][0]
    assert (begin, end) == (round(1200 - wire), 1200)
    assert facts == {"slot": 3, "round": 1, "bitmap": 2}
    _, begin, end, _ = found["switch", "to node 1"][0]
    assert (begin, end) == (1600, round(1600 + wire))
    assert trace.notes == {}


def test_bars_of_packets_follow_the_least_frame_of_hosts():
    found = read(train_trace(_result(frame_bytes=256), [FRAMES])).slices
    wire = (256 + 8 + 4) * 8 / 10
    _, begin, end, _ = found["switch", "from node 1"][0]
    assert (begin, end) == (round(1200 - wire), 1200)
    _, begin, end, _ = found["switch", "to node 1"][0]
    assert (begin, end) == (1600, round(1600 + wire))


def test_frames_that_are_no_packets_are_left_out():
    unknown = bytearray(FRAMES[0][1])
    unknown[14] |= 0x0F  # the kind, behind Ethernet's header
    others = [(900, b"\2" * 20), (950, bytes(unknown)), *FRAMES]
    assert train_trace(_result(), [others]) == train_trace(_result(), [FRAMES])


def test_frames_beyond_the_most_are_counted(monkeypatch):
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 3)
    found = read(train_trace(_result(data_parallel=True), [FRAMES]))
    assert found.notes == {"frames left out": 5}
    assert sum(len(each) for track, each in found.slices.items() if track[0] == "switch") == 3
    assert ("node 1", "communication") not in found.slices
