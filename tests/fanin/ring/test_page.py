"""The page of a training over the ring: its charts are to scale, and it needs nothing but itself."""

import re
from html import escape

import pytest

from fanin.ring.page.charts import NODES, PARTS, split_chart, trace_chart
from fanin.ring.page.page import exact_line, ring_page, title
from fanin.ring.run.options import RingOptions
from fanin.runs.option_tables import option_tables
from fanin.sim.ring.schedule import Span, Times
from fanin.sim.spans import FirstSpans
from tests.fanin.report.drawn import bars, figures, names, outside, own, points, rows

OPTIONS = {
    "data": "digits",
    "layers": "64,16,10",
    "nodes": 2,
    "batch": 32,
    "epochs": 3,
    "lr": 0.1,
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


def host_times(nodes=2):
    return [Times(steps=[10e-6], timeline=FirstSpans(list(SPANS))) for _ in range(nodes)]


def _epoch(number, **changes):
    measures = {"loss": 1 / number, "accuracy": 0.8 + number / 100, "train_accuracy": 0.9}
    beside = {kind: measures | {"loss": 1.5 / number} for kind in ("binary32", "binary64")}
    return {"epoch": number, "simulated_seconds": 1e-3 * number, **measures, **beside} | changes


def run_file(epochs=(1, 2, 3), options=(), **changes):
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


def whole_page(metrics, times):
    """The page with its options."""
    return ring_page(metrics, times, option_tables(RingOptions, metrics["configuration"]))


def page_of(metrics, times):
    """The page without the charting library's source, in which any word may stand."""
    return own(whole_page(metrics, times))


def test_bars_are_as_long_as_the_spans_and_an_all_reduce_waits_for_the_one_before():
    figure = trace_chart(host_times(), "NIC").figure()
    found = {}
    for bar in bars(figure):
        found.setdefault(bar.series, []).append((bar.begin * 1e6, (bar.begin + bar.size) * 1e6))
    expected = {
        "forward (F)": [(0, 1)],
        "backward (B)": [(1, 2), (2, 4)],
        "update (U)": [(5, 6), (9, 10)],
        "all-reduce (AR)": [(2, 5), (5, 9)],
    }
    for name, spans in expected.items():
        assert found[name] == [pytest.approx(span) for span in spans * 2]  # of two nodes
    assert "node 1, step 0: all-reduce of layer 0: 5.000 µs to 9.000 µs" in [bar.hint for bar in bars(figure)]


def test_worker_and_nic_have_rows_of_their_own():
    figure = trace_chart(host_times(NODES + 2), "NIC").figure()
    assert rows(figure) == [name for node in range(NODES) for name in (f"worker {node}", f"NIC {node}")]
    for bar in bars(figure):
        who = "NIC" if "all-reduce" in bar.hint else "worker"
        assert rows(figure)[bar.place] == f"{who} {bar.hint[5]}"


def test_an_iterations_parts_lie_one_behind_the_other():
    figure = split_chart(ITERATION).figure()
    assert [(bar.series, bar.size) for bar in bars(figure)] == [
        (name, ITERATION[part]) for part, name in PARTS.items() if part in ITERATION
    ]
    assert (figure["layout"]["barmode"], rows(figure)) == ("stack", ["iteration"])
    assert "all-reduce exposed: 5.000 µs, 50.0 %" in [bar.hint for bar in bars(figure)]
    assert "descriptors and status" not in names(split_chart(ITERATION | {"posting": 0.0}).figure())


def test_the_page_shows_everything_and_refers_to_nothing():
    page = page_of(run_file(), host_times())
    drawn = figures(page)
    assert len(drawn) == 4  # trace, iteration, accuracy, loss
    for name, loss in (("the run", 1), ("binary32", 1.5), ("binary64", 1.5)):
        assert points(drawn["loss over epoch"], name) == [(n, loss / n) for n in (1, 2, 3)]
    assert outside(page) == []
    for heading in ("What hosts and NICs do", "An iteration", "Accuracy and loss", "What the nodes counted"):
        assert f"<h2>{heading}</h2>" in page
    told = "yes: 60 all-reduces on each of 2 nodes; all 2 replicas are equal after each of 30 steps"
    assert "<dt>frames sent again</dt><dd>7</dd>" in page
    for text in (
        told,
        "<td>0.25</td>",
        "2.08 TFLOP/s",
        "105 GB/s",
        "51 Gbit/s",
        "50.0 %",
        "1.5e-07",
        "mantissa",
        "1,001",
    ):
        assert text in page or escape(text) in page
    assert "The first 3 iterations of all 2 nodes; below each worker its NIC." in page
    assert len(re.findall(r'<th scope="row">[123]</th>', page)) == 3 + 1  # epochs, and node 1
    assert "run resumes" not in page
    assert ">above<" not in page


def test_what_a_run_has_not_is_not_shown():
    lone = page_of(run_file(epochs=(1,)), host_times())
    assert len(figures(lone)) == 2  # a point is no curve
    model = page_of(run_file(options={"on": "model"}, counters=[], frames=None), host_times())
    assert "What the nodes counted" not in model
    assert "golden sums" in model
    hosts = page_of(run_file(options={"on": "model", "all_reduce": "host"}, counters=[]), host_times())
    assert "network 0" in hosts
    endless = [_epoch(1), _epoch(2, loss=None)]
    assert len(figures(page_of(run_file() | {"epochs": endless}, host_times()))) == 3


def test_inceptionns_iteration_legs_and_transport_are_shown():
    leg = {"leg": "ring", "packets": 9000, "raw": 12, "acknowledgements": 4500, "payload": 1, "wire": 2}
    inceptionn = {
        "options": {"system": "inceptionn", "codec": "none"},
        "iteration": {"seconds": 4e-3, "compute": 1e-3, "sum": 1e-3, "update": 0.5e-3, "communicate": 1.5e-3},
        "counters": [{"segments": 777, "acknowledgements": 1, "repeated": 2, "timeouts": 3, "duplicates": 4}],
        "traffic": [leg | {"header_share": 0.5}],
    }
    page = page_of(run_file(**inceptionn), [])
    assert len(figures(page)) == 3  # no trace
    assert "64-16-10 on digits: 2 nodes, hosts in a ring, no codec, batches of 32" in page
    for text in ("37.5 %", "777", "9,000", "50.0 %", "What travelled", "communication"):
        assert text in page
    assert "yes: the weights of all nodes, after each of 30 steps" in page


def test_a_title_says_how_inceptionns_groups_add_up():
    def who(exchange, above):
        options = {"system": "inceptionn", "exchange": exchange, "above": above, "groups": above and "2x2"}
        return title(run_file(options=options)).split(", ")[1]

    assert who("aggregator", None) == "workers and aggregator"
    assert who("ring", "ring") == "hosts in a ring of rings"
    assert who("ring", "aggregator") == "rings of hosts and an aggregator"
    assert who("aggregator", "aggregator") == "workers and aggregators"


def test_the_rounds_of_groups_are_shown():
    rounds = [{"round": n, "level": "groups, up", "seconds": 2.5e-3, "data_bytes": 1234 + n} for n in range(2)]
    page = page_of(run_file(options={"groups": "2x2", "above": "ring"}, traffic=rounds), host_times())
    assert "2 nodes in groups of 2x2, 8 lanes, BFP" in page
    assert all(text in page for text in (">above<", "groups, up", "2.500 ms", "1,235"))


def test_what_went_wrong_and_what_was_resumed_is_told():
    wrong = run_file(error="the weights are not the golden model's", bit_exact=False)
    assert exact_line(wrong) == "NO: the weights are not the golden model's"
    assert "the weights are not the golden model&#39;s" in page_of(wrong, host_times())
    resumed = page_of(run_file(resumed="runs/ring", first_epoch=4), host_times())
    assert "This run resumes runs/ring, with epoch 4." in resumed
    late = page_of(run_file(options={"stop": "1:9"}), host_times())
    assert "--stop 1:9 changed nothing: the run had ended by then." in late
    assert "--stop" not in resumed
