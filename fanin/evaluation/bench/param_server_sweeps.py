"""How RDMA-wild and Sync-DSGD scale on the paper's cluster, by the event model: lr, one thing changed."""

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
SIZES = (0.25, 0.5, 1, 2, 4, 8)  # of the model and of its computing, over lr's
STRAGGLERS = (1, 2, 4, 8, 16)  # times that a gradient in 20 takes
_ODDS = 0.05


def measure() -> Iterator[Result]:
    """Yield each setup's speed-up: a single node's time for the samples, without stragglers, over the run's."""
    row = PAPER["lr"]
    base = job(row, cluster(row))
    for what, setups in _sweeps(base).items():
        for value, setup in setups.items():
            for algorithm in Algorithm:
                speed_up = _speed_up(replace(setup, algorithm=algorithm))
                name, curve = f"sweep of {what}: {algorithm.value}, {value:g}", algorithm.value
                short = identifier("ps.sweep", what, curve, f"{value:g}")
                yield Result(name, speed_up, "× one node", id=short, curve=curve, x=value)


def _sweeps(base: TrainingJob) -> Mapping[str, Mapping[float, TrainingJob]]:
    compute, size = base.compute, base.model_bytes or 0
    return {
        "workers": {count: replace(base, workers=count) for count in WORKERS},
        "batch": {batch: replace(base, batch=batch) for batch in BATCHES},
        "size": {
            times: replace(
                base,
                model_bytes=round(times * size),
                compute=replace(compute, per_sample=times * compute.per_sample),
            )
            for times in SIZES
        },
        "stragglers": {
            times: replace(base, compute=replace(compute, straggle_probability=_ODDS, straggle_factor=times))
            for times in STRAGGLERS
        },
    }


def _speed_up(setup: TrainingJob) -> float:
    outcome = simulate(setup)
    return setup.compute.per_sample * setup.batch * outcome.tally.applied / outcome.seconds
