"""The page of a run with the parameter server: its charts are to scale, and it needs nothing but itself."""

import re
from html import escape
from itertools import pairwise

import pytest

from fanin.report.curves import curves_chart
from fanin.report.param_server.charts import (
    WINDOW,
    staleness_chart,
    window,
    worker_seconds,
    workers_chart,
)
from fanin.report.param_server.page import param_server_page, stopped_line
from fanin.report.svg import Axis, number
from fanin.report.unit import Unit
from fanin.sim.param_server.training import Span
from tests.fanin.report.plans import elements, numbers, titles

OPTIONS = {
    "data": "digits",
    "model": "lr",
    "epochs": 3,
    "batch": 8,
    "rate": 1.0,
    "decay": 1e-4,
    "features": None,
    "gamma": None,
    "dtype": "float64",
    "seed": 0,
    "optimum": True,
    "algorithm": "wild",
    "workers": 2,
    "slots": 1,
    "warm_up": 5,
    "servers": 1,
    "width": 512,
    "sample_seconds": 9.5e-6,
    "jitter": 0.1,
    "stragglers": "1:2",
    "stop": "",
    "drop": 0.25,
    "duplicate": 0.0,
    "reorder": 0.0,
}


def _spans(workers=2, count=12):
    """Worker n computes n + 1 ms, pushes 0.25 ms and waits 0.75 ms."""
    for worker in range(workers):
        now = 0.0
        for _ in range(count):
            for kind, took in (("compute", 1e-3 * (worker + 1)), ("push", 0.25e-3), ("wait", 0.75e-3)):
                yield Span(worker, kind, now, now + took)
                now += took


def _epoch(number, **changes):
    convergence = {"distance": 20.0 / number, "gradient_norm": 0.1 / number, "loss_gap": 0.01 / number}
    measures = {"train_accuracy": 0.9, "accuracy": 0.8 + number / 100, "loss": 1 / number}
    return {
        "epoch": number,
        "simulated_seconds": 0.01 * number,
        **measures,
        "convergence": convergence,
    } | changes


def _metrics(epochs, **changes):
    last = epochs[-1]
    found = {"on": "model", "accuracy": last["accuracy"], "loss": last["loss"], "simulated_seconds": 0.03}
    found |= {f"gradients_{fate}": count for fate, count in zip(("pushed", "applied"), (24, 24), strict=True)}
    found |= {
        "gradients_lost": 0,
        "gradients_repeated": 0,
        "stopped": [],
        "unused_stops": [],
        "rereads": 0,
        "epochs": epochs,
    }
    found |= {"staleness": {"mean": 1.25, "max": 2, "histogram": {"1": 18, "2": 6}}}
    found |= {"worker_seconds": {"compute": 0.018, "push": 0.003, "wait": 0.009}, "configuration": OPTIONS}
    return found | changes


def _page(epochs=(1, 2, 3), **changes):
    return param_server_page(_metrics([_epoch(number) for number in epochs], **changes), list(_spans()))


def test_the_window_is_what_the_median_worker_takes_for_its_first_gradients():
    assert window(list(_spans(3))) == pytest.approx(1e-3 * (3 * WINDOW - 1))
    assert window(list(_spans(3, count=2))) == pytest.approx(5e-3)  # all that there is


def test_bars_are_as_long_as_the_spans_and_end_with_the_window():
    spans = list(_spans())
    chart = workers_chart(spans, 2)
    end = window(spans)
    axis = elements(chart, "line", "axis")[0]
    left, right = numbers(axis, "x1", "x2")
    for kind in ("compute", "push", "wait"):
        shown = [span for span in spans if span.kind == kind and span.begin < end]
        bars = elements(chart, "rect", f"did-{kind}")
        assert len(bars) == len(shown)
        for bar, span in zip(sorted(bars, key=lambda bar: numbers(bar, "y", "x")), shown, strict=True):
            x, width = numbers(bar, "x", "width")
            assert (x - left) / (right - left) == pytest.approx(span.begin / end, abs=1e-4)
            clipped = min(span.end, end) - span.begin
            assert width / (right - left) == pytest.approx(clipped / end, abs=2e-3)
    assert "worker 1 computes gradient 2: 3.000 ms to 5.000 ms" in titles(elements(chart, "rect", "bar"))


def test_a_worker_has_a_row_of_its_own_and_pushing_lies_below_computing():
    chart = workers_chart(list(_spans(5)), 5)
    rows = {}
    for bar in elements(chart, "rect", "bar"):
        worker = titles([bar])[0].split()[1]
        y, height = numbers(bar, "y", "height")
        low, high = rows.get(worker, (y, y))
        rows[worker] = (min(low, y), max(high, y + height))
    assert len(rows) == 5
    edges = sorted(rows.values())
    assert all(high < low for (_, high), (low, _) in pairwise(edges))
    (compute, *_), (push, *_) = (elements(chart, "rect", f"did-{kind}") for kind in ("compute", "push"))
    y, height = numbers(compute, "y", "height")
    assert y + height <= numbers(push, "y")[0]


def test_what_a_worker_does_with_its_time_is_the_workers_mean():
    took = worker_seconds(list(_spans(2, count=10)), 2)
    assert took == pytest.approx({"compute": 15e-3, "push": 2.5e-3, "wait": 7.5e-3})


