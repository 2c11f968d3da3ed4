"""The page of a run with the parameter server: its charts are to scale, and it needs nothing but itself."""

import html
import re
from html import escape

import pytest

from fanin.param_server.page.charts import (
    WINDOW,
    staleness_chart,
    timeline_chart,
    window,
)
from fanin.param_server.page.page import param_server_page, stopped_line
from fanin.param_server.run.options import ParamServerOptions
from fanin.report.curves import curves_chart, epoch_axis, loss_axis
from fanin.report.unit import Unit
from fanin.runs.option_tables import option_tables
from fanin.sim.param_server.training import Outcome, ServerSpan, Span
from tests.fanin.report.drawn import bars, figures, names, outside, own, points, rows

OPTIONS = {
    "data": "digits",
    "model": "lr",
    "epochs": 3,
    "batch": 8,
    "lr": 1.0,
    "decay": 1e-4,
    "features": None,
    "gamma": None,
    "dtype": "float64",
    "seed": 0,
    "optimum": True,
    "algorithm": "wild",
    "push_after": "gradient",
    "receivers": "barter",
    "workers": 2,
    "slots": 1,
    "warm_up": 5,
    "servers": 1,
    "width": 512,
    "costs": "design",
    "sample_seconds": 9.5e-6,
    "jitter": 0.1,
    "stragglers": "1:2",
    "stop": "",
    "drop": 0.25,
    "duplicate": 0.0,
    "reorder": 0.0,
}


def worker_spans(workers=2, count=12):
    """Worker n computes n + 1 ms, pushes 0.25 ms and waits 0.75 ms."""
    for worker in range(workers):
        now = 0.0
        for _ in range(count):
            for kind, took in (("compute", 1e-3 * (worker + 1)), ("push", 0.25e-3), ("wait", 0.75e-3)):
                yield Span(worker, kind, now, now + took)
                now += took


def server_spans(count=12):
    """The server updates for 0.5 ms of each, with the workers' gradients in turn, and pushes 0.25 ms."""
    for number in range(count):
        begin = 1e-3 * number
        yield ServerSpan(0, number % 2, "update", begin, begin + 0.5e-3)
        yield ServerSpan(0, number % 2, "push", begin + 0.5e-3, begin + 0.75e-3)


def outcome_of(spans=None):
    return Outcome(spans=list(worker_spans() if spans is None else spans), server_spans=list(server_spans()))


def epoch_of(number, **changes):
    convergence = {"distance": 20.0 / number, "gradient_norm": 0.1 / number, "loss_gap": 0.01 / number}
    measures = {"train_accuracy": 0.9, "accuracy": 0.8 + number / 100, "loss": 1 / number}
    return {
        "epoch": number,
        "simulated_seconds": 0.01 * number,
        **measures,
        "convergence": convergence,
    } | changes


def run_file(epochs, **changes):
    last = epochs[-1]
    found = {
        "error": None,
        "on": "model",
        "accuracy": last["accuracy"],
        "loss": last["loss"],
        "simulated_seconds": 0.03,
    }
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
    found |= {"server_seconds": {"update": 0.006, "push": 0.003, "idle": 0.021}}
    found |= {"waiting_beside_work": 0.25, "beside": []}
    return found | changes


def whole_page(metrics, outcomes):
    """The page with its options."""
    values = metrics["configuration"] | {"on": metrics["on"]}
    return param_server_page(metrics, outcomes, option_tables(ParamServerOptions, values))


def page_of(metrics, outcomes):
    """The page without the charting library's source, in which any word may stand."""
    return own(whole_page(metrics, outcomes))


def _page(epochs=(1, 2, 3), **changes):
    return page_of(run_file([epoch_of(number) for number in epochs], **changes), [outcome_of()])


def test_the_window_is_what_the_median_worker_takes_for_its_first_gradients():
    assert window(list(worker_spans(3))) == pytest.approx(1e-3 * (3 * WINDOW - 1))
    assert window(list(worker_spans(3, count=2))) == pytest.approx(5e-3)  # all that there is


def test_where_computing_takes_no_time_the_window_is_that_of_pushing():
    spans = [span for span in worker_spans(3) if span.kind != "compute"]
    assert window(spans) == pytest.approx(1e-3 * 3 * WINDOW - 0.75e-3)


