"""Accuracy of the asynchronous run, epoch by epoch: ``python -m fanin.sim.param_server.accuracy``.

Prints the tables of docs/systems/param-server-accuracy.md. Data and gradients are those of scikit-learn's
digits, or of MNIST from a folder. Times are those of the paper's model sizes and compute times (``paper``), so
that staleness is as in the paper's setup.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from fanin.base.errors import InputError
from fanin.evaluation.models import rdma_wild as paper
from fanin.param_server.facts import Algorithm
from fanin.sim.learning.learner import Training
from fanin.sim.learning.workloads import Workload, build, load
from fanin.sim.param_server.costs import COMPUTE_ONLY, Compute
from fanin.sim.param_server.events import run
from fanin.sim.param_server.recipes import DIGITS, Recipe, recipe_table, recipes_of
from fanin.sim.param_server.training import Outcome, TrainingJob

SETUPS: dict[str, dict[str, Any]] = {
    "sync": {"algorithm": Algorithm.SYNC},
    "wild": {},
    "K = 2": {"slots": 2},
    "K = 4": {"slots": 4},
    "S = 2": {"servers": 2},
    "S = 4": {"servers": 4},
    "K = 4, S = 4": {"slots": 4, "servers": 4},
}
SINGLE = "single node"
PLACES = ("design", "cluster")
DRAWN_EPOCHS = 5
TABLE_EPOCHS = (2, 5, 10, 20)  # epochs in the table, in addition to the last one


@dataclass(frozen=True)
class Study:
    """Training of a model with the times of the fitted ``cluster`` or of the hardware as designed.

    - ``model``: the model's name in the recipes.
    - ``place``: one of ``PLACES``.
    - ``data``: folder with MNIST; None: scikit-learn's digits.
    - ``changes``: changes to the recipe's job.
    """

    model: str
    place: str
    data: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recipe(self) -> Recipe:
        """Hyper-parameters of the study."""
        return recipes_of(self.data)[self.model]

    @property
    def epochs(self) -> int:
        """Epochs of each run."""
        return self.job(0).epochs

    def workload(self, seed: int) -> Workload:
        """Return the model with the data split and random features of ``seed``."""
        recipe = self.recipe
        data = load(self.data, seed)
        return build(
            self.model, data, decay=recipe.decay, features=recipe.features, gamma=recipe.gamma, seed=seed
        )

    def job(self, seed: int, **changes: Any) -> TrainingJob:
        """Return the job with the times of the paper's model."""
        figures, recipe = paper.PAPER[self.model], self.recipe
        hyper = {"lr": recipe.lr, "epochs": recipe.epochs, "warm_up": recipe.warm_up}
        fields = {**hyper, "seed": seed, **self.changes, **changes}
        if self.place == "design":
            return paper.design(figures, **fields)
        return paper.job(figures, paper.cluster(figures), **fields)

    def single(self, seed: int) -> TrainingJob:
        """Return the job of a single node, with mini-batches as large as those of all workers together.

        It has no times of links and servers, and no jitter or stragglers.
        """
        base = self.job(seed)
        batch = base.workers * base.batch
        compute = Compute(per_sample=base.compute.per_sample)
        return replace(
            base, workers=1, batch=batch, algorithm=Algorithm.SYNC, costs=COMPUTE_ONLY, compute=compute
        )


def outcomes(study: Study, seeds: Sequence[int], *, convergence: bool = True) -> dict[str, list[Outcome]]:
    """Return the runs of every seed for a single node, and for each of ``SETUPS``."""
    runs: dict[str, list[Outcome]] = {SINGLE: [], **{name: [] for name in SETUPS}}
    with _progress(study, len(seeds) * len(runs)) as bar:
        for seed in seeds:
            work = study.workload(seed)
            setups = {name: study.job(seed, **fields) for name, fields in SETUPS.items()}
            for name, setup in {SINGLE: study.single(seed), **setups}.items():
                runs[name].append(train(work, setup, convergence=convergence))
                bar.update()
    return runs


def outcomes_of_draws(study: Study, seeds: Sequence[int], draws: int) -> dict[str, list[Outcome]]:
    """Return the runs of every seed, ``draws`` times with the same data and other times of the workers.

    Two runs of a setup and seed differ only by these times, which decide the order of gradients. Runs are in
    the order of the seeds, the draws of a seed side by side. ``seeds`` must be contiguous: draw d of seed s
    uses the times of seed s + d · (number of seeds), so that no two runs share them.
    """
    runs: dict[str, list[Outcome]] = {name: [] for name in SETUPS}
    with _progress(study, len(seeds) * len(runs) * draws) as bar:
        for seed in seeds:
            work = study.workload(seed)
            for name, fields in SETUPS.items():
                for draw in range(draws):
                    times_seed = seed + draw * len(seeds)
                    setup = study.job(times_seed, **fields)
                    runs[name].append(train(work, setup, seed, convergence=False))
                    bar.update()
    return runs


def _progress(study: Study, runs: int) -> tqdm:
    return tqdm(total=runs, desc=f"{study.model}, {study.place}", unit="run", disable=None)


def train(work: Workload, setup: TrainingJob, seed: int | None = None, *, convergence: bool = True) -> Outcome:
    """Train on data shuffled by ``seed``, by default the job's seed, which also draws the workers' times."""
    seed = setup.seed if seed is None else seed
    learner = Training(work, workers=setup.workers, batch=setup.batch, seed=seed, convergence=convergence)
    return run(setup, learner)


