"""A run of ``fanin ring train`` as JSON: run.json."""

from __future__ import annotations

from typing import Any

from fanin.cli.output import finite
from fanin.cli.ring.setup import Setup
from fanin.sim.learning.learner import Measures
from fanin.sim.ring.training import Outcome, References

Metrics = dict[str, Any]

_MEASURES = ("loss", "accuracy", "train_accuracy")
DIFFERENT = "the weights are not the golden model's"


def metrics_of(setup: Setup, outcome: Outcome, beside: References) -> Metrics:
    """Of a run that has come to its end; ``beside`` it the same training in NumPy, from its first epoch on."""
    exact = outcome.state.equals(beside.final)
    epochs = [
        {
            "epoch": epoch.number,
            "simulated_seconds": epoch.seconds,
            **_measures(epoch.measures),
            "binary32": _measures(beside.binary32[epoch.number - 1]),
            "binary64": _measures(beside.binary64[epoch.number - 1]),
        }
        for epoch in outcome.epochs
    ]
    counters = outcome.counters
    found = {
        "error": None if exact else DIFFERENT,
        **{name: epochs[-1][name] for name in _MEASURES},
        "bit_exact": exact,
        **_done(setup, setup.steps),
        "simulated_seconds": outcome.seconds,
        "iteration": _iteration(setup, outcome),
        "distance": beside.distance,
        "frames": sum(each["sent"] for each in counters) if counters else None,
        "retransmitted": sum(each["retransmitted"] for each in counters) if counters else None,
        "counters": counters,
        "epochs": epochs,
        **_asked(setup),
    }
    return finite(found)


def failure_of(setup: Setup, error: str, steps: int) -> Metrics:
    """Of a run that has ended with an error, when all nodes had made so many steps."""
    return {"error": error, **_done(setup, steps), **_asked(setup)}


def _asked(setup: Setup) -> Metrics:
    return {
        "resumed": str(setup.resumed) if setup.resumed else None,
        "first_epoch": setup.state.step // setup.data.steps + 1,
        "configuration": setup.configuration,
    }


def _done(setup: Setup, steps: int) -> Metrics:
    """All-reduces that are complete on all nodes; each leaves a sum on every node."""
    layers = setup.job.training.network.layers
    return {"all_reduces": steps * layers, "steps": steps, "steps_asked": setup.steps}


def _measures(measures: Measures) -> Metrics:
    return {name: getattr(measures, name) for name in _MEASURES}


def _iteration(setup: Setup, outcome: Outcome) -> Metrics:
    """The mean iteration at node 0, and what it consists of, in seconds.

    ``posting`` is what is left: descriptors written, the status read.
    """
    counts, batch, profile = setup.job.training.network.counts, setup.job.training.batch, setup.job.profile
    parts = {
        "forward": sum(profile.forward(count, batch) for count in counts),
        "backward": sum(profile.backward(count, batch) for count in counts),
        "exposed": outcome.times[0].blocked / setup.steps,
        "update": sum(profile.update(count) for count in counts),
    }
    whole = outcome.step_seconds
    return {"seconds": whole, **parts, "posting": max(whole - sum(parts.values()), 0.0)}