def test_bars_are_as_long_as_the_spans_and_those_of_the_window_are_drawn():
    spans = list(worker_spans())
    end = window(spans)
    figure = timeline_chart(Outcome(spans=spans), 2, 0, end).figure()
    assert figure["layout"]["xaxis"]["range"] == [0, end]
    for kind in ("compute", "push", "wait"):
        shown = [(s.worker, s.begin, s.end - s.begin) for s in spans if s.kind == kind and s.begin < end]
        drawn = [(round(b.place), b.begin, b.size) for b in bars(figure) if b.series == kind]
        assert sorted(drawn) == sorted(shown)
    assert "worker 1 computes gradient 2: 3.000 ms to 5.000 ms" in [bar.hint for bar in bars(figure)]


def test_a_worker_has_a_row_of_its_own_and_pushing_lies_below_computing():
    figure = timeline_chart(outcome_of(worker_spans(5)), 5, 1, 8e-3).figure()
    assert rows(figure) == [*(f"worker {worker}" for worker in range(5)), "server 0"]
    width = {series["name"]: series["width"] for series in figure["data"]}
    place = {(bar.series, round(bar.place)): bar.place for bar in bars(figure)}
    for worker in range(5):
        compute, push = place["compute", worker], place["push", worker]
        assert worker - 0.5 < compute - width["compute"] / 2
        assert compute + width["compute"] / 2 <= push - width["push"] / 2 + 1e-9
        assert push + width["push"] / 2 < worker + 0.5


def test_a_server_has_a_row_below_the_workers_that_says_for_whom_it_works():
    end = 4e-3
    drawn = [bar for bar in bars(timeline_chart(outcome_of(), 2, 1, end).figure()) if round(bar.place) == 2]
    shown = [span for span in server_spans() if span.begin < end]
    assert sorted((bar.series, bar.begin, bar.size) for bar in drawn) == sorted(
        (span.kind, span.begin, span.end - span.begin) for span in shown
    )
    assert "server 0 updates the gradient of worker 1: 1.000 ms to 1.500 ms" in [bar.hint for bar in drawn]
    assert "server 0 pushes a row to worker 0: 500.0 µs to 750.0 µs" in [bar.hint for bar in drawn]


def test_runs_beside_one_another_are_told_by_the_options_in_which_they_differ():
    other = run_file([epoch_of(number, accuracy=0.5) for number in (1, 2)], simulated_seconds=0.06)
    other["configuration"] = OPTIONS | {"algorithm": "sync", "push_after": None}
    metrics = run_file([epoch_of(number) for number in (1, 2, 3)], beside=[other])
    page = page_of(metrics, [outcome_of(), outcome_of(worker_spans(count=20))])
    wild, sync = "algorithm wild, push-after gradient", "algorithm sync"
    drawn = figures(page)
    for name in (wild, sync):
        assert f"Timeline of {name}" in drawn
    chart = drawn["accuracy over simulated time, beside one another"]
    assert names(chart) == [wild, sync]
    assert points(chart, sync) == [(0.01, 0.5), (0.02, 0.5)]
    assert "<h2>Runs beside one another</h2>" in page
    assert "2.000×" in page
    assert len(drawn) == 9 + 1 + 4
    assert "Runs beside one another" not in _page()


@pytest.mark.parametrize(
    "histogram", [{0: 5}, {3: 1, 14: 90, 25: 9}, {0: 1, 12: 300}, {age: 2 + age % 3 for age in range(501)}]
)
def test_the_histogram_counts_every_gradient(histogram):
    mean = sum(age * times for age, times in histogram.items()) / sum(histogram.values())
    figure = staleness_chart(histogram, mean).figure()
    drawn = bars(figure)
    assert len(drawn) <= 100
    assert sum(bar.size for bar in drawn) == sum(histogram.values())
    assert [int(bar.hint.split(": ")[1]) for bar in drawn] == [bar.size for bar in drawn]
    low, high = figure["layout"]["xaxis"]["range"]
    assert low < 0 <= max(histogram) < high
    (mark,), (text,) = figure["layout"]["shapes"], figure["layout"]["annotations"]
    assert (mark["x0"], text["text"]) == (mean, f"mean {mean:.2f}")


