"""Rows in float64, the paper's, in place of float32, fanin's: the same run in either, gradient by gradient."""

import numpy as np
import pytest

from fanin.evaluation.models.rdma_wild import PAPER
from fanin.param_server.golden import update
from fanin.sim.learning.learner import Training
from fanin.sim.learning.workloads import build, load
from fanin.sim.param_server.costs import DESIGN, Compute
from fanin.sim.param_server.events import run
from fanin.sim.param_server.recipes import DIGITS
from fanin.sim.param_server.training import TrainingJob
from tests.support import slow

WORKERS = 15


def replay(learner, order, step, epoch, kind):
    """w behind the gradients of workers in this ``order``, each of the row behind its worker's last one.

    And its measures behind each ``epoch``, a number of gradients. Rows and gradients are of one ``kind``.
    """
    w = learner.initial().astype(kind)
    models, counts, measured = [w] * WORKERS, [0] * WORKERS, []
    for number, worker in enumerate(order, 1):
        gradient = learner.gradient(worker, counts[worker], models[worker]).astype(kind)
        w = update(w, gradient, step) if kind is np.float32 else w - gradient * step
        models[worker], counts[worker] = w, counts[worker] + 1
        if number % epoch == 0:
            measured.append(learner.measure(w))
    return w, measured


@pytest.mark.parametrize(("model", "epochs"), [("lr", 3), *slow(("lr", 60), ("lr-rff", 50), ("fcnn", 60))])
def test_float64_rows_change_no_epochs_accuracy(model, epochs):
    recipe = DIGITS[model]
    work = build(model, load(None, 0), decay=recipe.decay, features=recipe.features, gamma=recipe.gamma)
    learner = Training(work, workers=WORKERS, batch=8, seed=0, convergence=False)
    compute = Compute(per_sample=PAPER[model].per_sample, jitter=0.1)
    job = TrainingJob(workers=WORKERS, lr=recipe.lr, epochs=epochs, compute=compute, costs=DESIGN)
    outcome = run(job, learner)
    order = [span.worker for span in outcome.server_spans if span.kind == "update"]
    epoch = WORKERS * learner.batches
    w, narrow = replay(learner, order, np.float32(recipe.lr / WORKERS), epoch, np.float32)
    assert np.array_equal(w, outcome.w), "the replay is not the run"
    wide_w, wide = replay(learner, order, recipe.lr / WORKERS, epoch, np.float64)
    assert 0 < np.abs(w - wide_w).max() < 1e-4
    assert max(abs(a.accuracy - b.accuracy) for a, b in zip(narrow, wide, strict=True)) <= 1 / 450
    losses = [abs(a.loss / b.loss - 1) for a, b in zip(narrow, wide, strict=True)]
    print(f"{model}: w {np.abs(w - wide_w).max():.1e}, loss {max(losses):.1e}")
    assert max(losses) < 1e-4
