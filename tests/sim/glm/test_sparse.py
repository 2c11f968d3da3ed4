"""Sparse nodes in RTL: the golden model's bits for any fill, whatever every link does; their cycles."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import PRESETS, TrainShape
from fanin.glm.golden.lists import totals
from fanin.glm.golden.order import data_order, frequency_order
from fanin.glm.golden.sample_layout import SampleLayout
from fanin.glm.golden.train import train
from fanin.hbm import MEMORIES
from fanin.link import LinkConfig
from fanin.sim.cosim.simulator import SimulationFailed
from fanin.sim.glm import memories
from fanin.sim.glm.cosim import Cosim
from fanin.sim.glm.time import EpochTime
from fanin.sim.network import NetworkConfig
from fanin.wire.aggregation import Protocol
from tests.support import new_seed, slow

pytestmark = pytest.mark.verilator

NODE = replace(PRESETS["tiny"], engines=2, depth=64, sample_fifo=256, sparse=True)  # as in test_train_sparse.py
WORKERS = 2
START = 73  # cycles of an epoch's start in the time model; later epochs of a run follow without it
FAULTS = LinkConfig(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.02)


@pytest.fixture(scope="module")
def cosim():
    return Cosim(NODE, workers=WORKERS, quiet=True)


@pytest.fixture(scope="module")
def wide():
    """Nodes with slots for a mini-batch, and a MAC that takes a frame in a cycle, as the time model has."""
    sizes = {"depth": 256, "sample_fifo": 4096, "slots": 64, "mac_width": 512}
    return Cosim(replace(NODE, **sizes), workers=WORKERS, quiet=True)


def random_samples(rng, samples, columns, precision, fill):
    """Codes of which a share of about ``fill`` is not zero, popular columns more often."""
    popularity = rng.random(columns) ** 2 * 2 * fill if fill < 1 else np.ones(columns)
    codes = rng.integers(1, 1 << precision, (samples, columns))
    return sparse.csr_matrix((codes * (rng.random((samples, columns)) < popularity)).astype(np.uint8))


@pytest.fixture(scope="module")
def decaying():
    return Cosim(replace(NODE, l2=True), workers=WORKERS, quiet=True)


def check(
    cosim,
    features,
    rng,
    *,
    batch=16,
    precision=3,
    epochs=2,
    loss=Loss.LOGISTIC,
    network=None,
    order=None,
    decay=fixed.NO_DECAY,
):
    """Train in RTL and in the golden model; return the run."""
    size = {"workers": cosim.workers, "engines": cosim.config.engines, "lanes": cosim.config.lanes}
    order = order or frequency_order(np.asarray((features != 0).sum(axis=0)).ravel(), **size)
    samples = features.shape[0]
    shape = TrainShape(
        node=cosim.config,
        workers=cosim.workers,
        samples=samples,
        columns=order.padded,
        batch=batch,
        precision=precision,
    )
    targets = rng.normal(size=samples) if loss is Loss.LINEAR else rng.integers(0, 2, samples)
    labels = fixed.labels(targets, loss, cosim.config.frac)
    options = {
        "loss": loss,
        "rate": fixed.learning_rate(0.5 / batch),
        "epochs": epochs,
        "decay": SampleLayout(shape, features.shape[1], order=order).decay_on_nodes(decay),
    }
    placed = order.permute(features)
    if not cosim.config.sparse:
        placed = placed.toarray()
    run = cosim.train(shape, placed, labels, **options, network=network)
    golden = [epoch.model for epoch in train(placed, labels, shape, **options)]
    for model, expected in zip(run.models, golden, strict=True):
        np.testing.assert_array_equal(model, expected)
    return run, shape, placed, labels


@pytest.mark.parametrize("fill", [0, 0.1, 1, *slow(0.01, 0.3, 0.7)])
def test_every_fill_gives_the_golden_models_bits(cosim, fill):
    rng = np.random.default_rng(new_seed())
    features = random_samples(rng, 61, 200, 3, fill)
    check(cosim, features, rng)


@pytest.mark.parametrize("precision", [1, *slow(*range(2, 9))])
def test_every_precision_gives_the_golden_models_bits(cosim, precision):
    rng = np.random.default_rng(new_seed())
    check(cosim, random_samples(rng, 45, 120, precision, 0.05), rng, precision=precision)


@pytest.mark.parametrize("loss", [Loss.HINGE, *slow(Loss.LINEAR)])
def test_every_loss_gives_the_golden_models_bits(cosim, loss):
    rng = np.random.default_rng(new_seed())
    check(cosim, random_samples(rng, 45, 120, 3, 0.1), rng, loss=loss)


@pytest.mark.parametrize("batch", [8, *slow(24, 64, 1024)])
@pytest.mark.parametrize("columns", [1, *slow(9, 256)])
def test_one_chunk_empty_workers_and_short_mini_batches(cosim, batch, columns):
    """One column is on worker 0 alone: the lists of worker 1 have only marks of empty micro-batches."""
    rng = np.random.default_rng(new_seed())
    check(cosim, random_samples(rng, 61, columns, 3, 0.3), rng, batch=batch)


@pytest.mark.parametrize("seed", [0, *slow(*range(1, 20))])
def test_faults_change_no_bit(cosim, seed):
    rng = np.random.default_rng(seed)
    network = NetworkConfig(link=FAULTS, seed=seed)
    run, *_ = check(cosim, random_samples(rng, 61, 200, 3, 0.1), rng, epochs=5, network=network)
    assert sum(counters["retransmissions"] for counters in run.counters) > 0


@pytest.mark.slow
@pytest.mark.parametrize("fill", [0.02, 0.1, 0.5])
@pytest.mark.parametrize("precision", [4, 1])
def test_a_mini_batch_takes_the_models_time(wide, fill, precision):
    """Items of the busiest engine, the network's round trip, and a constant."""
    rng = np.random.default_rng(3)
    features = random_samples(rng, 640, 3000, precision, fill)
    run, shape, placed, _ = check(wide, features, rng, batch=64, precision=precision)
    found = [totals(placed, shape, worker) for worker in range(WORKERS)]
    items = np.max([each.mini_batch_items for each in found], axis=(0, 1))
    model = EpochTime(shape=shape, items=items.tolist())
    assert run.cycles[1] == pytest.approx(model.cycles - START, rel=0.03)
    words = np.max([each.mini_batch_words for each in found], axis=(0, 1)).sum()
    marks = np.max([each.final_writes for each in found], axis=(0, 1)).sum()
    waits = len(items) * (model.allreduce_cycles + 34 + precision)
    assert run.cycles[1] <= 1.05 * (words + marks + waits)


