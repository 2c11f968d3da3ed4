"""The report's drawings: axes, rows of the timeline, and a page that needs nothing but itself."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from fanin.report.glm import charts
from fanin.report.glm.page import Report, render
from fanin.report.glm.run import spans
from fanin.report.svg import Axis, number
from fanin.sim.glm.cosim import Timeline


def _elements(svg, name):
    return [e for e in ElementTree.fromstring(svg).iter() if e.tag == name]


def _titles(svg):
    return [e.text for e in _elements(svg, "title")]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (3, 47, [10, 20, 30, 40]), (-1, 1, [-1, -0.5, 0, 0.5, 1])],
)
def test_ticks_are_round_and_inside(low, high, expected):
    assert Axis(low, high, 0, 100).ticks(5) == pytest.approx(expected)


def test_a_logarithmic_axis_has_powers_of_ten_at_equal_distances():
    axis = Axis(1, 1000, 0, 300, log=True)
    assert axis.ticks() == [1, 10, 100, 1000]
    assert [axis(tick) for tick in axis.ticks()] == pytest.approx([0, 100, 200, 300])


def test_values_outside_an_axis_lie_on_its_end():
    axis = Axis(0, 10, 100, 0)
    assert (axis(-5), axis(15)) == (100, 0)


@pytest.mark.parametrize(("value", "text"), [(0.1 + 0.2, "0.3"), (1234567, "1,234,567"), (40, "40")])
def test_numbers_take_few_digits(value, text):
    assert number(value) == text


def test_every_point_of_the_losses_can_be_asked_for_its_value():
    titles = _titles(charts.loss_chart({"RTL": [0.5, 0.25], "float64": [0.5, 0.26]}))
    assert {"RTL, epoch 2: 0.250000", "float64, epoch 2: 0.260000"} <= set(titles)


def test_spans_that_overlap_lie_in_rows_of_their_own():
    spans_at = [(0, 10), (5, 15), (10, 20), (12, 30)]
    bars = [charts.Span(0, "C", 0, index, *times) for index, times in enumerate(spans_at)]
    svg = charts.timeline_chart(bars, 4.0)
    rows = {}
    for bar in _elements(svg, "rect"):
        rows.setdefault(bar.get("y"), []).append(bar)
    assert sorted(map(len, rows.values())) == [1, 1, 2]
    assert "communication of micro-batch 4 of mini-batch 1: cycles 12 to 30 (18)" in _titles(svg)


def test_a_histogram_counts_every_value():
    values = [100.0] * 90 + [500.0] * 9 + [900.0]
    titles = _titles(charts.histogram_chart(values, {"p50": 100.0}, "latency, ns"))
    counts = [int(title.split(": ")[1].replace(",", "")) for title in titles if " to " in title]
    assert sorted(counts) == [1, 9, 90]


def test_stalls_fill_the_bar():
    svg = charts.stall_chart([{"word taken": 30, "no word": 70}])
    widths = [float(bar.get("width")) for bar in _elements(svg, "rect")]
    assert widths[0] / widths[1] == pytest.approx(3 / 7, rel=1e-2)
    assert sum(widths) == pytest.approx(charts.RIGHT - charts.LEFT, rel=1e-3)


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


def _report(**changes):
    report = {
        "title": "<data> & more",
        "bit_exact": True,
        "verdict": "fine",
        "warning": "",
        "headline": [("loss", "0.1")],
        "losses": {"RTL": [0.5, 0.2]},
        "timeline": [charts.Span(0, "F", 0, 0, 0, 4)],
        "cycle_ns": 4.0,
        "allreduce_ns": [600.0, 604.0],
        "allreduce_marks": {"p50": 602.0},
        "stalls": [{"word taken": 1}],
        "configuration": {"Model": [("loss", "hinge")]},
        "counters": {"Nodes": [["counter", "node 0"], ["cycles", "7"]]},
    }
    return Report(**(report | changes))


def test_a_page_refers_to_nothing_outside():
    page = render(_report())
    assert re.findall(r"""(?:src|href|url|@import)\s*[=("']""", page) == []
    assert "http" not in page


def test_a_page_escapes_what_it_is_given():
    assert "&lt;data&gt; &amp; more" in render(_report())
    assert "<data>" not in render(_report())


@pytest.mark.parametrize(
    ("exact", "warning", "badge"),
    [
        (True, "", '"verdict good">fine<'),
        (True, "the loss rises", '"verdict near">fine, but the loss rises<'),
        (False, "the loss rises", '"verdict bad">fine, but the loss rises<'),
    ],
)
def test_the_badge_is_green_only_where_the_loss_falls(exact, warning, badge):
    assert badge in render(_report(bit_exact=exact, warning=warning))


def test_a_page_has_colours_for_light_and_dark():
    assert "prefers-color-scheme: dark" in render(_report())


def test_a_run_that_was_never_timed_has_no_empty_chart():
    page = render(_report(timeline=[], allreduce_ns=[], stalls=[]))
    assert page.count("<svg") == 1
