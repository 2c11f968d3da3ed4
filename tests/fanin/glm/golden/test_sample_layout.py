"""Layout of samples: memory of sparse ones, equal bits, and what auto takes."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, ColumnRule, SparseChoice
from fanin.glm.golden.float64 import train_float64
from fanin.glm.golden.sample_layout import choose_layout
from fanin.glm.golden.train import train
from fanin.sim.glm import data
from tests.support import new_seed

NODE = replace(PRESETS["tiny"], engines=2, depth=4, lanes=2)
RUN = {"node": NODE, "workers": 2, "batch": 16, "precision": 4, "rule": ColumnRule.FREQUENCY}


def test_memory_and_time_follow_the_non_zeros():
    """Dense codes of these samples have 1.6 GB, float64 8 times as many."""
    shape = replace(data.TABLE_II["avazu"], samples=2_000, features=800_000)
    node = replace(PRESETS["u280"], depth=4096)
    tracemalloc.start()
    raw = data.synthetic("avazu", shape, seed=new_seed())
    found = data.prepare(raw, precision=4, bias=True, test=0.2)
    layout, placed = choose_layout(
        found.features,
        node=node,
        workers=2,
        batch=64,
        precision=4,
        choice=SparseChoice.AUTO,
        rule=ColumnRule.FREQUENCY,
        is_csr=found.is_csr,
    )
    labels = fixed.labels(found.labels, Loss.LOGISTIC, node.frac)
    run = {"loss": Loss.LOGISTIC, "epochs": 1}
    (epoch,) = train(placed, labels, layout.shape, rate=fixed.rate_of(8.0, 64), **run)
    (exact,) = train_float64(found.features, found.labels, precision=4, batch=64, rate=0.125, **run)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert layout.is_sparse
    assert placed.nnz == 1_600 * 16
    assert len(layout.to_data(epoch.model)) == len(exact) == 800_001
    assert peak < 150e6


def samples(fill):
    """CSR codes of 40 samples in which a share of the 32 columns is never 0, and the others always."""
    rng = np.random.default_rng(new_seed())
    codes = rng.integers(1, 16, (40, 32)).astype(np.uint8)
    codes[:, round(fill * 32) :] = 0
    return sparse.csr_matrix(codes[:, rng.permutation(32)])


@pytest.mark.parametrize(("columns", "is_sparse"), [(14, True), (16, False), (32, False)])
def test_auto_takes_fewer_than_half_of_the_cycles(columns, is_sparse):
    codes = samples(columns / 32)
    layout, placed = choose_layout(codes, **RUN, choice=SparseChoice.AUTO, is_csr=True)
    assert layout.is_sparse == is_sparse
    assert layout.totals.words.mean() / 5 == 4 * columns / 2 / 4  # planes · chunks / engines
    assert layout.dense_words == 5 * 4 * 4
    assert layout.order is None or np.array_equal(placed.toarray()[:, layout.order.places], codes.toarray())


def test_auto_takes_dense_samples_for_arrays():
    codes = samples(0.1).toarray()
    layout, placed = choose_layout(codes, **RUN, choice=SparseChoice.AUTO, is_csr=False)
    assert (layout.is_sparse, layout.text()) == (False, "")
    assert placed is codes


def test_ideal_cycles_are_those_of_the_busiest_engine_here():
    layout, _ = choose_layout(samples(0.1), **RUN, choice=SparseChoice.ON, is_csr=True)
    # 3 columns are 2 chunks, of workers 0 and 1; the others have an EMPTY a micro-batch.
    assert layout.totals.items.tolist() == [20, 5, 20, 5]
    assert [layout.cycles_ideal(here) for here in ((), (0,), (1,))] == [20] * 3
    assert [layout.wordless_items(worker) for worker in (0, 1)] == [5, 5]