@pytest.mark.slow
def test_lists_are_read_from_hbm_without_a_word_missed():
    """The nodes' ports share pseudo-channels with refreshes; bits stay the golden model's."""
    cosim = Cosim(NODE, workers=1, hbm=MEMORIES["hbm2"], quiet=True)
    rng = np.random.default_rng(new_seed())
    run, *_ = check(cosim, random_samples(rng, 61, 100, 3, 0.3), rng)
    assert run.counters[0]["stall_no_word"] > 0


def test_the_order_of_columns_changes_no_bit_without_clamps(cosim):
    """Frequency and the data's order, and dense nodes, give the same weights in the data's order."""
    rng = np.random.default_rng(new_seed())
    features = random_samples(rng, 61, 200, 3, 0.1)
    size = {"workers": WORKERS, "engines": NODE.engines, "lanes": NODE.lanes}
    orders = [data_order(200, **size), frequency_order(np.asarray((features != 0).sum(axis=0)).ravel(), **size)]
    seed = new_seed()
    models = []
    for order in orders:
        run, *_ = check(cosim, features, np.random.default_rng(seed), order=order)
        models.append(order.to_data(run.models[-1]))
    np.testing.assert_array_equal(*models)
    labels = fixed.labels(np.random.default_rng(seed).integers(0, 2, 61), Loss.LOGISTIC, NODE.frac)
    shape = TrainShape(
        node=replace(NODE, sparse=False), workers=WORKERS, samples=61, columns=200, batch=16, precision=3
    )
    options = {"loss": Loss.LOGISTIC, "rate": fixed.learning_rate(0.5 / 16), "epochs": 2}
    *_, dense = train(features.toarray(), labels, shape, **options)
    np.testing.assert_array_equal(models[0], dense.model)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [8, 32])
@pytest.mark.parametrize("fill", [0, 0.05, 0.5])
def test_weights_decay_as_in_dense_rtl(decaying, fill, batch):
    """The last column, as a bias, does not decay. No sum is clamped."""
    rng = np.random.default_rng(new_seed())
    features = random_samples(rng, 61, 200, 3, fill)
    decay, seed = fixed.Decay(4, spared=199), new_seed()
    network = NetworkConfig(link=FAULTS, seed=seed)
    dense = Cosim(replace(decaying.config, sparse=False), workers=WORKERS, quiet=True)
    size = {"workers": WORKERS, "engines": NODE.engines, "lanes": NODE.lanes}
    by_frequency = frequency_order(np.asarray((features != 0).sum(axis=0)).ravel(), **size)
    models = []
    for cosim, order in ((decaying, by_frequency), (dense, data_order(200, **size))):
        given = np.random.default_rng(seed)
        run, *_ = check(cosim, features, given, batch=batch, decay=decay, network=network, order=order)
        models.append(order.to_data(run.models[-1]))
    np.testing.assert_array_equal(*models)


@pytest.mark.parametrize("fault", ["chunk", "items"])
def test_a_wrong_list_stops_the_node_with_its_cause(cosim, monkeypatch, fault):
    """An entry with a chunk that the run does not use, or no end of the first micro-batches."""

    def contents(*arguments):
        *others, first, second = memories.port_contents(*arguments)
        if fault == "chunk":
            first[3] |= 0xFFFF
        else:
            first &= 0x7FFF_FFFF  # no entry is its micro-batch's last
        yield from (*others, first, second)

    monkeypatch.setattr("fanin.sim.glm.cosim.port_contents", contents)
    rng = np.random.default_rng(new_seed())
    with pytest.raises(SimulationFailed, match=r"node \d stopped at cycle \d+: LIST: a list names an unused"):
        check(cosim, random_samples(rng, 200, 200, 3, 0.5), rng)


@pytest.mark.slow
def test_switchml_trains_sparse_samples_too():
    cosim = Cosim(replace(NODE, protocol=Protocol.SWITCHML), workers=WORKERS, quiet=True)
    rng = np.random.default_rng(new_seed())
    network = NetworkConfig(link=FAULTS, seed=1)
    check(cosim, random_samples(rng, 61, 200, 3, 0.1), rng, epochs=3, network=network)
