"""The page of ``fanin train``: charts have the run's values, and it needs nothing but itself."""

import numpy as np
import pytest

from fanin.glm.golden.metrics import ACCURACY
from fanin.glm.page import charts
from fanin.glm.page.page import Report, render
from fanin.glm.page.run import spans
from fanin.sim.glm.course import Timeline
from tests.fanin.report.drawn import bars, figures, names, outside, own, points, rows

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
    names = ("forward_first", "forward_last", "agg", "fa", "backward_first", "backward_last")
    # Micro-batch k: forward takes words 0 to 3 of it, 10 cycles apart; word events come a cycle late.
    offsets = (1, 4, 7, 20, 31, 34)
    rows = sorted((1000 + 10 * k + offset, i) for k in range(4) for i, offset in enumerate(offsets))
    cycles, events = np.array(rows).T
    timeline = Timeline(cycles.astype(np.uint64), np.zeros(24, np.uint32), events.astype(np.uint8), names)
    found = {(s.stage, s.mini_batch, s.micro_batch): (s.start, s.end) for s in spans(timeline, 2)}
    assert found["F", 0, 0] == (0, 4)
    assert found["C", 1, 0] == (27, 41)
    assert found["B", 1, 1] == (60, 64)


def report(**changes):
    found = {
        "title": "<data> & more",
        "bit_exact": True,
        "verdict": "fine",
        "warning": "",
        "headline": [("loss", "0.1")],
        "losses": LOSSES,
        "measure": ACCURACY,
        "fits": {"run": [0.5, 0.75], "binary64": [0.5, 0.8]},
        "timeline": [charts.Span(0, "F", 0, 0, 0, 4), charts.Span(0, "C", 0, 0, 4, 90)],
        "window": "all of it",
        "cycle_ns": 4.0,
        "allreduce_ns": [600.0, 604.0],
        "allreduce_marks": {"p50": 602.0},
        "stalls": [{"word taken": 1, "</script>": 2}],
        "causes": {"word taken": "forward", "</script>": "waiting"},
        "configuration": {"Model": [("loss", "hinge")]},
        "counters": {"Nodes": [["counter", "node 0"], ["cycles", "7"]]},
        "epochs": [["epoch", "loss"], ["1", "0.5"], ["2", "0.25"]],
    }
    return Report(**(found | changes))


def test_a_page_refers_to_nothing_outside():
    assert outside(render(report())) == []


def test_a_page_escapes_what_it_is_given():
    page = own(render(report()))
    assert "&lt;data&gt; &amp; more" in page
    assert "<data>" not in page
    assert names(figures(page)["Cycles of forward by cause"]) == ["word taken", "</script>"]


@pytest.mark.parametrize(
    ("exact", "warning", "badge"),
    [
        (True, "", '"verdict good">fine<'),
        (True, "the loss rises", '"verdict near">fine, but the loss rises<'),
        (False, "the loss rises", '"verdict bad">fine, but the loss rises<'),
    ],
)
def test_the_badge_is_green_only_where_the_loss_falls(exact, warning, badge):
    assert badge in render(report(bit_exact=exact, warning=warning))


def test_a_run_that_was_never_timed_has_no_empty_chart():
    page = render(report(timeline=[], allreduce_ns=[], stalls=[]))
    assert list(figures(page)) == [
        "loss over epoch",
        "loss, RTL minus float64 over epoch",
        "accuracy of training samples over epoch",
    ]
