"""Accuracy of the asynchronous run on scikit-learn's digits: ``python -m fanin.sim.models.wild_digits``.

Prints the tables of docs/param-server.md. Data and gradients are the digits'; times are those of the paper's
model sizes and computing (``wild_paper``), so that staleness is what it would be there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from fanin.sim.models import wild_paper
from fanin.sim.models.learning import Training
from fanin.sim.models.wild import run
from fanin.sim.models.wild_costs import ALONE, Compute
from fanin.sim.models.wild_job import Algorithm, Job, Outcome
from fanin.sim.models.workloads import GAMMA, Workload, build, load


@dataclass(frozen=True)
class Recipe:
    """Hyper-parameters for digits: α, λ, epochs, those in which K slots are one, and lr-rff's features."""

    rate: float
    decay: float
    epochs: int
    warm_up: int
    features: int = 1


RECIPES = {
    "lr": Recipe(0.25, 1e-4, 60, 5),
    "lr-rff": Recipe(2.0, 1e-4, 50, 5, features=1000),
    "fcnn": Recipe(0.1, 0.0, 60, 40),
}


def recipes() -> Iterator[str]:
    """The hyper-parameters as a table."""
    yield "| model | rate α | decay λ | epochs | warm-up | features |"
    yield "|---|---|---|---|---|---|"
    for model, recipe in RECIPES.items():
        features = f"{recipe.features}, gamma {GAMMA}" if model == "lr-rff" else ""
        yield f"| {model} | {recipe.rate} | {recipe.decay} | {recipe.epochs} | {recipe.warm_up} | {features} |"


SETUPS: dict[str, dict[str, Any]] = {
    "sync": {"algorithm": Algorithm.SYNC},
    "wild": {},
    "K = 2": {"slots": 2},
    "K = 4": {"slots": 4},
    "S = 2": {"servers": 2},
    "S = 4": {"servers": 4},
    "K = 4, S = 4": {"slots": 4, "servers": 4},
}
PLACES = ("design", "cluster")
DRAWN_EPOCHS = 5
SHOWN = (2, 5, 10, 20)  # epochs, besides the last one


def workload(model: str, seed: int) -> Workload:
    """A model on the digits of this split, with its recipe."""
    recipe = RECIPES[model]
    return build(model, load(None, seed), decay=recipe.decay, features=recipe.features, seed=seed)


def job(model: str, place: str, seed: int, **changes: Any) -> Job:
    """Its run with the times of the paper's model, on the fitted ``cluster`` or the hardware as designed."""
    row, recipe = wild_paper.PAPER[model], RECIPES[model]
    fields = {"rate": recipe.rate, "epochs": recipe.epochs, "warm_up": recipe.warm_up, "seed": seed} | changes
    if place == "design":
        return wild_paper.design(row, **fields)
    return wild_paper.job(row, wild_paper.cluster(row), **fields)


def single(work: Workload, model: str, seed: int) -> Outcome:
    """One node alone, with mini-batches as large as those of all workers together."""
    base = job(model, "design", seed)
    batch = base.workers * base.batch
    compute = Compute(per_sample=base.compute.per_sample)
    changed = replace(base, workers=1, batch=batch, algorithm=Algorithm.SYNC, costs=ALONE, compute=compute)
    return run(changed, Training(work, workers=1, batch=batch, seed=seed))


def outcomes(
    model: str, place: str, seeds: Sequence[int], **changes: Any
) -> Iterator[tuple[str, list[Outcome]]]:
    """The runs of every seed for a single node, then for each of ``SETUPS``; ``changes`` are the job's."""
    works = {seed: workload(model, seed) for seed in seeds}
    yield "single node", [single(work, model, seed) for seed, work in works.items()]
    for name, fields in SETUPS.items():
        setup = changes | fields
        yield name, [trained(work, job(model, place, seed, **setup)) for seed, work in works.items()]


def drawn(model: str, place: str, seeds: Sequence[int], draws: int) -> Iterator[tuple[str, list[Outcome]]]:
    """The first epochs of every seed, with its data ``draws`` times: only the workers' times are others.

    They decide in which order gradients come, and that is all that differs between two runs of one setup.
    """
    works = {seed: workload(model, seed) for seed in seeds}
    for name, fields in SETUPS.items():
        found = []
        for seed, work in works.items():
            setup = replace(job(model, place, seed), epochs=DRAWN_EPOCHS, **fields)
            times = (seed + draw * len(seeds) for draw in range(draws))
            found += [trained(work, replace(setup, seed=time), seed, convergence=False) for time in times]
        yield name, found


