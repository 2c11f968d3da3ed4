"""RDMA-wild's tables 1 and 2 and figure 1 by the event model, and its results for barter and scans."""

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
        yield _beside(f"table 2: {model}, wild", row.single / wild, row.wild_speedup, "speed-up")
    for model in PAPER:
        yield from _server(model)
        yield from _pushes(model)
    yield from _figure_1()


def _table_1(reading: paper.Reading, model: str) -> Iterator[Result]:
    row, name = PAPER[model], f"table 1: {reading.name}: {model}"
    sync, wild = (reading.seconds(model, algorithm) for _, algorithm in _COLUMNS)
    fitted = {False: "", True: ", fitted"}
    place = identifier("ps.table_1", reading.name, model)
    for text, short, value, claimed, unit, more in (
        ("sync", "sync_s", sync, row.sync, "s", fitted[not reading.one_server]),
        ("wild", "wild_s", wild, row.wild, "s", fitted[reading.one_server]),
        ("sync over wild", "sync_over_wild", sync / wild, row.sync / row.wild, "×", ""),
    ):
        yield replace(_beside(f"{name}, {text}", value, claimed, unit, more), id=f"{place}.{short}")


def _server(model: str) -> Iterator[Result]:
    """Yield figures 5, 6 and 9 to 12: activity of the server, and waiting of the workers."""
    row = PAPER[model]
    for name, algorithm in _COLUMNS:
        found = simulate(job(row, cluster(row), algorithm=algorithm))
        took = server_seconds(found.server_spans, 1, found.seconds)
        for kind, seconds in took.items():
            yield Result(f"server: {model}, {name}, {kind}", 100 * seconds / found.seconds, "% of the time")
        beside = waiting_beside_work(found.spans, found.server_spans) or 0.0
        yield Result(f"server: {model}, {name}, at work while workers wait", 100 * beside, "% of waiting")


def _pushes(model: str) -> Iterator[Result]:
    """Yield the slowdown of wild with other pushes, on the paper's cluster and on fanin's server."""
    row = PAPER[model]
    places = {"cluster": job(row, cluster(row)), "design": paper.design(row)}
    for place, setup in places.items():
        took = {
            (when, who): simulate(replace(setup, push_after=when, receivers=who)).seconds
            for when in PushAfter
            for who in Receivers
        }
        for when in PushAfter:
            over = took[when, Receivers.BROADCAST] / took[when, Receivers.BARTER]
            name = f"pushes: {model}, {place}, behind a {when.value}, broadcast over barter"
            short = identifier("ps.pushes", model, place, when.value, "broadcast over barter")
            yield Result(name, over, "×", id=short)
        over = took[PushAfter.SCAN, Receivers.BARTER] / took[PushAfter.GRADIENT, Receivers.BARTER]
        yield Result(f"pushes: {model}, {place}, behind a scan over behind every gradient", over, "×")


def _figure_1() -> Iterator[Result]:
    rdma, tcp = (paper.figure_1(costs) for costs in (cluster(PAPER["lr"]), paper.tcp()))
    for kind, claimed in paper.FIGURE_1.items():
        over = getattr(tcp, kind) / getattr(rdma, kind)
        result = _beside(f"figure 1: {kind}, TCP over RDMA", over, claimed, "×")
        yield replace(result, id=f"ps.figure_1.{kind}.tcp_over_rdma")


def _beside(name: str, value: float, claimed: float, unit: str, more: str = "") -> Result:
    return Result(name, value, unit, note=f"the paper: {number(claimed)}{more}")
