"""Event model of RDMA-wild's cluster, compared with the paper's tables 1 and 2 and figure 1.

The model's server is fitted to one column of table 1.

``python -m fanin.evaluation.models.rdma_wild`` prints the tables of docs/systems/param-server-time.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from statistics import geometric_mean
from typing import Any

from fanin.param_server.facts import Algorithm
from fanin.sim.learning.learner import NoTraining
from fanin.sim.param_server.breakdown import worker_seconds
from fanin.sim.param_server.costs import DESIGN, LINK_BYTE, Compute, Costs
from fanin.sim.param_server.events import run
from fanin.sim.param_server.sockets import measure as sockets_measure
from fanin.sim.param_server.training import Outcome, TrainingJob

WORKERS, BATCH, SAMPLES = 15, 8, 60_000  # section 5.1; MNIST
JITTER = 0.1  # assumed jitter of a worker's compute time, as a fraction
LATENCY_SECONDS = 1e-6  # seconds of a write: half of the round trip in section 4
_SIMULATED_BATCHES = 100  # simulated mini-batches per worker; the rest of a run is extrapolated
_SIMULATED_VALUES = 4096  # values of the simulated model; its size in bytes is the paper's


@dataclass(frozen=True)
class Row:
    """A trained model in the paper's tables 1 and 2.

    - ``bytes``: size of the model.
    - ``epochs``: epochs of a run.
    - ``sync``, ``wild``: seconds of a whole run with Sync-DSGD and RDMA-wild (table 1).
    - ``sync_speedup``, ``wild_speedup``: speed-ups over a single node (table 2).
    """

    bytes: int
    epochs: int
    sync: float
    wild: float
    sync_speedup: float
    wild_speedup: float

    @property
    def single(self) -> float:
        """Seconds of a single node: the mean of two values that table 2 implies."""
        return (self.sync * self.sync_speedup + self.wild * self.wild_speedup) / 2

    @property
    def batches(self) -> int:
        """Mini-batches of a worker in the whole run."""
        return SAMPLES // (WORKERS * BATCH) * self.epochs

    @property
    def per_sample(self) -> float:
        """Seconds per sample on a single node."""
        return self.single / (self.epochs * SAMPLES)


PAPER = {
    "lr": Row(64_000, 15, 3.10, 2.79, 2.76, 3.08),
    "lr-rff": Row(800_000, 50, 122.36, 95.98, 5.82, 7.42),
    "fcnn": Row(800_000, 50, 135.92, 110.29, 1.58, 1.95),
}
FIGURE_1 = {"training": 2.0, "wait": 6.0}  # TCP's times relative to RDMA's; logistic regression
FIGURE_1_BATCH = 60


def job(row: Row, costs: Costs, jitter: float = JITTER, **changes: Any) -> TrainingJob:
    """Return the training job of a model on the paper's cluster, for times only; ``changes``: other fields."""
    compute = Compute(per_sample=row.per_sample, jitter=jitter)
    setup = TrainingJob(workers=WORKERS, batch=BATCH, compute=compute, costs=costs, model_bytes=row.bytes)
    return replace(setup, **changes)


def simulate(setup: TrainingJob) -> Outcome:
    """Simulate the first ``_SIMULATED_BATCHES`` mini-batches per worker of a job."""
    return run(setup, NoTraining(_SIMULATED_VALUES, _SIMULATED_BATCHES))


def seconds(row: Row, setup: TrainingJob) -> float:
    """Return the seconds of the whole run, extrapolated from its first mini-batches."""
    return simulate(setup).seconds * row.batches / _SIMULATED_BATCHES


@cache
def cluster(row: Row, jitter: float = JITTER) -> Costs:
    """Return the paper's cluster: its server's update time is fitted so that Sync-DSGD takes table 1's time.

    The run's time is linear in the update's time. Raises ValueError if the workers' jitter alone makes
    Sync-DSGD slower than the paper's.
    """

    def sync_seconds(update: float) -> float:
        return seconds(row, job(row, _cluster(update), jitter, algorithm=Algorithm.SYNC))

    seconds_at_zero, seconds_at_1ns = sync_seconds(0.0), sync_seconds(1e-9)
    if seconds_at_zero > row.sync:
        difference = f"Sync-DSGD takes {seconds_at_zero:.4g} s, and {row.sync:g} s in the paper"
        raise ValueError(f"jitter must be smaller with the paper's cluster: with {jitter:g} {difference}")
    return _cluster(1e-9 * (row.sync - seconds_at_zero) / (seconds_at_1ns - seconds_at_zero))


