"""Benchmark of the scaling of RDMA-wild and Sync-DSGD on the paper's cluster, for lr, by the event model.

Each sweep varies one quantity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from fanin.evaluation.bench.result import Result
from fanin.evaluation.models.rdma_wild import PAPER, cluster, job, simulate
from fanin.evaluation.origins.graph import identifier
from fanin.param_server.facts import Algorithm
from fanin.sim.param_server.training import TrainingJob

WORKERS = (1, 2, 4, 8, 15, 32, 64)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
SIZES = (0.25, 0.5, 1, 2, 4, 8)  # factors of lr's model size and computing time
STRAGGLERS = (1, 2, 4, 8, 16)  # slowdown of a gradient in 20
_STRAGGLE_ODDS = 0.05


def measure() -> Iterator[Result]:
    """Yield the speed-up of each setup over a single node without stragglers, for the same samples."""
    row = PAPER["lr"]
    base = job(row, cluster(row))
    for quantity, setups in _sweeps(base).items():
        for value, setup in setups.items():
            for algorithm in Algorithm:
                speed_up = _speed_up(replace(setup, algorithm=algorithm))
                name, curve = f"sweep of {quantity}: {algorithm.value}, {value:g}", algorithm.value
                figure_id = identifier("ps.sweep", quantity, curve, f"{value:g}")
                yield Result(name, speed_up, "× one node", id=figure_id, curve=curve, x=value)


def _sweeps(base: TrainingJob) -> Mapping[str, Mapping[float, TrainingJob]]:
    """Return the training jobs of each sweep, by quantity and by its value."""
    compute, size = base.compute, base.model_bytes or 0
    return {
        "workers": {count: replace(base, workers=count) for count in WORKERS},
        "batch": {batch: replace(base, batch=batch) for batch in BATCHES},
        "size": {
            factor: replace(
                base,
                model_bytes=round(factor * size),
                compute=replace(compute, per_sample=factor * compute.per_sample),
            )
            for factor in SIZES
        },
        "stragglers": {
            factor: replace(
                base, compute=replace(compute, straggle_probability=_STRAGGLE_ODDS, straggle_factor=factor)
            )
            for factor in STRAGGLERS
        },
    }


def _speed_up(setup: TrainingJob) -> float:
    """Return the ratio of a single node's computing time for all applied gradients to the simulated time."""
    outcome = simulate(setup)
    return setup.compute.per_sample * setup.batch * outcome.tally.applied / outcome.seconds