@pytest.mark.parametrize(
    "histogram", [{0: 5}, {3: 1, 14: 90, 25: 9}, {0: 1, 12: 300}, {age: 2 + age % 3 for age in range(501)}]
)
def test_the_histogram_counts_every_gradient(histogram):
    mean = sum(age * times for age, times in histogram.items()) / sum(histogram.values())
    chart = staleness_chart(histogram, mean)
    bars = elements(chart, "rect", "bar")
    assert len(bars) <= 100
    counts = [int(title.split(": ")[1]) for title in titles(bars)]
    assert sum(counts) == sum(histogram.values())
    heights = [numbers(bar, "height")[0] for bar in bars]
    assert [h / max(heights) for h in heights] == pytest.approx([c / max(counts) for c in counts], abs=1e-3)
    (mark,) = elements(chart, "line", "mark")
    assert f"mean: {mean:.2f}" in titles([mark])
    words = [text for text in elements(chart, "text") if (text.text or "").startswith("mean")]
    width = 8 * len(words[0].text)
    x = numbers(words[0], "x")[0]
    assert x + width <= 960 if words[0].get("text-anchor") == "start" else x - width >= 0


def test_curves_go_through_their_points():
    chart = curves_chart(
        {"a": [(1, 0.5), (2, 0.75), (3, 1.0)], "b": [(1, 1.0), (3, 0.5)]}, "epoch", "y", start=1
    )
    first, second = (
        [numbers(dot, "cx", "cy") for dot in elements(chart, "circle", f"point{i}")] for i in (0, 1)
    )
    assert [x for x, _ in first] == pytest.approx([52, 254, 456])
    assert first[1][1] == pytest.approx((first[0][1] + first[2][1]) / 2, abs=0.02)
    assert [y for _, y in second] == [first[2][1], first[0][1]]
    assert "a, epoch 2: 0.75" in titles(elements(chart, "circle", "dot"))
    ticks = [text.text for text in elements(chart, "text", "tick") if text.get("text-anchor") == "middle"]
    assert ticks == ["1", "2", "3"]  # and not 1.5


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1, 1000, [1, 10, 100, 1000]),
        (0.7, 108, [1, 10, 100]),
        (0.007, 0.45, [0.01, 0.02, 0.05, 0.1, 0.2]),
        (3, 47, [5, 10, 20]),
        (12, 34, [15, 20, 25, 30]),
    ],
)
def test_a_logarithmic_axis_has_ticks_however_short_it_is(low, high, expected):
    assert Axis(low, high, 0, 1, log=True).ticks(5) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.000 µs"), (4.481e-2, "44.81 ms"), (2e-6, "2.000 µs"), (1, "1.000 s"), (98765.4, "98,765 s")],
)
def test_times_have_four_digits_and_a_unit(seconds, text):
    assert Unit.of(seconds)(seconds) == text


def test_a_huge_number_does_not_leave_the_chart():
    assert number(1.5e30) == "1.5e+30"
    assert number(123_456_789) == "123,456,789"


def test_the_page_shows_everything_and_refers_to_nothing():
    page = _page()
    assert page.count("<svg") == 9  # workers, 2 of accuracy, 2 of loss, 3 of convergence, staleness
    assert re.findall(r'(?:src|href)="|url\(|@import|<script', page) == []
    assert "every gradient applied once" in page
    assert "The first 15.00 ms of 30.00 ms" not in page
    assert f"The first {Unit(1e-3)(window(list(_spans())))} of 30.00 ms" in page
    for heading in ("Configuration", "What the workers do", "Accuracy", "Loss", "Convergence", "Staleness"):
        assert f"<h2>{heading}</h2>" in page
    for text in ("1:2", "25 %", "9.500 µs", "event model", "30.0 %", "1.2"):
        assert escape(text) in page
    assert len(re.findall(r'<th scope="row">[123]</th>', page)) == 3


def test_what_is_not_finite_is_in_no_chart_and_what_there_is_not_has_none():
    lone = _page(epochs=(1,))
    assert lone.count("<svg") == 2  # workers and staleness: a point is no curve
    nothing = dict.fromkeys(("distance", "gradient_norm", "loss_gap"))
    epochs = [_epoch(1), *(_epoch(number, loss=None, convergence=nothing) for number in (2, 3))]
    diverged = param_server_page(_metrics(epochs), list(_spans()))
    assert diverged.count("<svg") == 4
    assert "the model diverged" in diverged
    assert "not finite" in diverged
    plain = param_server_page(_metrics([_epoch(n, convergence=None) for n in (1, 2)]), list(_spans()))
    assert "w*" not in plain
    ended = {"staleness": {"mean": 0.0, "max": 0, "histogram": {}}}
    assert param_server_page(_metrics([_epoch(1)], **ended), []).count("<svg") == 0


def test_lost_gradients_and_stopped_workers_are_told():
    assert "gradients were lost or applied again" in _page(gradients_lost=1)
    assert "gradients were lost or applied again" in _page(gradients_repeated=1)
    assert "Worker 1 stopped answering; the others went on without it." in _page(stopped=[1])
    assert "stopped answering" not in _page()
    some = "workers 2, 4 and 5 stopped answering; the others went on without them"
    assert stopped_line([2, 4, 5], of=6) == some
    assert stopped_line([0, 1], of=2).startswith("all workers stopped answering")


def test_a_stop_that_changed_nothing_is_told():
    one = "--stop changed nothing for worker 1: by then it had pushed the last gradient."
    assert one in _page(unused_stops=[1])
    some = "--stop changed nothing for workers 0 and 2: by then they had pushed the last gradient."
    assert some in _page(unused_stops=[0, 2], stopped=[1])
    assert "--stop" not in _page()