def _cluster(update: float) -> Costs:
    """Return the paper's cluster with a server that takes ``update`` seconds per byte."""
    return Costs(byte=LINK_BYTE, latency=LATENCY_SECONDS, update=update)


@dataclass(frozen=True)
class Breakdown:
    """Seconds per worker and mini-batch: computing and pushing, and waiting (figure 1)."""

    training: float
    wait: float

    @classmethod
    def of(cls, outcome: Outcome) -> Breakdown:
        """Return the mean over workers."""
        parts = worker_seconds(outcome.spans, outcome.tally.applied)
        return cls(parts["compute"] + parts["push"], parts["wait"])


def figure_1(costs: Costs) -> Breakdown:
    """Return the breakdown of Sync-DSGD of logistic regression with figure 1's batch."""
    return Breakdown.of(simulate(job(PAPER["lr"], costs, algorithm=Algorithm.SYNC, batch=FIGURE_1_BATCH)))


def tcp() -> Costs:
    """Return the cluster over TCP, with costs measured on loopback; nothing is fitted to figure 1.

    The processor copies every byte at both ends. A byte takes the longer of its link time and its copy. The
    server's one thread copies a gradient before it updates with it, and a worker copies w before it computes. A
    message's latency grows by the system calls and wake-ups of a small message.
    """
    row = PAPER["lr"]
    rdma, sockets = cluster(row), sockets_measure(row.bytes)
    return replace(
        rdma,
        byte=max(LINK_BYTE, sockets.byte),
        update=rdma.update + sockets.byte,
        copy=sockets.byte,
        latency=rdma.latency + sockets.latency,
    )


@cache
def server_byte_seconds() -> float:
    """Return a server's seconds per byte for update and push, if the server is the bottleneck of all models.

    Geometric mean of the values that wild's three times in table 1 imply.
    """
    return geometric_mean(row.wild / (row.batches * WORKERS * row.bytes) for row in PAPER.values())


@dataclass(frozen=True)
class Reading:
    """Interpretation of the paper's times: which numbers of its cluster are fitted to which of the times.

    - ``name``: name in the table.
    - ``fitted``: description of the fitted numbers.
    - ``one_server``: True: one time per byte for all models, fitted to wild (``server_byte_seconds``); False: a
      time per model, fitted to sync (``cluster``).
    - ``jitter``: jitter of compute times.
    - ``like_fcnn``: lr-rff takes fcnn's time per sample, since both have as many multiplications; otherwise the
      time of table 2's single node.
    """

    name: str
    fitted: str
    one_server: bool = False
    jitter: float = JITTER
    like_fcnn: bool = False

    def seconds(self, model: str, algorithm: Algorithm) -> float:
        """Return the seconds of a whole run."""
        row = PAPER[model]
        costs = _cluster(server_byte_seconds() - LINK_BYTE) if self.one_server else cluster(row, self.jitter)
        setup = job(row, costs, self.jitter, algorithm=algorithm)
        if self.like_fcnn and model == "lr-rff":
            setup = replace(setup, compute=replace(setup.compute, per_sample=PAPER["fcnn"].per_sample))
        return seconds(row, setup)

    def error(self, model: str, algorithm: Algorithm) -> float:
        """Return the relative error of the run's time against the paper's."""
        row = PAPER[model]
        return self.seconds(model, algorithm) / (row.sync if algorithm is Algorithm.SYNC else row.wild) - 1


_OF_SYNC, _OF_WILD = "sync's three seconds", "one number, to wild's three"
STEADY = Reading("per model, steady", _OF_SYNC, jitter=0.0)
JITTERING = Reading("per model", _OF_SYNC)
ONE_SERVER = Reading("one server", _OF_WILD, one_server=True)
LIKE_FCNN = Reading("one server, like fcnn", _OF_WILD, one_server=True, like_fcnn=True)
READINGS = (STEADY, JITTERING, ONE_SERVER, LIKE_FCNN)


