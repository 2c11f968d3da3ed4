"""CSV and .npz files: what is read, and what is refused, with line and column."""

import bz2
import gzip
import lzma
import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from fanin.base import archive
from fanin.base.errors import InputError
from fanin.fixed import Loss
from fanin.sim.glm import data, tables

GOOD = "age,height,ill\n3,1.5,no\n4,-2e1,yes\n\n5,0,no\n"


@pytest.fixture
def write(tmp_path):
    def of(content, name="data.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return of


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data.csv", GOOD),
        ("data.csv", "\ufeff" + GOOD.replace("\n", "\r\n")),
        ("data.csv", GOOD.replace(",", ";")),
        ("data.tsv", GOOD.replace(",", "\t")),
        ("data.csv", '"age",height,ill\n3, 1.5,"no"\n4,-2e1,yes\n5,0,no'),
        ("data.csv.gz", gzip.compress(GOOD.encode(), mtime=0)),  # the time would be in the test's name
        ("data.CSV.bz2", bz2.compress(GOOD.encode())),
        ("data.csv.xz", lzma.compress(GOOD.encode())),
        ("packed.csv", lzma.compress(GOOD.encode())),  # by content, not by name
        ("plain.csv.gz", GOOD),
        ("data.csv", "sep=;\r\n" + GOOD.replace(",", ";")),
        ("data.csv", "sep=\t\n" + GOOD.replace(",", "\t")),
        ("data.csv", '"age", "height", "ill"\n3, 1.5, "no"\n4, -2e1, yes\n5, 0, no\n'),
        ("data.csv", ",age,height,ill\n0,3,1.5,no\n1,4,-2e1,yes\n2,5,0,no\n"),  # pandas' index
    ],
)
def test_a_csv_file_has_its_labels_in_the_last_column(write, name, content):
    raw = data.read(write(content, name), Loss.LOGISTIC)
    assert raw.features.tolist() == [[3, 1.5], [4, -20], [5, 0]]
    assert raw.labels.tolist() == [0, 1, 0]
    assert raw.classes == ("no", "yes")
    assert (raw.columns, raw.target) == (("age", "height"), "ill")


def test_a_delimiter_within_quotes_delimits_nothing(write):
    raw = data.read(write('"temp, C";"hum, %";y\n1;2;0\n3;4;1\n'), Loss.LOGISTIC)
    assert (raw.columns, raw.target) == (("temp, C", "hum, %"), "y")
    assert raw.features.tolist() == [[1, 2], [3, 4]]


def test_booleans_are_numbers_as_features_and_classes_as_labels(write):
    raw = data.read(write("a,b,ill\nTrue,false,no\nFALSE,1,no\n0.5,TRUE,yes\n"), Loss.LOGISTIC)
    assert raw.features.tolist() == [[1, 0], [0, 1], [0.5, 1]]
    raw = data.read(write("a,ill\n1,False\n2,True\n"), Loss.LOGISTIC)
    assert (raw.labels.tolist(), raw.classes) == ([0, 1], ("False", "True"))


def test_the_target_may_be_another_column(write):
    raw = data.read(write("a,b,c\n1,2,3\n4,5,6\n"), Loss.LINEAR, "b")
    assert raw.features.tolist() == [[1, 3], [4, 6]]
    assert raw.labels.tolist() == [2, 5]
    assert (raw.columns, raw.target) == (("a", "c"), "b")


