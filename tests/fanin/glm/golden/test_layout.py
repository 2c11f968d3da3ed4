"""Memory contents, bit by bit as docs/reference/numbers.md says, and back."""

from itertools import product
from math import ceil
from time import perf_counter

import numpy as np
import pytest
from scipy import sparse

from fanin.glm.facts import MICRO_BATCH, PRESETS, GlmConfig, Partitioning, TrainShape
from fanin.glm.golden import layout
from tests.support import new_seed


def shape_of(
    mode=Partitioning.MODEL_PARALLEL, *, samples=45, columns=70, workers=3, precision=3, engines=2, batch=24
):
    node = GlmConfig(name="layout", engines=engines, lanes=8, depth=16, mode=mode)
    return TrainShape(
        node=node, workers=workers, samples=samples, columns=columns, batch=batch, precision=precision
    )


def random_features(shape):
    rng = np.random.default_rng(new_seed())
    return rng.integers(0, 1 << shape.precision, (shape.samples, shape.columns), dtype=np.uint8)


def unpack_samples(words, shape):
    """Inverse of ``pack_samples``: uint8[engine, place, chunk · lane], padding included."""
    node, batches, chunks = shape.node, shape.micro_batches_per_epoch, shape.chunks
    codes = np.zeros((node.engines, batches, chunks, node.word_bits), dtype=np.uint8)
    for plane in range(shape.precision):
        bits = np.unpackbits(words[:, :, :, plane], axis=-1, bitorder="little")
        codes |= bits << (shape.precision - 1 - plane)
    by_sample = codes.reshape(node.engines, batches, chunks, MICRO_BATCH, node.lanes).transpose(0, 1, 3, 2, 4)
    return by_sample.reshape(node.engines, batches * MICRO_BATCH, chunks * node.lanes)


def join_ports(regions, shape):
    """Inverse of ``split_ports``."""
    halves = np.stack(regions).reshape(
        shape.node.engines, 2, shape.micro_batches_per_epoch, shape.chunks, shape.precision, -1
    )
    return np.concatenate([halves[:, 0], halves[:, 1]], axis=-1)


def split_model(model, shape, worker):
    """The weights that a worker holds, int32[engine, chunk, lane], padding 0."""
    node = shape.node
    out = np.zeros((node.engines, shape.chunks * node.lanes), dtype=np.int32)
    for engine in range(node.engines):
        part = model[layout.engine_columns(shape, worker, engine)]
        out[engine, : len(part)] = part
    return out.reshape(node.engines, shape.chunks, node.lanes)


@pytest.mark.parametrize(
    ("mode", "batch"), [*((mode, 24) for mode in Partitioning), (Partitioning.DATA_PARALLEL, 30)]
)
def test_each_bit_of_each_word_is_the_stated_bit_of_the_stated_feature(mode, batch):
    shape = shape_of(mode, batch=batch)
    features = random_features(shape)
    lanes, s = shape.node.lanes, shape.precision
    for worker in range(shape.workers):
        words = layout.pack_samples(features, shape, worker)
        assert np.array_equal(layout.pack_samples(sparse.csr_matrix(features), shape, worker), words)
        first = 0 if mode is Partitioning.DATA_PARALLEL else worker * shape.columns_per_worker
        last = min(first + shape.columns_per_worker, shape.columns)
        run = shape.batch_per_worker
        for engine, batch, chunk, plane in np.ndindex(words.shape[:-1]):
            word = int.from_bytes(words[engine, batch, chunk, plane].tobytes(), "little")
            for b in range(8):
                mini_batch, within = divmod(8 * batch + b, 8 * ceil(run / 8))
                sample = (
                    mini_batch * shape.batch
                    + within
                    + (run * worker if mode is Partitioning.DATA_PARALLEL else 0)
                )
                for k in range(lanes):
                    place = lanes * chunk + k
                    column = first + engine * shape.columns_per_engine + place
                    present = place < shape.columns_per_engine and column < last
                    present &= within < run and sample < shape.samples
                    want = features[sample, column] >> (s - 1 - plane) & 1 if present else 0
                    assert word >> (lanes * b + k) & 1 == want


@pytest.mark.parametrize("precision", range(1, 9))
def test_samples_come_back_from_the_port_memories(precision):
    shape = shape_of(precision=precision, workers=1)
    features = random_features(shape)
    regions = layout.split_ports(layout.pack_samples(features, shape, 0))
    assert len(regions) == shape.node.sample_ports
    unpacked = unpack_samples(join_ports(regions, shape), shape)
    half = shape.columns_per_engine
    assert np.array_equal(unpacked[0, : shape.samples, :half], features[:, :half])
    assert np.array_equal(unpacked[1, : shape.samples, : shape.columns - half], features[:, half:])
    assert not unpacked[:, shape.samples :].any()
    assert not unpacked[:, :, half:].any()