def table_1() -> Iterator[str]:
    """Yield tables 1 and 2: the server's update is fitted to sync, wild is predicted; and speed-ups."""
    yield "| | update, GB/s | sync, s | wild, s | (paper) | sync / wild | (paper) | speed-up | (paper) |"
    yield "|" + "---|" * 9
    for name, row in PAPER.items():
        costs = cluster(row)
        sync, wild = (seconds(row, job(row, costs, algorithm=algorithm)) for algorithm in reversed(Algorithm))
        cells = (
            f"{1e-9 / costs.update:.1f}",
            f"{sync:.2f}",
            f"{wild:.2f}",
            f"{row.wild:.2f}",
            f"{sync / wild:.2f}×",
            f"{row.sync / row.wild:.2f}×",
            f"{row.single / sync:.2f}×, {row.single / wild:.2f}×",
            f"{row.sync_speedup:.2f}×, {row.wild_speedup:.2f}×",
        )
        yield f"| {name} | {' | '.join(cells)} |"


SETUPS = ((1, 1), (2, 1), (4, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4))  # slots, servers


def design(row: Row, **changes: Any) -> TrainingJob:
    """Return the same setup on the hardware as designed, in float32."""
    return job(row, DESIGN, model_bytes=row.bytes // 2, **changes)


def table_slots() -> Iterator[str]:
    """Yield a table of speed-ups over RDMA-wild with one slot (K = 1) and one server (S = 1), and mean
    staleness.

    The systems are the paper's cluster, and the hardware as designed in fanin.
    """
    names = [f"{name}, {system}" for system in ("cluster", "design") for name in PAPER]
    yield f"| K | S | {' | '.join(names)} |"
    yield "|" + "---|" * (len(names) + 2)
    jobs = [job(row, cluster(row)) for row in PAPER.values()] + [design(row) for row in PAPER.values()]
    base_seconds = [simulate(setup).seconds for setup in jobs]
    cells = [
        f"{base_time / simulate(replace(setup, algorithm=Algorithm.SYNC)).seconds:.2f}×"
        for base_time, setup in zip(base_seconds, jobs, strict=True)
    ]
    yield f"| sync | 1 | {' | '.join(cells)} |"
    for slots, servers in SETUPS:
        outcomes = [simulate(replace(setup, slots=slots, servers=servers)) for setup in jobs]
        cells = [
            f"{base_time / outcome.seconds:.2f}× ({outcome.mean_staleness:.0f})"
            for base_time, outcome in zip(base_seconds, outcomes, strict=True)
        ]
        yield f"| {slots} | {servers} | {' | '.join(cells)} |"


def table_tcp() -> Iterator[str]:
    """Yield figure 1: Sync-DSGD over RDMA and over TCP."""
    costs = tcp()
    yield "| | computing and pushing, µs | waiting, µs |"
    yield "|---|---|---|"
    rdma, tcp_breakdown = figure_1(cluster(PAPER["lr"])), figure_1(costs)
    for name, breakdown in (("RDMA", rdma), ("TCP", tcp_breakdown)):
        yield f"| {name} | {breakdown.training * 1e6:.0f} | {breakdown.wait * 1e6:.0f} |"
    yield f"| ratio | {tcp_breakdown.training / rdma.training:.2f}× | {tcp_breakdown.wait / rdma.wait:.2f}× |"
    yield f"| the paper's | {FIGURE_1['training']:.0f}× | {FIGURE_1['wait']:.0f}× |"


def table_calibrations() -> Iterator[str]:
    """Yield a table of readings of the paper's cluster, with the errors of table 1's times."""
    yield f"| reading | fitted | jitter | {' | '.join(f'{name}: sync, wild' for name in PAPER)} |"
    yield "|" + "---|" * (3 + len(PAPER))
    for reading in READINGS:
        cells = [
            ", ".join(f"{100 * reading.error(name, algorithm):+.0f} %" for algorithm in reversed(Algorithm))
            for name in PAPER
        ]
        yield f"| {reading.name} | {reading.fitted} | {100 * reading.jitter:.0f} % | {' | '.join(cells)} |"


if __name__ == "__main__":
    for table in (table_1, table_calibrations, table_slots, table_tcp):
        for line in table():
            print(line, flush=True)
        print()
