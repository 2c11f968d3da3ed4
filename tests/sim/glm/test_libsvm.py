"""LIBSVM files read block by block: equality with the whole-file loader, lines of errors, bound of memory."""

import bz2
import gzip
import lzma
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from fanin.base.errors import InputError
from fanin.fixed import Loss
from fanin.glm.golden import csr
from fanin.sim.glm import data, libsvm
from fanin.sim.glm.libsvm import read_libsvm
from tests.support import new_seed

PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def random_set(rng, samples=300, features=500):
    """Random CSR samples, some of them empty, whose first and last columns are used; and labels."""
    rows = sparse.random(samples, features, density=0.02, random_state=rng, format="lil")
    rows[7, 0], rows[-1, -1] = 0.5, -2.25
    rows[11] = 0
    return rows.tocsr(), rng.integers(0, 2, samples)


@pytest.fixture
def tiny_blocks(monkeypatch):
    """Blocks of a few lines."""
    monkeypatch.setattr(libsvm, "BLOCK_BYTES", 512)


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("zero_based", [False, True])
def test_blocks_give_what_the_whole_file_gives(tiny_blocks, tmp_path, zero_based, suffix):
    features, labels = random_set(np.random.default_rng(new_seed()))
    plain = tmp_path / "plain.svm"
    dump_svmlight_file(features, labels, str(plain), zero_based=zero_based, comment="made by a test")
    path = tmp_path / f"data.svm{suffix}"
    path.write_bytes(PACKERS[suffix](plain.read_bytes()))
    got, got_labels, first = read_libsvm(path)
    expected, expected_labels = load_svmlight_file(str(plain), zero_based=zero_based)
    assert first == (0 if zero_based else 1)
    assert got.shape == expected.shape == features.shape
    assert got.indices.dtype == np.int32
    for ours, theirs in [
        (got.data, expected.data),
        (got.indices, expected.indices),
        (got.indptr, expected.indptr),
        (got_labels, expected_labels),
    ]:
        assert np.array_equal(ours, theirs)


def test_a_last_line_without_an_end_and_an_empty_sample_are_read(tiny_blocks, tmp_path):
    path = tmp_path / "data.svm"
    path.write_text("# note\n\n" + "1 2:1 # a note\n-1\n" * 100 + "1 3:0.5")
    features, labels, first = read_libsvm(path)
    assert (features.shape, first) == ((201, 3), 1)
    assert labels.tolist() == [1, -1] * 100 + [1]
    assert np.diff(features.indptr).tolist() == [1, 0] * 100 + [1]
    assert features.indices.tolist() == [1] * 100 + [2]


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("bad", [1, 2, 137, 400])
def test_a_bad_line_of_any_block_is_named(tiny_blocks, tmp_path, bad, suffix):
    for line, cause in [("1 5:x", "not LIBSVM: '5:x' is not"), ("1 5:nan", "feature 5 is nan")]:
        lines = ["0 1:0.25 5:0.5", "# a note", ""] * 134
        lines[bad - 1 :: 50] = [line] * len(lines[bad - 1 :: 50])
        path = tmp_path / f"data.svm{suffix}"
        path.write_bytes(PACKERS[suffix]("\n".join(lines).encode()))
        with pytest.raises(InputError) as error:
            read_libsvm(path)
        assert str(error.value).startswith(f"{path}:{bad}: {cause}")


def test_a_compressed_file_that_ends_early_is_refused_after_its_first_blocks(tiny_blocks, tmp_path):
    path = tmp_path / "data.svm.gz"
    path.write_bytes(gzip.compress(b"1 1:1\n0 2:1\n" * 10_000)[:-20])
    with pytest.raises(InputError, match=r"data\.svm\.gz: cannot be read: "):
        read_libsvm(path)


@pytest.mark.slow
def test_memory_is_that_of_values_columns_and_codes(monkeypatch, tmp_path):
    """12 bytes an entry of the file, 5 an entry of the codes, and 80 a sample for labels and split."""
    monkeypatch.setattr(libsvm, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(csr, "ENTRIES_AT_ONCE", 1 << 12)
    samples, entries = 20_000, 40
    rng = np.random.default_rng(new_seed())
    columns = np.sort(rng.integers(1, 100, (samples, entries)).cumsum(axis=1), axis=1)
    path = tmp_path / "data.svm"
    with path.open("w") as file:
        for sample, indices in enumerate(columns):
            file.write(f"{sample % 2} " + " ".join(f"{index}:0.25" for index in indices) + "\n")
    tracemalloc.start()
    try:
        dataset = data.load(str(path), Loss.LOGISTIC, precision=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sparse.issparse(dataset.features)
    file_bytes, code_bytes = 12 * samples * entries, 5 * samples * (entries + 1)
    assert peak < 1.1 * (file_bytes + code_bytes) + 80 * samples + (1 << 20)


@pytest.mark.parametrize("pair", ["+3:1", "-0:1", "+0:1", "-3:1"])
def test_an_index_with_a_sign_is_refused(tiny_blocks, tmp_path, pair):
    path = tmp_path / "data.svm"
    path.write_text("+1 1:+0.5 2:-1e-3 # -3:1\n" * 50 + f"-1 {pair}\n")
    with pytest.raises(InputError) as error:
        read_libsvm(path)
    assert str(error.value) == f"{path}:51: not LIBSVM: {pair!r} is not index:value"
    path.write_text("+1 1:+0.5 2:-1e-3 # -3:1\n" * 50)
    assert read_libsvm(path)[0].shape == (50, 2)