def test_a_port_reads_its_half_of_every_word_beat_after_beat():
    shape = TrainShape(node=PRESETS["u280"], workers=1, samples=8, columns=1024, batch=8, precision=2)
    words = layout.pack_samples(random_features(shape), shape, 0)
    regions = layout.split_ports(words)
    whole = words[5].reshape(-1, 64)  # engine 5, words in the order in which it takes them
    for port in range(2):
        beats = regions[2 * 5 + port].reshape(-1, 32)
        assert np.array_equal(beats, whole[:, 32 * port : 32 * (port + 1)])


def test_every_sample_is_in_exactly_one_place_of_a_data_parallel_run():
    for samples, batch in product((1, 8, 23, 24, 25, 33, 48, 71), (3, 6, 24, 27)):
        shape = shape_of(Partitioning.DATA_PARALLEL, samples=samples, batch=batch)
        places = [layout.worker_samples(shape, worker) for worker in range(3)]
        assert len({len(place) for place in places}) == 1
        assert sorted(i for place in places for i in place if i >= 0) == list(range(samples))


def test_labels_lie_beside_their_samples():
    shape = shape_of(Partitioning.DATA_PARALLEL, samples=29)  # runs of 8 of 24, then 5 samples for worker 0
    y = np.arange(100, 129, dtype=np.int32)
    assert layout.pack_labels(y, shape, 0).tolist() == [
        [*range(100, 108)],
        [124, 125, 126, 127, 128, 0, 0, 0],
    ]
    assert layout.pack_labels(y, shape, 2).tolist() == [[*range(116, 124)], [0] * 8]
    assert (
        layout.pack_labels(np.array([-2], dtype=np.int32), shape_of(samples=1), 0).tobytes()[:4]
        == b"\xfe\xff\xff\xff"
    )


@pytest.mark.parametrize("mode", Partitioning)
@pytest.mark.parametrize(("columns", "workers"), [(70, 3), (5, 4), (1, 1), (96, 3), (33, 32)])
def test_weights_go_to_their_engines_and_come_back(mode, columns, workers):
    shape = shape_of(mode, columns=columns, workers=workers, batch=8 * workers)
    model = np.arange(1, columns + 1, dtype=np.int32)
    parts = [split_model(model, shape, worker) for worker in range(workers)]
    assert parts[0].shape == (2, shape.chunks, 8)
    assert np.array_equal(layout.join_model(parts, shape), model)
    held = [x for part in parts for x in part.reshape(-1) if x]
    assert sorted(held) == sorted(model.tolist() * (workers if mode is Partitioning.DATA_PARALLEL else 1))


def test_a_weight_meets_the_features_of_its_column():
    shape = shape_of()
    features = random_features(shape)
    model = np.arange(shape.columns, dtype=np.int32) - 30
    total = np.zeros(shape.samples, dtype=np.int64)
    for worker in range(shape.workers):
        words = layout.pack_samples(features, shape, worker)
        weights = split_model(model, shape, worker)
        for engine, codes in enumerate(unpack_samples(words, shape)):
            total += (codes @ weights[engine].reshape(-1).astype(np.int64))[: shape.samples]
    assert np.array_equal(total, features @ model.astype(np.int64))


def test_a_million_features_are_packed_in_seconds():
    shape = TrainShape(node=PRESETS["u280"], workers=1, samples=64, columns=1_000_000, batch=64)
    features = np.full((64, 1_000_000), 5, dtype=np.uint8)
    start = perf_counter()
    layout.split_ports(layout.pack_samples(features, shape, 0))
    assert perf_counter() - start < 10


@pytest.mark.parametrize("mode", Partitioning)
def test_a_weight_is_found_where_the_model_holds_it(mode):
    shape = shape_of(mode)
    model = np.arange(1, shape.columns + 1, dtype=np.int32)
    for worker in range(shape.workers):
        held = split_model(model, shape, worker)
        for column, weight in enumerate(model):
            place = layout.place_of(column, shape, worker)
            assert (place is None) == (weight not in held)
            assert place is None or held[place] == weight


@pytest.mark.parametrize("mode", Partitioning)
def test_the_columns_of_some_workers_are_joined_alone(mode):
    shape = shape_of(mode=mode, engines=2, workers=3, columns=41)
    rng = np.random.default_rng(new_seed())
    model = rng.integers(1, 1 << 20, shape.columns).astype(np.int32)
    here = (2, 0)
    held = layout.columns_of(shape, here)
    joined = layout.join_model([split_model(model, shape, worker) for worker in here], shape, here)
    assert np.array_equal(joined, np.where(held, model, 0))
    assert held.all() == shape.data_parallel
    assert np.array_equal(layout.columns_of(shape, (1,)), ~held) or shape.data_parallel
