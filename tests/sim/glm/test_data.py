"""Data sets: what is read, how it is split, shuffled and quantised, and what is refused."""

import bz2
import gzip
import lzma
import re

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

from fanin.base import archive
from fanin.base.errors import InputError
from fanin.fixed import Loss
from fanin.glm.golden.quantise import ColumnRanges, quantise
from fanin.sim.glm import data, files
from fanin.sim.glm import libsvm as libsvm_files
from tests.support import new_seed

GOOD = "+1 1:0.5 3:2\n-1 2:1 # a comment\n\n+1 3:-1\n"


@pytest.fixture
def libsvm(tmp_path):
    def write(text, name="data.svm"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


def test_a_libsvm_file_is_read_with_its_smaller_label_as_class_0(libsvm):
    raw = data.read(libsvm(GOOD), Loss.LOGISTIC)
    assert raw.features.toarray().tolist() == [[0.5, 0, 2], [0, 1, 0], [0, 0, -1]]
    assert raw.labels.tolist() == [1, 0, 1]
    assert raw.classes == (-1, 1)


@pytest.mark.parametrize(("text", "first"), [("1 0:5 2:7\n0 1:6\n", 0), ("1 1:5 3:7\n0 2:6\n", 1)])
def test_indices_begin_at_0_if_the_file_has_one(libsvm, text, first):
    raw = data.read(libsvm(text), Loss.LOGISTIC)
    assert raw.features.toarray().tolist() == [[5, 0, 7], [0, 6, 0]]
    assert raw.first_index == first


@pytest.mark.parametrize(("first", "row"), [(0, [0, 5, 0, 7]), (1, [5, 0, 7])])
def test_indices_of_a_later_file_begin_where_those_of_the_training_did(libsvm, first, row):
    source = data.read_source(libsvm("1 1:5 3:7\n"), first_index=first)
    assert source.features.toarray().tolist() == [row]


def test_feature_0_of_a_later_file_is_refused_if_there_was_none_in_the_training(libsvm):
    with pytest.raises(InputError, match=r"data.svm: has feature 0, but the features of the training"):
        data.read_source(libsvm("1 0:5\n"), first_index=1)


def test_linear_takes_its_targets_as_they_are(libsvm):
    raw = data.read(libsvm("2.5 1:1\n-7 1:2\n0.25 1:3\n"), Loss.LINEAR)
    assert raw.labels.tolist() == [2.5, -7, 0.25]
    assert raw.classes is None


@pytest.mark.parametrize(
    ("text", "where", "cause"),
    [
        ("+1 1:2\n-1 x\n", ":2", "not LIBSVM: 'x' is not index:value"),
        ("+1 1:2\n-1 1:2 2:abc\n", ":2", "not LIBSVM: '2:abc' is not index:value"),
        ("label,a,b\n1,2,3\n", ":1", "not LIBSVM: label 'label,a,b' is not a number"),
        ("+1 1:2\n\n# note\n-1 3:1 2:1\n", ":4", "not LIBSVM: feature 2 follows 3"),
        ("+1 1:2\n-1 1:1 1:1\n", ":2", "not LIBSVM: feature 1 follows 1"),
        ("+1 1:2\n-1 -1:1\n", ":2", "not LIBSVM: '-1:1' is not index:value"),
        ("+1 1:2\n-1 4000000000:1\n", ":2", "not LIBSVM: feature index 4000000000 exceeds 32 bits"),
        (f"+1 1:2\n-1 {'1' * 5000}:1\n", ":2", f"not LIBSVM: feature index {'1' * 20}… has 5,000 digits"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", ":1", "not LIBSVM: label"),
        ("+1 1:2\n-1 7:nan\n", ":2", "feature 7 is nan, not a finite number"),
        ("+1 1:-inf\n-1 7:1\n", ":1", "feature 1 is -inf, not a finite number"),
        ("+1 1:2\nnan 7:1\n", ":2", "not LIBSVM: label 'nan' is not a finite number"),
        ("+1 1:2\n-1 1_0:1\n", ":2", "not LIBSVM: '1_0:1' is not index:value"),
        ("+1 1:2\n-1 3:1_0\n", ":2", "not LIBSVM: '3:1_0' is not index:value"),
        ("+1 1:2\n1_0 3:1\n", ":2", "not LIBSVM: label '1_0' is not a number"),
        ("+1 1:2\n-1 1:1 qid:3 2:1\n", ":2", "not LIBSVM: 'qid:3' is not index:value"),
        ("+1 1:2\n-1 \u0661:1\n", ":2", "not LIBSVM: '\u0661:1' is not index:value"),
        ("+1 1:2\n-1 1:\u0661\n", ":2", "not LIBSVM: '1:\u0661' is not index:value"),
        ("+1 1:2\n-1 \x1c 1:1\n", ":2", "not LIBSVM: '\\x1c' is not index:value"),
        (f"+1 1:2\n-1 7:{'9' * 400}\n", ":2", f"feature 7 is {'9' * 20}, not a finite number"),
        ("", "", "no samples"),
        ("# nothing\n", "", "no samples"),
        ("1 1:1\n1 1:2\n", "", "a single class (labels 1): the logistic loss needs two"),
        (
            "".join(f"{n} 1:1\n" for n in range(33)),
            "",
            "33 classes (labels 0, 1, 2, 3, …): the logistic loss takes at most 32, the linear loss takes",
        ),
    ],
)
def test_a_bad_file_is_named_with_line_and_cause_in_one_line(libsvm, text, where, cause):
    path = libsvm(text)
    with pytest.raises(InputError) as error:
        data.load(path, Loss.LOGISTIC)
    assert str(error.value).startswith(f"{path}{where}: {cause}")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("line", ["aa ", "1:1 ", "#"])
def test_a_line_of_libsvm_has_at_most_16_mib(monkeypatch, libsvm, line):
    monkeypatch.setattr(libsvm_files, "MAX_LINE_BYTES", 100)
    path = libsvm(gzip.compress(("0 1:2\n1 1:3\n1 " + line * 100).encode()), "data.svm.gz")
    with pytest.raises(InputError, match=r"data.svm.gz:3: has more than 100 bytes in a line"):
        data.read(path, Loss.HINGE)


def test_underscores_in_a_comment_and_a_first_qid_are_read(libsvm):
    raw = data.read(libsvm("1 qid:1 3:5 # a_b\n0 1:2\n"), Loss.LOGISTIC)
    assert raw.features.toarray().tolist() == [[0, 0, 5], [2, 0, 0]]


def test_the_bad_line_of_a_compressed_file_is_found_too(libsvm):
    path = libsvm(gzip.compress(b"+1 1:2\n-1 7:nan\n"), "data.svm.gz")
    with pytest.raises(InputError, match=r"data.svm.gz:2: feature 7 is nan"):
        data.read(path, Loss.HINGE)


def test_a_missing_file_says_which_sets_are_bundled(tmp_path):
    with pytest.raises(InputError, match=r"none.svm: no such file; bundled sets are breast_cancer, digits"):
        data.read(str(tmp_path / "none.svm"), Loss.HINGE)


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        data.read(str(tmp_path), Loss.HINGE)


def test_a_column_too_wide_for_float64_is_refused(libsvm):
    path = libsvm("1 1:1 2:1e308\n0 1:2 2:-1e308\n")
    with pytest.raises(InputError, match=r"column 2 spans -1e[+]308 to 1e[+]308"):
        data.load(path, Loss.LOGISTIC, test=0)


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_held_out_share_outside_0_to_1_is_refused(share):
    with pytest.raises(InputError, match=r"test, the held-out share, must be in \[0, 1\)"):
        data.load("digits", Loss.HINGE, test=share)


def test_a_set_too_small_to_hold_anything_out_is_refused(libsvm):
    with pytest.raises(InputError, match=r"cannot hold out a share of 0\.25"):
        data.load(libsvm(GOOD), Loss.LOGISTIC)


def test_the_documented_recipe_gives_the_same_data_set():
    """docs/reference/numbers.md's order of operations, written out."""
    features, labels = load_breast_cancer(return_X_y=True)
    train, held_out = train_test_split(np.arange(569), test_size=0.25, stratify=labels, random_state=7)
    train, held_out = np.sort(train), np.sort(held_out)
    train = train[np.random.default_rng(7).permutation(len(train))]
    low, high = features[train].min(0), features[train].max(0)
    want = np.minimum(np.floor((features[train] - low) / (high - low) * 8), 7)
    test = np.clip(np.floor((features[held_out] - low) / (high - low) * 8), 0, 7)
    got = data.load("breast_cancer", Loss.HINGE, precision=3, seed=7)
    assert np.array_equal(got.features[:, :-1], want)
    assert np.array_equal(got.test_features[:, :-1], test)
    assert (got.features[:, -1] == 7).all()
    assert (got.test_features[:, -1] == 7).all()
    assert np.array_equal(got.labels, labels[train])
    assert np.array_equal(got.test_labels, labels[held_out])


def test_without_shuffle_bias_and_held_out_share_the_file_is_taken_as_it_is():
    features, digit = load_digits(return_X_y=True)
    got = data.load("digits", Loss.LOGISTIC, shuffle=False, test=0, bias=False)
    assert np.array_equal(got.features, quantise(features, ColumnRanges.of(features), 4, bias=False))
    assert np.array_equal(got.labels, digit % 2)
    assert got.test_features.shape == (0, 64)


def test_the_shuffle_is_the_only_difference_it_makes():
    plain = data.load("digits", Loss.LOGISTIC, shuffle=False, seed=3)
    shuffled = data.load("digits", Loss.LOGISTIC, seed=3)
    order = np.random.default_rng(3).permutation(len(plain.labels))
    assert np.array_equal(shuffled.features, plain.features[order])
    assert np.array_equal(shuffled.test_features, plain.test_features)


def test_a_file_gives_the_same_data_set_as_the_bundled_one(tmp_path):
    features, labels = load_breast_cancer(return_X_y=True)
    path = tmp_path / "cancer.svm"
    dump_svmlight_file(features, labels * 2 - 1, str(path), zero_based=False)
    for loss in (Loss.LOGISTIC, Loss.HINGE):
        ours, bundled = data.load(str(path), loss), data.load("breast_cancer", loss)
        assert np.array_equal(ours.features, bundled.features)
        assert np.array_equal(ours.labels, bundled.labels)
        assert ours.classes == (-1, 1)


def test_the_held_out_share_is_stratified():
    got = data.load("breast_cancer", Loss.LOGISTIC)
    assert len(got.test_labels) == 143
    assert np.mean(got.test_labels) == pytest.approx(np.mean(got.labels), abs=0.005)


@pytest.mark.parametrize("name", data.TABLE_II)
def test_synthetic_sets_have_the_shape_of_table_ii_and_repeat_with_their_seed(name):
    shape, seed = data.TABLE_II[name], new_seed()
    got = data.synthetic(name, shape, samples=40, seed=seed)
    assert got.features.shape == (40, shape.features)
    assert (got.features.data > 0).all()
    assert (got.features.data == 1).all() == shape.binary
    assert (np.diff(got.features.indptr) == shape.nonzeros).all()
    assert got.features.has_canonical_format  # no feature twice
    assert 0 < np.mean(got.labels) < 1
    again = data.synthetic(name, shape, samples=40, seed=seed)
    assert (got.features != again.features).nnz == 0
    assert np.array_equal(got.labels, again.labels)


def test_synthetic_popularity_is_a_zipf_law_and_uses_the_published_share_of_features():
    got = data.synthetic("rcv1", data.TABLE_II["rcv1"], samples=18_217, seed=new_seed())
    counts = np.sort(np.bincount(got.features.indices, minlength=47_236))[::-1]
    assert np.count_nonzero(counts) == pytest.approx(44_504, rel=0.005)
    # Of rare features, a sample hardly draws one twice, so counts have the law's ratio.
    rare = counts[[1000, 2000, 4000, 8000]].astype(float)
    assert rare[:-1] / rare[1:] == pytest.approx([2**1.15] * 3, rel=0.2)
    assert np.argmax(np.bincount(got.features.indices)) != 0  # ranks are no order of columns


@pytest.mark.parametrize("packer", [gzip, bz2, lzma])
def test_a_packed_file_may_not_grow_without_bound(libsvm, monkeypatch, packer):
    text = GOOD.encode() * 1000  # 41 bytes each
    path = libsvm(packer.compress(text), "data.svm")
    monkeypatch.setattr(archive, "MAX_GROWTH", 0)
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 41_000)
    assert len(data.read(path, Loss.LOGISTIC).labels) == 3000
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 40_999)
    with pytest.raises(InputError, match=r"data\.svm: unpacks from [0-9,]+ to more than 40,999 bytes"):
        data.read(path, Loss.LOGISTIC)


