"""RDMA-wild's tables 1 and 2 by the event model; the server is fitted to Sync-DSGD's seconds."""

from __future__ import annotations

from collections.abc import Iterator

from fanin.cli.bench.result import Result, number
from fanin.sim.param_server.paper import JITTER, PAPER, Row, cluster, job, seconds
from fanin.sim.param_server.training import Algorithm


def measure() -> Iterator[Result]:
    """Yield the tables' figures beside the paper's; wild's also with workers that all take the same time."""
    for name, row in PAPER.items():
        sync, wild, update = _times(row, JITTER)
        yield Result(f"table 1: {name}, update", 1e-9 / update, "GB/s", note="fitted")
        yield _beside(f"table 1: {name}, sync", sync, row.sync, "s", ", fitted")
        yield _beside(f"table 1: {name}, wild", wild, row.wild, "s")
        yield _beside(f"table 1: {name}, sync over wild", sync / wild, row.sync / row.wild, "×")
        sync, steady, _ = _times(row, 0.0)
        yield _beside(f"table 1: {name}, no jitter, wild", steady, row.wild, "s")
        yield _beside(f"table 1: {name}, no jitter, sync over wild", sync / steady, row.sync / row.wild, "×")
        yield _beside(f"table 2: {name}, wild", row.single / wild, row.wild_speedup, "speed-up")
        yield _beside(f"table 2: {name}, no jitter, wild", row.single / steady, row.wild_speedup, "speed-up")


def _times(row: Row, jitter: float) -> tuple[float, float, float]:
    """Seconds of sync and of wild, and those that the server takes for a byte of an update, fitted to sync."""
    costs = cluster(row, jitter)
    sync, wild = (
        seconds(row, job(row, costs, jitter, algorithm=algorithm))
        for algorithm in (Algorithm.SYNC, Algorithm.WILD)
    )
    return sync, wild, costs.update


def _beside(name: str, value: float, paper: float, unit: str, more: str = "") -> Result:
    return Result(name, value, unit, note=f"the paper: {number(paper)}{more}")
