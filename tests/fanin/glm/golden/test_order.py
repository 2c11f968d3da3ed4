"""Places of columns on sparse nodes."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import GlmConfig, TrainShape
from fanin.glm.golden import layout
from fanin.glm.golden.order import data_order, frequency_order
from fanin.glm.golden.train import train
from tests.support import new_seed


def random_order(rng, columns=53, *, workers=2, engines=3, lanes=4):
    return frequency_order(rng.integers(0, 9, columns), workers=workers, engines=engines, lanes=lanes)


def test_popular_columns_share_chunks_which_are_dealt_to_workers_then_engines():
    order = frequency_order([0, 7, 2, 7, 9, 2, 1, 2, 0], workers=2, engines=2, lanes=2)
    # Chunks in order of frequency: (4, 1), (3, 2), (5, 7), (6, 0), (8,). Two for each engine.
    assert order.padded == 2 * 2 * 2 * 2
    at = dict(zip(order.places.tolist(), range(9), strict=True))
    assert [at.get(place) for place in range(16)] == [
        *(4, 1, 8, None),  # worker 0, engine 0
        *(5, 7, None, None),  # worker 0, engine 1
        *(3, 2, None, None),  # worker 1, engine 0
        *(6, 0, None, None),  # worker 1, engine 1
    ]


def test_the_datas_order_is_dealt_in_whole_chunks():
    order = data_order(9, workers=2, engines=1, lanes=2)
    # Chunks 0, 2, 4 on worker 0 and 1, 3 on worker 1.
    assert order.places.tolist() == [0, 1, 6, 7, 2, 3, 8, 9, 4]
    assert order.padded == 12


@pytest.mark.parametrize(
    ("columns", "workers", "engines", "lanes"), [(1, 1, 1, 2), (53, 2, 3, 4), (64, 4, 2, 8), (65, 4, 2, 8)]
)
def test_each_column_has_a_place_and_an_engine_its_share_of_the_popular_ones(columns, workers, engines, lanes):
    rng = np.random.default_rng(new_seed())
    counts = rng.integers(0, 9, columns)
    order = frequency_order(counts, workers=workers, engines=engines, lanes=lanes)
    assert order.columns == columns
    assert len(set(order.places.tolist())) == columns
    assert 0 <= order.places.min() <= order.places.max() < order.padded
    node = GlmConfig(name="order", engines=engines, lanes=lanes, depth=16)
    shape = TrainShape(node=node, workers=workers, samples=8, columns=order.padded, batch=8)
    ranked = sorted(range(columns), key=lambda column: (-counts[column], column))
    for rank, column in enumerate(ranked):
        chunk = rank // lanes
        place = layout.place_of(int(order.places[column]), shape, chunk % workers)
        assert place == (chunk // workers % engines, chunk // workers // engines, rank % lanes)


def test_samples_and_models_go_to_layout_space_and_back():
    rng = np.random.default_rng(new_seed())
    order = random_order(rng)
    codes = rng.integers(0, 16, (21, 53), dtype=np.uint8) * (rng.random((21, 53)) < 0.3).astype(np.uint8)
    permuted = order.permute(csr_matrix(codes))
    assert permuted.has_sorted_indices
    assert permuted.dtype == np.uint8
    dense = permuted.toarray()
    assert dense.shape == (21, order.padded)
    assert np.array_equal(dense[:, order.places], codes)
    assert dense.sum() == codes.sum()
    for model in (rng.integers(1, 1 << 20, 53).astype(np.int32), rng.random(53)):
        held = order.to_layout(model)
        assert held.dtype == model.dtype
        assert np.count_nonzero(held) == 53
        assert np.array_equal(order.to_data(held), model)
        np.testing.assert_allclose(dense @ held, codes @ model)


def test_without_clamps_every_order_trains_the_same_bits():
    rng = np.random.default_rng(new_seed())
    codes = rng.integers(0, 16, (37, 53), dtype=np.uint8) * (rng.random((37, 53)) < 0.3).astype(np.uint8)
    labels = fixed.labels(rng.integers(0, 2, 37).astype(float), Loss.LOGISTIC, 24)
    node = GlmConfig(name="order", engines=3, lanes=4, depth=16)
    shape = TrainShape(node=node, workers=2, samples=37, columns=53, batch=16)
    run = {"loss": Loss.LOGISTIC, "rate": fixed.learning_rate(0.1), "epochs": 3}
    bias = 17
    plain = list(train(codes, labels, shape, **run, decay=fixed.Decay(8, spared=bias)))
    for order in (random_order(rng), data_order(53, workers=2, engines=3, lanes=4)):
        dealt = replace(shape, columns=order.padded)
        decay = fixed.Decay(8, spared=int(order.places[bias]))
        epochs = train(order.permute(csr_matrix(codes)), labels, dealt, **run, decay=decay)
        for ours, theirs in zip(epochs, plain, strict=True):
            assert np.array_equal(order.to_data(ours.model), theirs.model)
            assert ours.clamps == theirs.clamps == 0
    assert plain[-1].model.any()


def test_shapes_that_do_not_fit_are_refused():
    order = random_order(np.random.default_rng(new_seed()))
    with pytest.raises(ValueError, match="features must have 53 columns, not 5"):
        order.permute(csr_matrix((2, 5), dtype=np.uint8))
    with pytest.raises(ValueError, match=r"a model of the data must have the shape \(53,\), not \(5,\)"):
        order.to_layout(np.zeros(5))
    with pytest.raises(
        ValueError, match=r"a model of the layout space must have the shape \(72,\), not \(53,\)"
    ):
        order.to_data(np.zeros(53))
    with pytest.raises(ValueError, match="must be at least 1, not 0, 1, 1, 8"):
        data_order(0, workers=1, engines=1, lanes=8)
