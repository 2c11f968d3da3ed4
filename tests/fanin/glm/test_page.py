"""The page of ``fanin train``: charts have the run's values, and it needs nothing but itself."""

import numpy as np
import pytest

from fanin.fixed import NO_DECAY, Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.page import charts
from fanin.glm.page.page import spans, train_page
from fanin.sim.cosim.run import RunResult
from fanin.sim.glm.course import Timeline, TrainRun
from fanin.sim.glm.result import EpochResult, GlmTraining, TrainResult
from fanin.sim.network import NetworkConfig
from tests.fanin.report.drawn import bars, figures, names, outside, own, points, rows

NODE = PRESETS["tiny"]
EVENTS = ("forward_first", "forward_last", "agg", "fa", "backward_first", "backward_last")
LOSSES = {"run": [0.5, 0.25], "golden": [0.5, 0.25], "binary64": [0.5, 0.26]}


def test_losses_are_drawn_as_they_are():
    figure = charts.loss_chart(LOSSES).figure()
    assert names(figure) == ["RTL", "golden model", "float64"]
    assert points(figure, "RTL") == [(1, 0.5), (2, 0.25)]
    assert points(figure, "float64") == [(1, 0.5), (2, 0.26)]


def test_a_loss_that_is_no_number_leaves_a_gap():
    figure = charts.loss_chart({"run": [0.5, float("inf")], "binary64": [0.5, 0.26]}).figure()
    assert points(figure, "RTL") == [(1, 0.5), (2, None)]


def test_the_difference_is_rtl_minus_float64():
    figure = charts.difference_chart(LOSSES).figure()
    assert points(figure, "RTL minus float64") == [(1, 0.0), (2, 0.25 - 0.26)]


def test_spans_that_overlap_lie_in_rows_of_their_own():
    spans_at = [(0, 10), (5, 15), (10, 20), (12, 30)]
    found = charts.timeline_chart(
        [charts.Span(0, "C", 0, index, *times) for index, times in enumerate(spans_at)], 4.0
    ).figure()
    drawn = bars(found)
    assert {(bar.begin, bar.begin + bar.size): bar.place for bar in drawn} == dict(
        zip(spans_at, (0, 1, 0, 2), strict=True)
    )
    assert rows(found) == ["node 0: C", "", ""]
    assert "communication of micro-batch 4 of mini-batch 1: cycles 12 to 30 (18)" in [bar.hint for bar in drawn]


def test_a_histogram_counts_every_value():
    values = [100.0] * 90 + [500.0] * 9 + [900.0]
    figure = charts.histogram_chart(values, {"p50": 100.0}, "ns").figure()
    assert sorted(bar.size for bar in bars(figure)) == [1, 9, 90]
    assert [(shape["x0"], shape["x1"]) for shape in figure["layout"]["shapes"]] == [(100.0, 100.0)]
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < 100 < 900 < high


def test_stalls_fill_the_bar():
    stalls = [{"word taken": 30, "no word": 70}, {"no word": 5, "word taken": 15}]
    causes = {"word taken": "forward", "no word": "waiting"}
    figure = charts.stall_chart(stalls, causes).figure()
    assert [(bar.series, bar.place, bar.size) for bar in bars(figure)] == [
        ("word taken", 0, 0.3),
        ("word taken", 1, 0.75),
        ("no word", 0, 0.7),
        ("no word", 1, 0.25),
    ]
    assert figure["layout"]["barmode"] == "stack"


def test_a_timeline_pairs_events_by_their_order():
    # Micro-batch k: forward takes words 0 to 3 of it, 10 cycles apart; word events come a cycle late.
    offsets = (1, 4, 7, 20, 31, 34)
    rows = sorted((1000 + 10 * k + offset, i) for k in range(4) for i, offset in enumerate(offsets))
    cycles, events = np.array(rows).T
    timeline = Timeline(cycles.astype(np.uint64), np.zeros(24, np.uint32), events.astype(np.uint8), EVENTS)
    found = {(s.stage, s.mini_batch, s.micro_batch): (s.start, s.end) for s in spans(timeline, 2)}
    assert found["F", 0, 0] == (0, 4)
    assert found["C", 1, 0] == (27, 41)
    assert found["B", 1, 1] == (60, 64)


COUNTERS = {
    "cycles": 1000,
    "words": 600,
    "stall_model_wait": 100,
    "stall_no_word": 50,
    "stall_fifo_full": 20,
    "stall_pa_full": 0,
    "retransmissions": 3,
    "round_trip": 90,
    "round_trip_deviation": 7,
}
LINK = {"sent": 20, "dropped": 1}


