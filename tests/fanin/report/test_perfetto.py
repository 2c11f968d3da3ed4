"""Traces for Perfetto: tracks, lanes, and what the trace of a training says."""

import itertools
import json
from types import SimpleNamespace

import numpy as np
import pytest

from fanin.glm import PRESETS
from fanin.job import SWITCH, worker_endpoint
from fanin.report.glm import trace as glm_trace
from fanin.report.glm.trace import train_trace
from fanin.report.perfetto import Trace
from fanin.sim.glm.cosim import Timeline
from fanin.sim.network import LinkConfig
from fanin.wire.aggregation import AggPacket, Encap, Kind, encode


def slices(text):
    """The slices of a trace by process and thread: (name, begin, end, facts), times in nanoseconds."""
    value = json.loads(text)
    names = {}
    for event in value["traceEvents"]:
        if event["ph"] == "M" and event["name"].endswith("_name"):
            names[event["pid"], event.get("tid")] = event["args"]["name"]
    found = {}
    for event in value["traceEvents"]:
        if event["ph"] == "X":
            begin = 1000 * event["ts"]
            track = names[event["pid"], None], names[event["pid"], event["tid"]]
            found.setdefault(track, []).append(
                (event["name"], begin, begin + 1000 * event["dur"], event.get("args", {}))
            )
    return found, value


def test_what_overlaps_lies_on_lanes_of_its_own():
    trace = Trace()
    for number, times in enumerate([(0, 10), (5, 15), (10, 20), (12, 30), (15, 16)]):
        trace.slice("node 0", "C", str(number), *times)
    found, _ = slices(trace.text())
    lanes = {track: [name for name, *_ in each] for track, each in found.items()}
    assert lanes == {
        ("node 0", "C"): ["0", "2"],
        ("node 0", "C (2)"): ["1", "4"],
        ("node 0", "C (3)"): ["3"],
    }
    for each in found.values():
        assert all(end <= begin for (_, _, end, _), (_, begin, _, _) in itertools.pairwise(each))


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


def _result(*, data_parallel=False):
    """Of a run with two nodes at 100 MHz: a micro-batch in node 1, from cycle 100 on."""
    names = ("forward_first", "forward_last", "agg", "fa", "backward_first", "backward_last")
    timeline = Timeline(
        np.array([101, 104, 110, 150, 152, 155], dtype=np.uint64),
        np.ones(6, dtype=np.uint32),
        np.arange(6, dtype=np.uint8),
        names,
    )
    network = SimpleNamespace(link=LinkConfig(gbps=10))
    return SimpleNamespace(
        options=SimpleNamespace(workers=2, clock_mhz=100, node=NODE, network=network),
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
    found, value = slices(train_trace(_result(), FRAMES))
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
    assert (begin, end) == pytest.approx((1200 - wire, 1200))
    assert facts == {"slot": 3, "round": 1, "bitmap": 2}
    _, begin, end, _ = found["switch", "to node 1"][0]
    assert (begin, end) == pytest.approx((1600, 1600 + wire))
    assert value["otherData"] == {}


def test_frames_that_are_no_packets_are_left_out():
    unknown = bytearray(FRAMES[0][1])
    unknown[14] |= 0x0F  # the kind, behind Ethernet's header
    others = [(900, b"\2" * 20), (950, bytes(unknown)), *FRAMES]
    assert train_trace(_result(), others) == train_trace(_result(), FRAMES)


def test_frames_beyond_the_most_are_counted(monkeypatch):
    monkeypatch.setattr(glm_trace, "MOST_FRAMES", 3)
    found, value = slices(train_trace(_result(data_parallel=True), FRAMES))
    assert value["otherData"] == {"frames left out": 5}
    assert sum(len(each) for track, each in found.items() if track[0] == "switch") == 3
    assert ("node 1", "communication") not in found