def trained(work: Workload, setup: Job, seed: int | None = None, *, convergence: bool = True) -> Outcome:
    """A run on data that are shuffled by ``seed``, or the job's own."""
    seed = setup.seed if seed is None else seed
    learner = Training(work, workers=setup.workers, batch=setup.batch, seed=seed, convergence=convergence)
    return run(setup, learner)


def accuracies(runs: Sequence[Outcome]) -> list[float]:
    """Mean held-out accuracy behind each epoch."""
    return [
        float(np.mean([epoch.measures.accuracy for epoch in epochs if epoch.measures]))
        for epochs in zip(*(run.epochs for run in runs), strict=True)
    ]


def farthest(one: Sequence[float], other: Sequence[float]) -> tuple[float, int]:
    """The largest difference of any epoch, and of which."""
    return max((abs(a - b), epoch) for epoch, (a, b) in enumerate(zip(one, other, strict=True), 1))


def table(model: str, place: str, found: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Accuracy by epoch, how far it is from sync's and wild's at most, staleness, and the run's time."""
    epochs = [*(number for number in SHOWN if number < RECIPES[model].epochs), RECIPES[model].epochs]
    heads = [
        f"{model}, {place}",
        *(f"epoch {n}" for n in epochs),
        "from sync",
        "from wild",
        "staleness",
        "seconds",
    ]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for name, runs in found.items():
        mean = accuracies(runs)
        far = [farthest(mean, accuracies(found[base])) for base in ("sync", "wild")]
        staleness = sum((run.staleness for run in runs), start=type(runs[0].staleness)())
        age = f"{np.mean([run.mean_staleness for run in runs]):.1f}, at most {max(staleness)}"
        differences = [f"{100 * most:.1f} % ({epoch})" for most, epoch in far]
        cells = [*(f"{100 * mean[n - 1]:.1f} %" for n in epochs), *differences, age]
        yield f"| {name} | {' | '.join(cells)} | {np.mean([run.seconds for run in runs]):.3f} |"


def first_epochs(model: str, place: str, found: Mapping[str, Sequence[Outcome]], draws: int) -> Iterator[str]:
    """Mean accuracy of the first epochs, how far it is from wild's, and wild's draws from one another."""
    epochs = [f"epoch {number}" for number in range(1, DRAWN_EPOCHS + 1)]
    yield f"| {model}, {place}, {draws} draws | {' | '.join(epochs)} | from wild |"
    yield "|" + "---|" * (DRAWN_EPOCHS + 2)
    wild = accuracies(found["wild"])
    for name, runs in found.items():
        mean = accuracies(runs)
        most, epoch = farthest(mean, wild)
        cells = " | ".join(f"{100 * each:.1f} %" for each in mean)
        yield f"| {name} | {cells} | {100 * most:.1f} % ({epoch}) |"
    one_draw = [accuracies(found["wild"][draw::draws]) for draw in range(draws)]
    spread = " | ".join(f"{100 * (max(each) - min(each)):.1f} %" for each in zip(*one_draw, strict=True))
    yield f"| wild, between draws | {spread} | |"


def convergence(model: str, place: str, found: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Figure 8's measures behind the last epoch of a convex model, mean of the seeds."""
    yield f"| {model}, {place} | distance to w* | gradient's norm | loss above w*'s |"
    yield "|---|---|---|---|"
    for name, runs in found.items():
        last = [run.epochs[-1].measures for run in runs]
        triples = [astuple(m.convergence) for m in last if m and m.convergence]
        yield f"| {name} | {' | '.join(f'{value:.4f}' for value in np.mean(triples, axis=0))} |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m fanin.sim.models.wild_digits", description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    parser.add_argument("--place", default="design", choices=PLACES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=0, help="of the first epochs, each with other times")
    parser.add_argument("--warm-up", type=int, help="epochs in which K slots are one, for the recipe's")
    args = parser.parse_args()
    changes = {} if args.warm_up is None else {"warm_up": args.warm_up}
    print(*recipes(), "", sep="\n")
    for model in args.models:
        if args.draws:
            found = dict(drawn(model, args.place, range(args.seeds), args.draws))
            print(*first_epochs(model, args.place, found, args.draws), "", sep="\n", flush=True)
            continue
        found = dict(outcomes(model, args.place, range(args.seeds), **changes))
        for show in (table, convergence) if RECIPES[model].decay else (table,):
            for line in show(model, args.place, found):
                print(line, flush=True)
            print()
