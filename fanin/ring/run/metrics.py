"""Content of ``run.json`` for a run of ``fanin ring train``."""

from __future__ import annotations

from typing import Any

from fanin.ring.run.backend import Result
from fanin.ring.run.setup import Setup
from fanin.runs.output import finite
from fanin.sim.learning.learner import Measures
from fanin.sim.learning.references import References

Metrics = dict[str, Any]

DIFFERENT = "the weights are not the golden model's"
_MEASURES = ("loss", "accuracy", "train_accuracy")
# Names of a counter: on ring nodes, and on INCEPTIONN's hosts.
_SENT, _RETRANSMITTED = ("sent", "segments"), ("retransmitted", "repeated")


def metrics_of(setup: Setup, result: Result, references: References) -> Metrics:
    """Return run.json of a finished run; ``references``: the same training in NumPy from the first epoch on."""
    exact = result.state.equals(references.final)
    epochs = [
        {
            "epoch": epoch.number,
            "simulated_seconds": epoch.seconds,
            **_measures(epoch.measures),
            "binary32": _measures(references.binary32[epoch.number - 1]),
            "binary64": _measures(references.binary64[epoch.number - 1]),
        }
        for epoch in result.epochs
    ]
    metrics = {
        "error": None if exact else DIFFERENT,
        **{name: epochs[-1][name] for name in _MEASURES},
        "bit_exact": exact,
        **_progress(setup, setup.steps),
        "simulated_seconds": result.seconds,
        "iteration": {"seconds": sum(result.iteration.values()), **result.iteration},
        "distance": references.distance,
        "frames": _total(result, _SENT),
        "retransmitted": _total(result, _RETRANSMITTED),
        "counters": list(result.counters),
        "traffic": result.traffic,
        "epochs": epochs,
        **_request(setup),
    }
    return finite(metrics)


def failure_of(setup: Setup, error: str, steps: int) -> Metrics:
    """Return run.json of a failed run in which all nodes had made ``steps`` steps."""
    return {"error": error, **_progress(setup, steps), **_request(setup)}


def _request(setup: Setup) -> Metrics:
    return {
        "resumed": str(setup.options.resume) if setup.options.resume else None,
        "first_epoch": setup.state.step // setup.data.steps + 1,
        "configuration": setup.configuration,
    }


def _progress(setup: Setup, steps: int) -> Metrics:
    """Return the count of steps and all-reduces complete on all nodes."""
    return {"all_reduces": steps * setup.backend.exchanges, "steps": steps, "steps_asked": setup.steps}


def _measures(measures: Measures) -> Metrics:
    return {name: getattr(measures, name) for name in _MEASURES}


def _total(result: Result, names: tuple[str, ...]) -> int | None:
    """Return the sum over nodes of the counter with one of these names; None without counters."""
    if not result.counters:
        return None
    return sum(counters[name] for counters in result.counters for name in names if name in counters)
