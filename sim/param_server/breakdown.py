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
        own = [span for span in spans if span.shard == shard]
        update = _Busy(span for span in own if span.kind == "update").until(seconds)
        work = _Busy(own).until(seconds)
        for kind, took in (("update", update), ("push", work - update), ("idle", seconds - work)):
            sums[kind] += float(took) / servers
    return sums


def waiting_beside_work(spans: Sequence[Span], server_spans: Sequence[ServerSpan]) -> float | None:
    """Return the share of the workers' waiting in which a server worked; None if no worker waited."""
    waits = np.array([(span.begin, span.end) for span in spans if span.kind == "wait"]).reshape(-1, 2)
    waited = float((waits[:, 1] - waits[:, 0]).sum())
    if not waited:
        return None
    busy = _Busy(server_spans)
    return float((busy.until(waits[:, 1]) - busy.until(waits[:, 0])).sum()) / waited


class _Busy:
    """Time in which at least one of the spans was in progress."""

    def __init__(self, spans: Iterable[ServerSpan]):
        times = np.array([(span.begin, span.end) for span in spans]).reshape(-1, 2)
        begins, ends = times[np.argsort(times[:, 0])].T
        latest = np.maximum.accumulate(ends)
        first = np.ones(len(begins), bool)
        first[1:] = begins[1:] > latest[:-1]  # no span was in progress before
        stretches = np.stack([begins[first], latest[np.roll(first, -1)]], axis=1)
        lengths = stretches[:, 1] - stretches[:, 0]
        done = np.cumsum(lengths)
        self._times = np.append(0.0, stretches.ravel())
        self._sums = np.append(0.0, np.stack([done - lengths, done], axis=1).ravel())

    def until(self, when: Times | float) -> Times:
        """Return the amount of this time before ``when``."""
        return np.interp(when, self._times, self._sums)
