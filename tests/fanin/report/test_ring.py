"""The page of a training over the ring: its charts are to scale, and it needs nothing but itself."""

import re
from html import escape

import pytest

from fanin.report.ring.charts import NODES, PARTS, split_chart, trace_chart
from fanin.report.ring.page import exact_line, ring_page, title
from fanin.sim.ring.schedule import Span, Times
from fanin.sim.spans import FirstSpans
from tests.fanin.report.plans import elements, numbers, titles

OPTIONS = {
    "data": "digits",
    "layers": "64,16,10",
    "nodes": 2,
    "batch": 32,
    "epochs": 3,
    "rate": 0.1,
    "momentum": 0.9,
    "decay": 0.0,
    "seed": 0,
    "lanes": 8,
    "codec": "bfp",
    "system": "smart-nic",
    "exchange": "ring",
    "groups": None,
    "above": None,
    "all_reduce": "nic",
    "on": "rtl",
    "overlap": "backward",
    "outstanding": 1,
    "flops": 2.08e12,
    "memory_bandwidth": 105e9,
    "pcie": 51e9,
    "gbps": 40.0,
    "drop": 0.25,
    "duplicate": 0.0,
    "reorder": 0.0,
    "corrupt": 0.0,
    "stop": "",
    "block": 16,
    "mantissa": 7,
}
ITERATION = {
    "seconds": 10e-6,
    "forward": 1e-6,
    "backward": 2e-6,
    "exposed": 5e-6,
    "update": 1.5e-6,
    "posting": 0.5e-6,
}
NAMES = ("sent", "retransmitted", "received", "acks", "naks", "bad_fcs", "duplicates", "out_of_order")
COUNTERS = [dict.fromkeys((*NAMES, "cycles", "added"), 1000 + node) for node in range(2)]
#: One step of a host with two layers: the second all-reduce is posted while the first one runs.
SPANS = [
    Span(0, "F", 0, 0, 1e-6),
    Span(0, "B", 1, 1e-6, 2e-6),
    Span(0, "AR", 1, 2e-6, 5e-6),
    Span(0, "B", 0, 2e-6, 4e-6),
    Span(0, "AR", 0, 4e-6, 9e-6),
    Span(0, "U", 1, 5e-6, 6e-6),
    Span(0, "U", 0, 9e-6, 10e-6),
]


def _times(nodes=2):
    return [Times(steps=[10e-6], timeline=FirstSpans(list(SPANS))) for _ in range(nodes)]


def _epoch(number, **changes):
    measures = {"loss": 1 / number, "accuracy": 0.8 + number / 100, "train_accuracy": 0.9}
    beside = {kind: measures | {"loss": 1.5 / number} for kind in ("binary32", "binary64")}
    return {"epoch": number, "simulated_seconds": 1e-3 * number, **measures, **beside} | changes


def _metrics(epochs=(1, 2, 3), options=(), **changes):
    found = {
        "error": None,
        "accuracy": 0.83,
        "bit_exact": True,
        "all_reduces": 60,
        "steps": 30,
        "simulated_seconds": 3e-3,
        "iteration": ITERATION,
        "distance": 1.5e-7,
        "frames": 2001,
        "retransmitted": 7,
        "counters": COUNTERS,
        "traffic": [],
        "epochs": [_epoch(number) for number in epochs],
        "resumed": None,
        "first_epoch": 1,
        "configuration": OPTIONS | dict(options),
    }
    return found | changes


def test_bars_are_as_long_as_the_spans_and_an_all_reduce_waits_for_the_one_before():
    chart = trace_chart(_times(), "NIC")
    left, right = numbers(elements(chart, "line", "axis")[0], "x1", "x2")
    for kind, expected in (
        ("F", [(0, 1)]),
        ("B", [(1, 2), (2, 4)]),
        ("U", [(5, 6), (9, 10)]),
        ("AR", [(2, 5), (5, 9)]),
    ):
        bars = elements(chart, "rect", f"ring-{kind}")
        assert len(bars) == 2 * len(expected)
        for bar, (begin, end) in zip(bars, expected * 2, strict=True):
            x, width = numbers(bar, "x", "width")
            assert (x - left) / (right - left) == pytest.approx(begin / 10, abs=1e-3)
            assert width / (right - left) == pytest.approx((end - begin) / 10, abs=1e-3)
    assert "node 1, step 0: all-reduce of layer 0: 5.000 µs to 9.000 µs" in titles(
        elements(chart, "rect", "bar")
    )


def test_worker_and_nic_have_lanes_of_their_own():
    chart = trace_chart(_times(NODES + 2), "NIC")
    rows = {}
    for bar in elements(chart, "rect", "bar"):
        label = titles([bar])[0]
        rows.setdefault((int(label[5]), "all-reduce" in label), set()).add(numbers(bar, "y")[0])
    assert sorted(rows) == [(node, nic) for node in range(NODES) for nic in (False, True)]
    assert all(len(ys) == 1 for ys in rows.values())
    assert [y for _, (y,) in sorted(rows.items())] == sorted(y for (y,) in rows.values())
    names = [text.text for text in elements(chart, "text", "tick") if text.get("text-anchor") == "end"]
    assert names == [name for node in range(NODES) for name in (f"worker {node}", f"NIC {node}")]


