"""Lists and words of sparse nodes against the page's rules, and executed as the hardware does."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from fanin import fixed
from fanin.fixed import Loss
from fanin.glm.facts import EntryKind, GlmConfig, Partitioning, TrainShape
from fanin.glm.golden import layout, lists
from fanin.glm.golden.list_entries import decode_entries, encode_entries
from fanin.glm.golden.lists import pack_lists, totals
from fanin.glm.golden.order import frequency_order
from fanin.glm.golden.train import train
from tests.fanin.glm.golden.slow_lists import SlowEngine, StaleRead, expected_entries, interpret
from tests.support import new_seed, slow

W, C, E, F = EntryKind.WORDS, EntryKind.COPY, EntryKind.EMPTY, EntryKind.FINAL


def shape_of(*, samples=45, columns=60, batch=24, workers=1, engines=1, lanes=4, precision=3, **node):
    config = GlmConfig(name="lists", engines=engines, lanes=lanes, depth=64, **node)
    return TrainShape(
        node=config, workers=workers, samples=samples, columns=columns, batch=batch, precision=precision
    )


def random_codes(rng, shape, density):
    """Codes with some empty samples and columns, unless all are present."""
    size = (shape.samples, shape.columns)
    codes = rng.integers(1, 1 << shape.precision, size, dtype=np.uint8)
    codes[rng.random(size) >= density] = 0
    if density < 1:
        codes[rng.random(shape.samples) < 0.2] = 0
        codes[:, rng.random(shape.columns) < 0.2] = 0
    return codes


def joined(blocks):
    """Entries and words of each engine over all blocks."""
    parts = zip(*(block.engines for block in blocks), strict=True)
    return [tuple(np.concatenate(field) for field in zip(*part, strict=True)) for part in parts]


def fields(entries):
    decoded = decode_entries(entries)
    return list(zip(*(field.tolist() for field in decoded), strict=True))


# One code in each used chunk of 2 columns, by micro-batch. Mini-batches of 2 micro-batches; the last has 1.
EXAMPLE = [{0: 2, 4: 1}, {3: 3, 5: 2}, {2: 1, 6: 1}, {4: 3}, {7: 2}, {}, {}]
ENTRIES = [
    *[(0, 0, W, False), (2, 0, W, True)],
    # Mini-batch 1 needs chunk 1 first, then chunk 2, and never chunk 0.
    *[(1, 0, W, False), (2, 0, W, False), (0, 0, C, True)],
    *[(3, 3, W, False), (1, 2, W, True)],
    *[(3, 3, C, False), (1, 2, C, False), (2, 1, W, True)],
    (3, 2, W, True),
    (3, 2, C, True),
    (0, 1, E, True),
]


def example():
    codes = np.zeros((49, 8), dtype=np.uint8)
    for micro_batch, used in enumerate(EXAMPLE):
        for column, code in used.items():
            codes[8 * micro_batch + column, column] = code  # sample b = column of the micro-batch
    return codes, shape_of(samples=49, columns=8, batch=16, lanes=2, precision=2)


def test_the_entries_and_words_of_an_example():
    codes, shape = example()
    ((entries, words),) = joined(pack_lists(csr_matrix(codes), shape, 0))
    assert fields(entries) == ENTRIES
    assert entries[0] == 0
    assert entries[1] == 1 << 31 | 2
    assert entries[4] == 1 << 31 | 1 << 29
    assert entries[5] == 3 << 16 | 3
    assert entries[-1] == 1 << 31 | 2 << 29 | 1 << 16
    # Bit 2·b + k: column 3 is lane 1 of chunk 1, in sample 3.
    planes = [
        *[1 << 0, 0],  # code 2 of column 0 in sample 0
        *[0, 1 << 8],  # code 1 of column 4
        *[1 << 7, 1 << 7],
        *[1 << 11, 0],
        *[0, 1 << 12],
        *[0, 1 << 4],
        *[1 << 8, 1 << 8],
        *[1 << 15, 0],
    ]
    assert words.tobytes() == np.array(planes, dtype="<u2").tobytes()
    assert words.shape == (16, 2)


def test_entries_are_encoded_and_decoded():
    rng = np.random.default_rng(new_seed())
    given = [rng.integers(0, 1 << bits, 50) for bits in (16, 13, 2, 1)]
    for field, want in zip(decode_entries(encode_entries(*given)), given, strict=True):
        assert field.tolist() == want.tolist()
    assert encode_entries([0xFFFF], [0x1FFF], [3], [True]).tolist() == [0xFFFFFFFF]
    assert len(encode_entries([], [], [], [])) == 0
    with pytest.raises(ValueError, match=r"allow must be in 0…8191, not 5…8192"):
        encode_entries([0, 0], [8192, 5], [0, 0], [0, 0])
    with pytest.raises(ValueError, match="chunk must be in 0…65535"):
        encode_entries([65536], [0], [0], [0])


DENSITIES = [0.0, 0.01, 0.05, 0.3, 1.0]


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize(("workers", "engines"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("batch", [8, 24, 64])
@pytest.mark.parametrize("l2", [False, True])
def test_entries_follow_the_rules_and_words_are_the_dense_ones(density, workers, engines, batch, l2):
    rng = np.random.default_rng(new_seed())
    shape = shape_of(samples=131, columns=101, batch=batch, workers=workers, engines=engines, l2=l2)
    codes = random_codes(rng, shape, density)
    for worker in range(workers):
        dense = layout.pack_samples(codes, shape, worker)
        for engine, (entries, words) in enumerate(joined(pack_lists(csr_matrix(codes), shape, worker))):
            columns = codes[:, layout.engine_columns(shape, worker, engine)]
            columns = np.pad(columns, ((0, 0), (0, shape.columns_per_engine - columns.shape[1])))
            assert fields(entries) == expected_entries(columns, lanes=4, batch=batch, decays=l2)
            micro_batch, used = 0, []
            for chunk, _, kind, last in fields(entries):
                used += [dense[engine, micro_batch, chunk]] if kind == W else []
                micro_batch += last
            assert np.array_equal(words, np.reshape(used, (-1, 4)))
            assert micro_batch == shape.micro_batches_per_epoch


def test_the_entries_of_an_example_with_decay():
    """Two chunks; mini-batches of 2 micro-batches, the last of 1. Each changes both chunks."""
    codes = np.zeros((40, 4), dtype=np.uint8)
    codes[0, 0] = codes[8, 1] = codes[24, 2] = 1
    shape = shape_of(samples=40, columns=4, batch=16, lanes=2, precision=1, l2=True)
    ((entries, words),) = joined(pack_lists(csr_matrix(codes), shape, 0))
    assert fields(entries) == [
        *[(0, 0, W, False), (1, 0, F, True)],
        (0, 0, W, True),
        *[(1, 1, C, False), (0, 0, F, True)],
        (1, 1, W, True),
        *[(0, 1, C, False), (1, 0, C, True)],
    ]
    assert len(words) == 3


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("l2", [False, True])
def test_totals_count_the_entries_and_words(density, l2):
    rng = np.random.default_rng(new_seed())
    shape = shape_of(samples=131, workers=2, engines=2, precision=5, l2=l2)
    features = csr_matrix(random_codes(rng, shape, density))
    for worker in range(2):
        counts = totals(features, shape, worker)
        for engine, (entries, words) in enumerate(joined(pack_lists(features, shape, worker))):
            _, _, kind, last = decode_entries(entries)
            micro_batch = np.cumsum(last) - last
            items = np.bincount(micro_batch, weights=np.where(kind == W, 5, 1)).astype(int)
            mini_batch = micro_batch // 3
            final = (micro_batch % 3 == 2) | (micro_batch == micro_batch[-1]) | (kind == F)
            assert counts.words[engine] == len(words)
            assert counts.entries[engine] == len(entries)
            assert counts.most_items[engine] == max(items)
            for values, chosen, each in [
                (counts.mini_batch_words, kind == W, 5),
                (counts.mini_batch_entries, kind >= 0, 1),
                (counts.final_writes, final & (kind != E), 1),
            ]:
                assert values[engine].tolist() == (each * np.bincount(mini_batch[chosen], minlength=6)).tolist()
            starts = range(0, len(items), 3)
            assert counts.mini_batch_items[engine].tolist() == [sum(items[i : i + 3]) for i in starts]


@pytest.mark.parametrize("at_once", [1, 100, 1 << 20])
@pytest.mark.parametrize("l2", [False, True])
def test_a_stream_of_blocks_gives_the_same_regions(at_once, l2, monkeypatch):
    rng = np.random.default_rng(new_seed())
    shape = shape_of(samples=299, engines=2, l2=l2)
    features = csr_matrix(random_codes(rng, shape, 0.03))
    whole = joined(pack_lists(features, shape, 0))
    monkeypatch.setattr(lists, "NONZEROS_AT_ONCE", at_once)
    cuts = [0, 24, 24, 96, 240, 299]
    stream = [features[a:b] for a, b in pairwise(cuts)]
    blocks = list(pack_lists(stream, shape, 0))
    assert [i for block in blocks for i in block.mini_batches] == list(range(13))
    assert len(blocks) == (13 if at_once == 1 else len(blocks))
    for (entries, words), (streamed_entries, streamed_words) in zip(whole, joined(blocks), strict=True):
        assert np.array_equal(entries, streamed_entries)
        assert np.array_equal(words, streamed_words)
    first, second = totals(features, shape, 0), totals(stream, shape, 0)
    for name in ("most_items", "mini_batch_words", "mini_batch_entries", "mini_batch_items", "final_writes"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


def test_explicit_zeros_and_unsorted_entries_change_nothing():
    codes, shape = example()
    features = csr_matrix(codes)
    data = np.concatenate([features.data, [0, 0]]).astype(np.uint8)
    indices, indptr = np.concatenate([features.indices, [7, 0]]), features.indptr.copy()
    indptr[-1] += 2
    zeros = csr_matrix((data, indices, indptr), shape=features.shape)
    ((entries, words),) = joined(pack_lists(zeros, shape, 0))
    assert fields(entries) == ENTRIES
    assert len(words) == 16
    assert zeros.nnz == features.nnz + 2
    assert totals(zeros, shape, 0).entries.tolist() == [len(ENTRIES)]


def engines_of(features, shape, decay=fixed.NO_DECAY):
    """Interpreters of all engines, [worker][engine]."""
    sizes = {"chunks": shape.chunks, "lanes": shape.node.lanes, "precision": shape.precision}

    def spared(worker, engine):
        held = range(shape.columns)[layout.engine_columns(shape, worker, engine)]
        return divmod(held.index(decay.spared), shape.node.lanes) if decay.spared in held else None

    return [
        [
            SlowEngine(
                *lists,
                **sizes,
                micro_batches=shape.micro_batches,
                decay=decay.shift,
                spared=spared(worker, engine),
            )
            for engine, lists in enumerate(joined(pack_lists(features, shape, worker)))
        ]
        for worker in range(shape.workers)
    ]


def assert_trains_the_golden_bits(rng, density, loss, *, columns, workers, engines, lanes=4, **sizes):
    """Compare the interpreter's models with the golden ones; return these."""
    counts = rng.integers(0, 9, columns)
    order = frequency_order(counts, workers=workers, engines=engines, lanes=lanes)
    shape = shape_of(columns=columns, workers=workers, engines=engines, lanes=lanes, **sizes)
    codes = random_codes(rng, shape, density)
    shape = shape_of(columns=order.padded, workers=workers, engines=engines, lanes=lanes, **sizes)
    features = order.permute(csr_matrix(codes))
    targets = rng.uniform(32, 127, shape.samples) if loss is Loss.LINEAR else rng.integers(0, 2, shape.samples)
    labels = fixed.labels(targets.astype(float), loss, shape.node.frac)
    run = {"loss": loss, "rate": fixed.learning_rate(4.0 / shape.batch), "epochs": 2}
    decay = fixed.Decay(shift=2, spared=int(order.places[0])) if shape.node.l2 else fixed.NO_DECAY
    want = [epoch.model for epoch in train(features.toarray(), labels, shape, **run, decay=decay)]
    epochs = interpret(engines_of(features, shape, decay), labels, **run, frac=shape.node.frac)
    for parts, model in zip(epochs, want, strict=True):
        assert np.array_equal(layout.join_model(parts, shape), model)
    return want


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("batch", [8, 16, 48])
@pytest.mark.parametrize(("workers", "engines"), [(1, 1), (2, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("l2", [False, True])
def test_lists_train_the_bits_of_the_golden_model(density, batch, workers, engines, l2):
    rng = np.random.default_rng(new_seed())
    loss, precision = rng.choice(list(Loss)), int(rng.integers(1, 9))
    sizes = {"batch": batch, "workers": workers, "engines": engines, "precision": precision, "l2": l2}
    assert_trains_the_golden_bits(
        rng, density, Loss(loss), samples=int(rng.integers(50, 110)), columns=70, **sizes
    )


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("precision", range(1, 9))
def test_all_losses_and_precisions_train_the_bits_of_the_golden_model(loss, precision):
    rng = np.random.default_rng(new_seed())
    sizes = {"columns": 40, "workers": 2, "engines": 2, "precision": precision}
    first, _ = assert_trains_the_golden_bits(rng, 0.1, loss, **sizes)
    assert first.any(), "the model never moved"


@pytest.mark.parametrize(("columns", "workers", "engines"), [(3, 1, 1), (3, 4, 2), (4, 1, 1), (70, 16, 2)])
def test_one_chunk_and_workers_without_columns_train_the_bits_of_the_golden_model(columns, workers, engines):
    rng = np.random.default_rng(new_seed())
    sizes = {"columns": columns, "workers": workers, "engines": engines}
    assert_trains_the_golden_bits(rng, 0.2, Loss.LOGISTIC, **sizes)


@pytest.mark.parametrize(("samples", "columns"), slow((1000, 200), (700, 1000)))
@pytest.mark.parametrize("density", DENSITIES)
def test_longer_lists_train_the_bits_of_the_golden_model(samples, columns, density):
    rng = np.random.default_rng(new_seed())
    sizes = {"samples": samples, "columns": columns, "batch": 64, "lanes": 8}
    assert_trains_the_golden_bits(rng, density, Loss.LOGISTIC, **sizes, workers=2, engines=2)


def test_an_allow_one_too_large_is_a_stale_read():
    """In each entry with which a mini-batch first reads a chunk that its predecessor changed."""
    rng = np.random.default_rng(new_seed())
    shape = shape_of(samples=96, columns=40, batch=24, precision=1)
    features = csr_matrix(random_codes(rng, shape, 0.04))
    labels = fixed.labels(rng.integers(0, 2, 96).astype(float), Loss.LOGISTIC, 24)
    run = {"loss": Loss.LOGISTIC, "rate": fixed.learning_rate(0.1), "frac": 24, "epochs": 1}
    ((entries, words),) = joined(pack_lists(features, shape, 0))
    sizes = {"chunks": shape.chunks, "lanes": 4, "precision": 1, "micro_batches": 3}
    writes, micro_batch, changed = {}, 0, 0
    for number, (chunk, _, kind, last) in enumerate(fields(entries)):
        mini_batch, place = divmod(micro_batch, 3)
        touched = writes.setdefault(mini_batch, set())
        if place < 2 and kind == W and chunk not in touched and chunk in writes.get(mini_batch - 1, ()):
            wrong = entries.copy()
            wrong[number] += 1 << 16
            with pytest.raises(StaleRead, match=f"chunk {chunk} in micro-batch {micro_batch}"):
                interpret([[SlowEngine(wrong, words, **sizes)]], labels, **run)
            changed += 1
        touched |= {chunk} if kind != E else set()
        micro_batch += last
    assert changed > 5
    interpret([[SlowEngine(entries, words, **sizes)]], labels, **run)


def test_more_final_writes_than_an_entry_can_count_are_refused():
    chunks = 8192
    shape = shape_of(samples=8, columns=2, batch=8, lanes=2, engines=2)
    object.__setattr__(shape, "columns", 2 * chunks * 2)  # deeper than a node
    codes = np.zeros((8, shape.columns), dtype=np.uint8)
    codes[0, ::2] = 1
    with pytest.raises(ValueError, match="an engine's mini-batch has 8,192 chunks, at most 8,191 fit"):
        next(pack_lists(csr_matrix(codes), shape, 0))
    codes[0, [0, 2 * chunks]] = 0  # a chunk less in each engine
    (block,) = pack_lists(csr_matrix(codes), shape, 0)
    assert [len(engine.entries) for engine in block.engines] == [8191, 8191]


def test_other_shapes_are_refused():
    codes, shape = example()
    features = csr_matrix(codes)

    def refused(given, match, shape=shape):
        for count in (lambda: list(pack_lists(given, shape, 0)), lambda: totals(given, shape, 0)):
            with pytest.raises(ValueError, match=match):
                count()

    refused(features[:48], "features must have 49 samples, not 48")
    refused([features[:48], features[:48]], "features must have 49 samples, not 96")
    refused(features[:, :7], "features must have 8 columns, not 7")
    refused(features.astype(float), "features must be uint8 codes, not float64")
    refused(features * np.uint8(2), "codes must have 2 bits, not 110 in binary")
    refused([features[:8], features[8:]], "only the last block may end within a mini-batch of 16 samples")
    parallel = shape_of(samples=49, columns=8, batch=16, lanes=8, mode=Partitioning.DATA_PARALLEL)
    refused(features, "sparse samples need model-parallel nodes", parallel)
    wide = shape_of(samples=49, columns=8, batch=16, lanes=2)
    object.__setattr__(wide, "columns", (1 << 17) + 1)
    refused(features, "an engine's list can name 65,536 chunks, not 65,537", wide)
