"""What became of a run's time: sums of spans, and of what overlaps, once."""

import pytest

from fanin.sim.param_server.breakdown import server_seconds, waiting_beside_work, worker_seconds
from fanin.sim.param_server.training import ServerSpan, Span

#: Server 0 updates from 1 to 3 and pushes from 2 to 5, and from 4 to 6; server 1 updates from 0 to 4.
WORK = [
    ServerSpan(0, 1, "push", 4.0, 6.0),
    ServerSpan(0, 0, "update", 1.0, 3.0),
    ServerSpan(0, 0, "push", 2.0, 5.0),
    ServerSpan(1, 0, "update", 0.0, 4.0),
]


def test_what_a_worker_does_with_its_time_is_the_workers_mean():
    spans = [Span(0, "compute", 0, 2), Span(0, "push", 2, 3), Span(1, "compute", 0, 4), Span(1, "wait", 5, 8)]
    assert worker_seconds(spans, 2) == {"compute": 3, "push": 0.5, "wait": 1.5}


def test_a_server_pushes_while_it_updates_nothing_and_what_overlaps_counts_once():
    assert server_seconds(WORK, 1, 10.0) == pytest.approx({"update": 2, "push": 3, "idle": 5})
    assert server_seconds(WORK, 2, 10.0) == pytest.approx({"update": 3, "push": 1.5, "idle": 5.5})
    assert server_seconds(WORK, 2, 3.5) == pytest.approx({"update": 2.75, "push": 0.25, "idle": 0.5})
    assert server_seconds([], 1, 2.0) == {"update": 0, "push": 0, "idle": 2}


def test_waiting_is_beside_a_server_that_works_or_not():
    waits = [Span(0, "wait", 5.0, 8.0), Span(1, "wait", 0.5, 1.5), Span(0, "compute", 0.0, 5.0)]
    assert waiting_beside_work(waits, WORK) == pytest.approx((1 + 1) / 4)
    assert waiting_beside_work(waits, []) == 0
    assert waiting_beside_work(waits[2:], WORK) is None