def test_curves_go_through_their_points():
    lines = {"a": ("run", [(1, 0.5), (2, 0.75), (3, 1.0)]), "b": ("binary64", [(1, 1.0), (3, 0.5)])}
    figure = curves_chart(lines, epoch_axis(3), loss_axis("y", log=True)).figure()
    assert {name: points(figure, name) for name in names(figure)} == {n: p for n, (_, p) in lines.items()}
    assert figure["layout"]["xaxis"]["dtick"] == 1  # and no epoch 1.5
    assert figure["layout"]["yaxis"]["type"] == "log"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.000 µs"), (4.481e-2, "44.81 ms"), (2e-6, "2.000 µs"), (1, "1.000 s"), (98765.4, "98,765 s")],
)
def test_times_have_four_digits_and_a_unit(seconds, text):
    assert Unit.of(seconds)(seconds) == text


def test_the_page_shows_everything_and_refers_to_nothing():
    page = _page()
    drawn = figures(page)
    assert len(drawn) == 9  # workers, 2 of accuracy, 2 of loss, 3 of convergence, staleness
    assert points(drawn["accuracy over simulated time"], "held out") == [
        (epoch["simulated_seconds"], epoch["accuracy"]) for epoch in map(epoch_of, (1, 2, 3))
    ]
    assert points(drawn["distance to w* over epoch"], "distance to w*") == [(n, 20.0 / n) for n in (1, 2, 3)]
    assert outside(page) == []
    assert "every gradient applied once" in page
    assert "in 25 % of the workers' waiting a server works" in html.unescape(page)
    assert "The first 15.00 ms of 30.00 ms" not in page
    assert f"The first {Unit(1e-3)(window(list(worker_spans())))} of 30.00 ms" in page
    for heading in (
        "Configuration",
        "What workers and servers do",
        "Accuracy",
        "Loss",
        "Convergence",
        "Staleness",
    ):
        assert f"<h2>{heading}</h2>" in page
    for text in ("1:2", "0.25", "9.5e-06", "30.0 %", "1.2"):
        assert escape(text) in page
    assert len(re.findall(r'<th scope="row">[123]</th>', page)) == 3


def test_what_is_not_finite_is_in_no_chart_and_what_there_is_not_has_none():
    lone = _page(epochs=(1,))
    assert len(figures(lone)) == 2  # workers and staleness: a point is no curve
    nothing = dict.fromkeys(("distance", "gradient_norm", "loss_gap"))
    epochs = [epoch_of(1), *(epoch_of(number, loss=None, convergence=nothing) for number in (2, 3))]
    diverged = page_of(run_file(epochs), [outcome_of()])
    assert len(figures(diverged)) == 4
    assert "the model diverged" in diverged
    assert "not finite" in diverged
    plain = page_of(run_file([epoch_of(n, convergence=None) for n in (1, 2)]), [outcome_of()])
    assert "w*" not in plain
    ended = {"staleness": {"mean": 0.0, "max": 0, "histogram": {}}}
    assert len(figures(page_of(run_file([epoch_of(1)], **ended), [Outcome()]))) == 0


def test_lost_gradients_and_stopped_workers_are_told():
    assert "gradients were lost or applied again" in _page(gradients_lost=1)
    assert "gradients were lost or applied again" in _page(gradients_repeated=1)
    assert "Worker 1 stopped answering; the others continued without it." in _page(stopped=[1])
    assert "stopped answering" not in _page()
    some = "workers 2, 4 and 5 stopped answering; the others continued without them"
    assert stopped_line([2, 4, 5], of=6) == some
    assert stopped_line([0, 1], of=2).startswith("all workers stopped answering")


def test_a_run_beside_that_failed_is_told_and_in_no_table():
    failed = {"error": "stopped", "configuration": OPTIONS | {"algorithm": "sync"}}
    page = _page(beside=[failed], error="--beside algorithm=sync: stopped")
    assert "--beside algorithm=sync: stopped" in page
    assert "Runs beside one another" not in page


def test_a_stop_that_changed_nothing_is_told():
    one = "--stop changed nothing for worker 1: by then it had pushed the last gradient."
    assert one in _page(unused_stops=[1])
    some = "--stop changed nothing for workers 0 and 2: by then they had pushed the last gradient."
    assert some in _page(unused_stops=[0, 2], stopped=[1])
    assert "--stop" not in _page()