def run_of(**changes):
    """A run of two nodes; its timeline has a micro-batch of node 0, which is on the wire from cycle 4 to 90."""
    cycles = np.array([1001, 1004, 1004, 1089, 1091, 1094], dtype=np.uint64)
    found = {
        "timeline": Timeline(cycles, np.zeros(6, np.uint32), np.arange(6, dtype=np.uint8), EVENTS),
        "counters": [COUNTERS, COUNTERS | {"retransmissions": 4, "round_trip": 95}],
        "allreduce_ns": np.array([600.0, 604.0]),
        "raw": RunResult(
            links=[{"up": LINK, "down": LINK}] * 2, switch={"frames": 80}, jobs={1: {"results": 40}}
        ),
    }
    return TrainRun(**found | changes)


def result(*, loss=Loss.LOGISTIC, run=None, losses=(0.5, 0.25), **changes):
    """The result of a training of two epochs on two nodes."""
    training = GlmTraining(
        data="<data> & more",
        node=NODE,
        network=NetworkConfig(),
        loss=loss,
        workers=2,
        precision=4,
        batch=16,
        epochs=2,
        lr=1.0,
        bias=True,
        shuffle=True,
        test=0.25,
        seed=0,
        clock_mhz=250.0,
    )
    found = {
        "training": training,
        "against_the_rest": None,
        "shape": TrainShape(node=NODE, workers=2, samples=32, columns=12, batch=16),
        "decay": NO_DECAY,
        "epochs": [EpochResult(value, fit, 500) for value, fit in zip(losses, (0.5, 0.75), strict=True)],
        "golden_loss": list(losses),
        "float64_loss": [0.5, 0.26],
        "float64_fit": [0.5, 0.8],
        "chance_loss": 0.7,
        "test_fit": 0.7,
        "model": None,
        "bit_exact": True,
        "verilog_sha256": "0123456789abcdef",
        "run": run or run_of(),
    }
    return TrainResult(**found | changes)


def page(**changes):
    return train_page(result(**changes), {"Model": [("loss", "hinge")]})


def test_a_page_refers_to_nothing_outside():
    assert outside(page()) == []


def test_a_page_escapes_what_it_is_given():
    found = own(page())
    assert "&lt;data&gt; &amp; more: logistic loss, 2 workers" in found
    assert "<data>" not in found


def test_a_name_in_a_chart_does_not_end_its_script():
    chart = charts.stall_chart([{"</script>": 2}], {"</script>": "waiting"})
    assert names(figures(chart.__html__())["Cycles of forward by cause"]) == ["</script>"]


@pytest.mark.parametrize(
    ("exact", "losses", "badge"),
    [
        (True, (0.5, 0.25), '"verdict good">bit-exact with the golden model<'),
        (True, (0.25, 0.5), '"verdict near">bit-exact with the golden model, but the loss rises, from 0.25'),
        (False, (0.25, 0.5), '"verdict bad">differs from the golden model, but the loss rises, from 0.25'),
    ],
)
def test_the_badge_is_green_only_where_the_loss_falls(exact, losses, badge):
    assert badge in page(bit_exact=exact, losses=losses)


def test_charts_have_the_runs_values():
    found = figures(page())
    assert list(found) == [
        "loss over epoch",
        "loss, RTL minus float64 over epoch",
        "accuracy of training samples over epoch",
        "Timeline of micro-batches",
        "Histogram of AllReduce latency",
        "Cycles of forward by cause",
    ]
    assert points(found["loss over epoch"], "RTL") == [(1, 0.5), (2, 0.25)]
    assert points(found["accuracy of training samples over epoch"], "float64") == [(1, 0.5), (2, 0.8)]
    assert [(bar.begin, bar.size) for bar in bars(found["Timeline of micro-batches"])] == [
        (0, 4),
        (4, 86),
        (90, 4),
    ]
    assert "micro-batches of all nodes" in page()
    assert "<caption>Links" in page()


def test_a_run_on_boards_has_no_timeline_and_no_links():
    raw = RunResult(switch={"frames": 80}, jobs={1: {"results": 40}})
    found = page(run=run_of(timeline=None, raw=raw))
    assert "Timeline of micro-batches" not in figures(found)
    assert "Micro-batches in the pipeline" not in found
    assert "<caption>Links" not in found