def test_a_file_that_takes_more_memory_than_there_is_takes_one_line(tmp_path, monkeypatch):
    def refuse(self, *_):
        raise MemoryError

    file = tmp_path / "data.svm.xz"
    file.write_bytes(lzma.compress(b"1 1:1\n"))
    monkeypatch.setattr(lzma.LZMAFile, "readinto", refuse, raising=False)
    with pytest.raises(InputError, match=r"data\.svm\.xz: takes more memory to unpack than is available$"):
        files.open_bytes(file).read()


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"\x93NUMPY\x01\x00v\x00", "NumPy's .npy; numpy.savez"),
        (b"PAR1\x15\x04", "Parquet; pandas' to_csv"),
        (b"\x89HDF\r\n\x1a\n", "HDF5; store features"),
    ],
)
def test_another_format_is_named(libsvm, content, advice):
    with pytest.raises(InputError, match=re.escape(f"a file of {advice}")):
        data.read(libsvm(content), Loss.LOGISTIC)


def test_ranges_that_take_more_memory_than_there_is_take_one_line(libsvm, monkeypatch):
    """A feature of index 2^31 − 1 makes as many columns."""

    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr(data.ColumnRanges, "of", refuse)
    path = libsvm(GOOD)
    with pytest.raises(InputError, match=r"samples of [0-9,]+ features, 4 values, do not fit this machine"):
        data.load(path, Loss.LOGISTIC, test=0)