def accuracies(runs: Sequence[Outcome]) -> list[float]:
    """Return the mean held-out accuracy after each epoch."""
    return [
        float(np.mean([epoch.measures.accuracy for epoch in epochs if epoch.measures]))
        for epochs in zip(*(run.epochs for run in runs), strict=True)
    ]


def farthest(first: Sequence[float], second: Sequence[float]) -> tuple[float, int]:
    """Return the largest difference of any epoch, and that epoch's number, from 1; the last one if several."""
    return max((abs(a - b), epoch) for epoch, (a, b) in enumerate(zip(first, second, strict=True), 1))


def table(study: Study, outcomes_by_setup: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield a table of accuracy by epoch, largest distances from sync and wild, staleness, and time."""
    epochs = [*(number for number in TABLE_EPOCHS if number < study.epochs), study.epochs]
    header = [
        f"{study.model}, {study.place}",
        *(f"epoch {n}" for n in epochs),
        "from sync",
        "from wild",
        "staleness",
        "seconds",
    ]
    yield f"| {' | '.join(header)} |"
    yield "|" + "---|" * len(header)
    for name, runs in outcomes_by_setup.items():
        mean = accuracies(runs)
        farthest_epochs = [farthest(mean, accuracies(outcomes_by_setup[base])) for base in ("sync", "wild")]
        mean_staleness = np.mean([run.mean_staleness for run in runs])
        staleness = sum((run.staleness for run in runs), start=Counter[int]())
        staleness_text = f"{mean_staleness:.1f}, at most {max(staleness)}"
        differences = [f"{100 * distance:.1f} % ({epoch})" for distance, epoch in farthest_epochs]
        cells = [*(f"{100 * mean[n - 1]:.1f} %" for n in epochs), *differences, staleness_text]
        yield f"| {name} | {' | '.join(cells)} | {np.mean([run.seconds for run in runs]):.3f} |"


def every_epoch(study: Study, outcomes_by_setup: Mapping[str, Sequence[Outcome]], draws: int) -> Iterator[str]:
    """Yield a table of mean accuracy by epoch, its distance from wild's, and the spread of wild's draws."""
    epochs = [f"epoch {number}" for number in range(1, study.epochs + 1)]
    yield f"| {study.model}, {study.place}, {draws} draws | {' | '.join(epochs)} | from wild |"
    yield "|" + "---|" * (study.epochs + 2)
    wild = accuracies(outcomes_by_setup["wild"])
    for name, runs in outcomes_by_setup.items():
        mean = accuracies(runs)
        distance, epoch = farthest(mean, wild)
        cells = " | ".join(f"{100 * accuracy:.1f} %" for accuracy in mean)
        yield f"| {name} | {cells} | {100 * distance:.1f} % ({epoch}) |"
    # Every ``draws``-th run has the same draw (see ``outcomes_of_draws``): means over the seeds, per draw.
    draws_of_wild = [accuracies(outcomes_by_setup["wild"][draw::draws]) for draw in range(draws)]
    spreads = (max(means) - min(means) for means in zip(*draws_of_wild, strict=True))  # per epoch
    spread = " | ".join(f"{100 * difference:.1f} %" for difference in spreads)
    yield f"| wild, between draws | {spread} | |"


def convergence(study: Study, outcomes_by_setup: Mapping[str, Sequence[Outcome]]) -> Iterator[str]:
    """Yield figure 8's measures after the last epoch of a convex model, averaged over the seeds."""
    yield f"| {study.model}, {study.place} | distance to w* | gradient's norm | loss above w*'s |"
    yield "|---|---|---|---|"
    for name, runs in outcomes_by_setup.items():
        last = [run.epochs[-1].measures for run in runs]
        triples = [astuple(m.convergence) for m in last if m and m.convergence]
        yield f"| {name} | {' | '.join(f'{value:.4f}' for value in np.mean(triples, axis=0))} |"


def _show(lines: Iterator[str]) -> None:
    print(*lines, "", sep="\n", flush=True)


def main() -> None:
    """Print the tables that the options select."""
    parser = argparse.ArgumentParser(prog="python -m fanin.sim.param_server.accuracy", description=__doc__)
    parser.add_argument("data", nargs="?", type=Path, help="folder with MNIST's idx files; without, the digits")
    parser.add_argument("--models", nargs="+", default=list(DIGITS), choices=list(DIGITS))
    parser.add_argument("--place", default="design", choices=PLACES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--draws", type=int, default=0, help="runs of each seed, with different times")
    parser.add_argument("--epochs", type=int, help=f"default: the recipe's; with --draws {DRAWN_EPOCHS}")
    parser.add_argument("--warm-up", type=int, help="epochs with one of K slots; default: the recipe's")
    args = parser.parse_args()
    default_epochs = DRAWN_EPOCHS if args.draws else None  # None: the recipe's
    options = {"epochs": args.epochs or default_epochs, "warm_up": args.warm_up}
    changes = {name: value for name, value in options.items() if value is not None}
    _show(recipe_table(recipes_of(args.data)))
    for model in args.models:
        study = Study(model, args.place, args.data, changes)
        if args.draws:
            _show(every_epoch(study, outcomes_of_draws(study, range(args.seeds), args.draws), args.draws))
            continue
        # Only a decay above 0 makes w* unique, and to compute w* of MNIST takes far longer than the runs.
        optimum = study.recipe.decay > 0 and args.data is None
        outcomes_by_setup = outcomes(study, range(args.seeds), convergence=optimum)
        _show(table(study, outcomes_by_setup))
        if optimum:
            _show(convergence(study, outcomes_by_setup))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        print(f"accuracy: error: {error}", file=sys.stderr)
        sys.exit(2)