@pytest.mark.parametrize(
    ("text", "where", "cause"),
    [
        ("", "", "no samples"),
        ("\n\n", "", "no samples"),
        ("a,b\n", "", "no samples"),
        ("1,2\n3,4\n", ":1", "no header: '1' is a number, but the first line must name the columns"),
        ("a,,c\n1,2,3\n", ":1", "column 2 has no name"),
        ("a,b,a\n1,2,3\n", ":1", "two columns are called 'a'"),
        ("b\n0\n1\n", "", "no columns but 'b'"),
        ("a,b\n1,0\n2\n", ":3", "1 fields, but the header has 2"),
        ("a,b\n1,0\n2,1,1\n", ":3", "3 fields, but the header has 2"),
        ("a,b\n1,0\n\ntall,1\n", ":4", "column 'a': 'tall' is not a number"),
        ("a,b\n1,0\n,1\n", ":3", "column 'a': is empty"),
        ("a,b\n1,0\nnan,1\n", ":3", "column 'a': 'nan' is not a finite number"),
        ("a,b\n1,0\n1e999,1\n", ":3", "column 'a': '1e999' is not a finite number"),
        ("a,b\n1,0\n2,yes\n", ":3", "column 'b': 'yes' is not a number"),
        ("a,b\n1,yes\n2,0\n", ":2", "column 'b': 'yes' is not a number"),
        ("a,b\n1,yes\n2,\n", ":2", "column 'b': 'yes' is not a number"),
        ("a,b\n1,yes\n2,yes\n", "", "a single class (labels yes): the logistic loss needs two"),
        ('a,b\n1,"x\n', ":2", "not CSV: unexpected end of data"),
        (b"a,b\n1,\xff\n", "", "not CSV: byte 6 is no UTF-8"),
    ],
)
def test_a_bad_csv_file_is_named_with_line_column_and_cause(write, text, where, cause):
    path = write(text)
    with pytest.raises(InputError) as error:
        data.read(path, Loss.LOGISTIC)
    assert str(error.value).startswith(f"{path}{where}: {cause}")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "where", "cause"),
    [
        ("a,b\n" + "1," * 20 + "1\n", "", "has a record of more than 40 bytes"),
        ('a,b\n"' + "1\n" * 20 + '",1\n', "", "has a record of more than 40 bytes"),
        ("a,b\n1,u\n2,v\n3,w\n", ":4", "column 'b': has more than 2 different words"),
        ("a,b\n" + "1,1\n" * 40 + "2,x\n", ":42", "column 'b': 'x' is not a number"),
        ("a,b\n" + "1,no\n" * 51, "", "column 'b': words of 2 characters take more than 400 bytes"),
    ],
    ids=["fields", "lines", "different words", "none of these", "long words"],
)
def test_what_takes_too_much_memory_is_refused(write, monkeypatch, text, where, cause):
    path = write(text)
    monkeypatch.setattr(tables, "MAX_RECORD_BYTES", 40)
    monkeypatch.setattr(tables, "MAX_WORDS", 2)
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 400)
    monkeypatch.setattr(archive, "MAX_GROWTH", 0)
    with pytest.raises(InputError, match=f"^{path}{where}: {cause}"):
        data.read(path, Loss.LOGISTIC)


def test_reading_takes_little_more_than_the_arrays(write):
    """A feature and a label of 8 bytes each; packed, so that the bound of packed files is not all there is."""
    rows = 50_000
    path = write(gzip.compress(b"a,b\n" + b"1,2\n" * rows), "data.csv.gz")
    tracemalloc.start()
    try:
        features = data.read_source(path).features
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert features.shape == (rows, 1)
    assert peak < 2 * 16 * rows + (1 << 20)


def test_words_with_underscores_are_no_numbers(write):
    source = data.read_source(write("a,y_1\n1,1_0\n2,2_0\n"))
    assert source.labels.tolist() == ["1_0", "2_0"]
    with pytest.raises(InputError, match=r":3: column 'a': '2_0' is not a number"):
        data.read_source(write("a,y\n1,0\n2_0,1\n"))


