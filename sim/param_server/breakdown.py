"""Breakdown of a run's time by activity of workers and servers (RDMA-wild, figures 1, 5, 6)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from fanin.sim.param_server.training import ServerSpan, Span

WORKER_KINDS = ("compute", "push", "wait")
Times = npt.NDArray[np.float64]


def worker_seconds(spans: Sequence[Span], workers: int) -> dict[str, float]:
    """Return the seconds of each activity of a worker in the whole run, averaged over workers."""
    sums = dict.fromkeys(WORKER_KINDS, 0.0)
    for span in spans:
        sums[span.kind] += span.end - span.begin
    return {kind: total / workers for kind, total in sums.items()}


def server_seconds(spans: Sequence[ServerSpan], servers: int, seconds: float) -> dict[str, float]:
    """Return the seconds of each activity of a server in the run's ``seconds``, averaged over servers.

    ``update``: updates w. ``push``: pushes rows and updates nothing. ``idle``: the rest.
    """
    sums = dict.fromkeys(("update", "push", "idle"), 0.0)
    for shard in range(servers):
        shard_spans = [span for span in spans if span.shard == shard]
        update = _BusyTime(span for span in shard_spans if span.kind == "update").before(seconds)
        work = _BusyTime(shard_spans).before(seconds)
        for kind, kind_seconds in (("update", update), ("push", work - update), ("idle", seconds - work)):
            sums[kind] += float(kind_seconds) / servers
    return sums


def waiting_beside_work(spans: Sequence[Span], server_spans: Sequence[ServerSpan]) -> float | None:
    """Return the share of the workers' waiting in which a server worked; None if no worker waited."""
    intervals = np.array([(span.begin, span.end) for span in spans if span.kind == "wait"]).reshape(-1, 2)
    total = float((intervals[:, 1] - intervals[:, 0]).sum())
    if not total:
        return None
    busy = _BusyTime(server_spans)
    return float((busy.before(intervals[:, 1]) - busy.before(intervals[:, 0])).sum()) / total


class _BusyTime:
    """Cumulative time in which at least one of the spans was in progress."""

    def __init__(self, spans: Iterable[ServerSpan]):
        times = np.array([(span.begin, span.end) for span in spans]).reshape(-1, 2)
        begins, ends = times[np.argsort(times[:, 0])].T
        latest = np.maximum.accumulate(ends)
        first = np.ones(len(begins), bool)
        first[1:] = begins[1:] > latest[:-1]  # no span was in progress before
        intervals = np.stack([begins[first], latest[np.roll(first, -1)]], axis=1)
        lengths = intervals[:, 1] - intervals[:, 0]
        done = np.cumsum(lengths)
        self._times = np.append(0.0, intervals.ravel())
        self._sums = np.append(0.0, np.stack([done - lengths, done], axis=1).ravel())

    def before(self, seconds: Times | float) -> Times:
        """Return the seconds of this time before ``seconds``."""
        return np.interp(seconds, self._times, self._sums)
