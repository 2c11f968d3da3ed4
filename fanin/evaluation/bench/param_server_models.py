"""Benchmark of RDMA-wild's tables 1 and 2, figure 1, barter and scans, by the event model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fanin.evaluation.bench.result import Result, number
from fanin.evaluation.models import rdma_wild as paper
from fanin.evaluation.models.rdma_wild import PAPER, READINGS, STEADY, cluster, job, simulate
from fanin.evaluation.origins.graph import identifier
from fanin.param_server.facts import Algorithm, PushAfter, Receivers
from fanin.sim.param_server.breakdown import server_seconds, waiting_beside_work

_COLUMNS = (("sync", Algorithm.SYNC), ("wild", Algorithm.WILD))


def measure() -> Iterator[Result]:
    """Yield the tables' figures with the paper's; fitted figures are marked."""
    for reading in READINGS:
        for model in PAPER:
            yield from _table_1(reading, model)
    for model, row in PAPER.items():
        wild = STEADY.seconds(model, Algorithm.WILD)
        yield _comparison(f"table 2: {model}, wild", row.single / wild, row.wild_speedup, "speed-up")
    for model in PAPER:
        yield from _server_activity(model)
        yield from _pushes(model)
    yield from _figure_1()


def _table_1(reading: paper.Reading, model: str) -> Iterator[Result]:
    row, name = PAPER[model], f"table 1: {reading.name}: {model}"
    sync, wild = (reading.seconds(model, algorithm) for _, algorithm in _COLUMNS)
    fitted_suffix = {False: "", True: ", fitted"}
    id_prefix = identifier("ps.table_1", reading.name, model)
    for text, id_part, value, claimed, unit, suffix in (
        ("sync", "sync_s", sync, row.sync, "s", fitted_suffix[not reading.one_server]),
        ("wild", "wild_s", wild, row.wild, "s", fitted_suffix[reading.one_server]),
        ("sync over wild", "sync_over_wild", sync / wild, row.sync / row.wild, "×", ""),
    ):
        yield replace(_comparison(f"{name}, {text}", value, claimed, unit, suffix), id=f"{id_prefix}.{id_part}")


def _server_activity(model: str) -> Iterator[Result]:
    """Yield figures 5, 6 and 9 to 12: activity of the server, and waiting of the workers."""
    row = PAPER[model]
    for name, algorithm in _COLUMNS:
        outcome = simulate(job(row, cluster(row), algorithm=algorithm))
        seconds_by_activity = server_seconds(outcome.server_spans, 1, outcome.seconds)
        for activity, seconds in seconds_by_activity.items():
            yield Result(
                f"server: {model}, {name}, {activity}", 100 * seconds / outcome.seconds, "% of the time"
            )
        overlap = waiting_beside_work(outcome.spans, outcome.server_spans) or 0.0
        yield Result(f"server: {model}, {name}, at work while workers wait", 100 * overlap, "% of waiting")


def _pushes(model: str) -> Iterator[Result]:
    """Yield the slowdown of wild with other pushes, on the paper's cluster and on fanin's server."""
    row = PAPER[model]
    setups = {"cluster": job(row, cluster(row)), "design": paper.design(row)}
    for system, setup in setups.items():
        seconds = {
            (push_after, receivers): simulate(
                replace(setup, push_after=push_after, receivers=receivers)
            ).seconds
            for push_after in PushAfter
            for receivers in Receivers
        }
        for push_after in PushAfter:
            ratio = seconds[push_after, Receivers.BROADCAST] / seconds[push_after, Receivers.BARTER]
            name = f"pushes: {model}, {system}, behind a {push_after.value}, broadcast over barter"
            figure_id = identifier("ps.pushes", model, system, push_after.value, "broadcast over barter")
            yield Result(name, ratio, "×", id=figure_id)
        ratio = seconds[PushAfter.SCAN, Receivers.BARTER] / seconds[PushAfter.GRADIENT, Receivers.BARTER]
        yield Result(f"pushes: {model}, {system}, behind a scan over behind every gradient", ratio, "×")


def _figure_1() -> Iterator[Result]:
    rdma, tcp = (paper.figure_1(costs) for costs in (cluster(PAPER["lr"]), paper.tcp()))
    for kind, claimed in paper.FIGURE_1.items():
        ratio = getattr(tcp, kind) / getattr(rdma, kind)
        result = _comparison(f"figure 1: {kind}, TCP over RDMA", ratio, claimed, "×")
        yield replace(result, id=f"ps.figure_1.{kind}.tcp_over_rdma")


def _comparison(name: str, value: float, claimed: float, unit: str, suffix: str = "") -> Result:
    """Return a value with the paper's in the note; ``suffix``: end of the note."""
    return Result(name, value, unit, note=f"the paper: {number(claimed)}{suffix}")