def test_an_iterations_parts_lie_one_behind_the_other():
    chart = split_chart(ITERATION)
    left, right = numbers(elements(chart, "line", "axis")[0], "x1", "x2")
    begin = 0.0
    for part in PARTS:
        if part not in ITERATION:
            assert elements(chart, "rect", f"ring-part-{part}") == []
            continue
        (bar,) = elements(chart, "rect", f"ring-part-{part}")
        x, width = numbers(bar, "x", "width")
        assert (x - left) / (right - left) == pytest.approx(begin / 10e-6, abs=1e-3)
        assert width / (right - left) == pytest.approx(ITERATION[part] / 10e-6, abs=1e-3)
        begin += ITERATION[part]
    assert "all-reduce exposed: 5.000 µs, 50.0 %" in titles(elements(chart, "rect", "bar"))
    nothing = split_chart(ITERATION | {"posting": 0.0})
    assert elements(nothing, "rect", "ring-part-posting") == []


def test_the_page_shows_everything_and_refers_to_nothing():
    page = ring_page(_metrics(), _times())
    assert page.count("<svg") == 4  # trace, iteration, accuracy, loss
    assert re.findall(r'(?:src|href)="|url\(|@import|<script', page) == []
    for heading in ("What hosts and NICs do", "An iteration", "Accuracy and loss", "What the nodes counted"):
        assert f"<h2>{heading}</h2>" in page
    told = "yes: 60 all-reduces on each of 2 nodes; all 2 replicas are equal after each of 30 steps"
    assert "<dt>frames sent again</dt><dd>7</dd>" in page
    for text in (
        told,
        "25 %",
        "2.08 TFLOP/s",
        "105 GB/s",
        "51 Gb/s",
        "50.0 %",
        "1.5e-07",
        "mantissa",
        "1,001",
    ):
        assert escape(text) in page
    assert "The first 3 iterations of all 2 nodes; below each worker its NIC." in page
    assert len(re.findall(r'<th scope="row">[123]</th>', page)) == 3 + 1  # epochs, and node 1
    assert "goes on from" not in page
    assert "between groups" not in page


def test_what_a_run_has_not_is_not_shown():
    lone = ring_page(_metrics(epochs=(1,)), _times())
    assert lone.count("<svg") == 2  # a point is no curve
    model = ring_page(_metrics(options={"on": "model"}, counters=[], frames=None), _times())
    assert "What the nodes counted" not in model
    assert "golden sums" in model
    hosts = ring_page(_metrics(options={"on": "model", "all_reduce": "host"}, counters=[]), _times())
    assert "network 0" in hosts
    endless = [_epoch(1), _epoch(2, loss=None)]
    assert ring_page(_metrics() | {"epochs": endless}, _times()).count("<svg") == 3


def test_inceptionns_iteration_legs_and_transport_are_shown():
    leg = {"leg": "ring", "packets": 9000, "raw": 12, "acknowledgements": 4500, "payload": 1, "wire": 2}
    inceptionn = {
        "options": {"system": "inceptionn", "codec": "none"},
        "iteration": {"seconds": 4e-3, "compute": 1e-3, "sum": 1e-3, "update": 0.5e-3, "communicate": 1.5e-3},
        "counters": [{"segments": 777, "acknowledgements": 1, "repeated": 2, "timeouts": 3, "duplicates": 4}],
        "traffic": [leg | {"header_share": 0.5}],
    }
    page = ring_page(_metrics(**inceptionn), [])
    assert page.count("<svg") == 3  # no trace
    assert "64-16-10 on digits: 2 nodes, hosts in a ring, no codec, batches of 32" in page
    for text in ("37.5 %", "777", "9,000", "50.0 %", "What travelled", "communication"):
        assert text in page
    assert "yes: the weights of all nodes, after each of 30 steps" in page


def test_a_title_says_how_inceptionns_groups_add_up():
    def who(exchange, above):
        options = {"system": "inceptionn", "exchange": exchange, "above": above, "groups": above and "2x2"}
        return title(_metrics(options=options)).split(", ")[1]

    assert who("aggregator", None) == "workers and aggregator"
    assert who("ring", "ring") == "hosts in a ring of rings"
    assert who("ring", "aggregator") == "rings of hosts and an aggregator"
    assert who("aggregator", "aggregator") == "workers and aggregators"


def test_the_rounds_of_groups_are_shown():
    rounds = [{"round": n, "level": "groups, up", "seconds": 2.5e-3, "data_bytes": 1234 + n} for n in range(2)]
    page = ring_page(_metrics(options={"groups": "2x2", "above": "ring"}, traffic=rounds), _times())
    assert "2 nodes in groups of 2x2, 8 lanes, BFP" in page
    assert all(text in page for text in ("between groups", "groups, up", "2.500 ms", "1,235"))


def test_what_went_wrong_and_what_was_resumed_is_told():
    wrong = _metrics(error="the weights are not the golden model's", bit_exact=False)
    assert exact_line(wrong) == "NO: the weights are not the golden model's"
    assert "the weights are not the golden model&#39;s" in ring_page(wrong, _times())
    resumed = ring_page(_metrics(resumed="runs/ring", first_epoch=4), _times())
    assert "This run goes on from runs/ring, with epoch 4." in resumed
    late = ring_page(_metrics(options={"stop": "1:9"}), _times())
    assert "--stop 1:9 changed nothing: the run had ended by then." in late
    assert "--stop" not in resumed