def test_what_does_not_fit_the_options_is_refused(write):
    path = write(GOOD)
    with pytest.raises(InputError, match="no column 'sick'; there are age, height, ill"):
        data.read(path, Loss.LOGISTIC, "sick")
    with pytest.raises(InputError, match=r"labels are words \(no, yes\): the linear loss needs numbers"):
        data.read(path, Loss.LINEAR)
    with pytest.raises(InputError, match="--target is for CSV files"):
        data.read("digits", Loss.LINEAR, "age")
    with pytest.raises(InputError, match=r"none.csv: no such file"):
        data.read("none.csv", Loss.LINEAR)
    with pytest.raises(InputError, match=r"data.csv.gz: cannot be read"):
        data.read(write(gzip.compress(GOOD.encode())[:-9], "data.csv.gz"), Loss.LINEAR)


def test_a_file_of_another_packer_is_named(write):
    with pytest.raises(InputError, match=r"data.csv: a file of Zstandard; unpack it, or pack it with gzip"):
        data.read(write(b"\x28\xb5\x2f\xfd rest", "data.csv"), Loss.LINEAR)


@pytest.mark.parametrize("names", [("X", "y"), ("features", "labels"), ("x", "y")])
def test_an_npz_is_read_by_the_names_of_its_arrays(tmp_path, names):
    path = tmp_path / "set.npz"
    images = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    np.savez(path, **dict(zip(names, (images, np.array(["b", "a", "b", "b"])), strict=True)))
    raw = data.read(str(path), Loss.HINGE)
    assert np.array_equal(raw.features, images.reshape(4, 6))
    assert raw.labels.tolist() == [1, 0, 1, 1]
    assert raw.classes == ("a", "b")


@pytest.mark.parametrize(
    ("arrays", "cause"),
    [
        ({"X": np.zeros((2, 2))}, "has no labels"),
        ({"a": np.zeros(2)}, "has a, but not features and labels or X and y"),
        ({"X": np.zeros(2), "y": np.zeros(2)}, r"X must have a row for each sample, not shape \(2,\)"),
        ({"X": np.zeros((2, 2)), "y": np.zeros(3)}, r"2 samples, but y of shape \(3,\)"),
        ({"X": np.array([["a"], ["b"]]), "y": np.zeros(2)}, "X are <U1, not numbers"),
        ({"X": np.array([[0, 1], [2, np.nan]]), "y": np.zeros(2)}, r"X\[1, 1\] is nan, not a finite number"),
        ({"X": np.zeros((2, 2)), "y": np.array([0, np.inf])}, r"y\[1\] is inf, not a finite number"),
        (
            {"X": np.zeros((2, 2)), "y": np.array([{}, {}])},
            "no NumPy archive of numbers: an array of Python objects",
        ),
        ({"X": np.zeros((0, 2)), "y": np.zeros(0)}, "no samples"),
    ],
)
def test_a_bad_npz_is_refused(tmp_path, arrays, cause):
    path = tmp_path / "set.npz"
    np.savez(path, **arrays)
    with pytest.raises(InputError, match=cause) as error:
        data.read(str(path), Loss.LOGISTIC)
    assert str(error.value).startswith(f"{path}: ")


@pytest.mark.parametrize("content", [b"", b"PK\3\4 torn", b"\x93NUMPY\1\0"])
def test_what_is_no_npz_is_refused(write, content):
    with pytest.raises(InputError, match=r"set\.npz: no NumPy archive"):
        data.read(write(content, "set.npz"), Loss.LOGISTIC)


def test_all_formats_give_the_same_data_set(tmp_path):
    features, labels = load_breast_cancer(return_X_y=True)
    rows = [
        ",".join(map(repr, map(float, row))) + f",{label}" for row, label in zip(features, labels, strict=True)
    ]
    header = ",".join(f"c{k}" for k in range(30)) + ",label"
    (tmp_path / "a.csv").write_text("\n".join([header, *rows]))
    np.savez(tmp_path / "a.npz", X=features, y=labels)
    bundled = data.load("breast_cancer", Loss.LOGISTIC)
    for name in ("a.csv", "a.npz"):
        ours = data.load(str(tmp_path / name), Loss.LOGISTIC)
        assert np.array_equal(ours.features, bundled.features)
        assert np.array_equal(ours.test_labels, bundled.test_labels)
