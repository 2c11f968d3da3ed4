"""Data sets: read, split, shuffled, quantised; and synthetic ones of the shapes of the paper's table II."""

from __future__ import annotations

import bz2
import gzip
import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn import datasets
from sklearn.model_selection import train_test_split

from fanin.errors import InputError
from fanin.fixed import DEFAULT_PRECISION, Loss
from fanin.golden.glm.quantise import ColumnRanges, Features, Float64, Quantised, column_blocks, quantise


@dataclass(frozen=True)
class RawData:
    """All samples in the order of their source.

    ``labels`` are the targets for the linear loss, otherwise the classes: 0 the smaller, 1 the larger of
    the two labels in ``classes``.
    """

    name: str
    features: Features
    labels: Float64
    classes: tuple[float, float] | None


@dataclass(frozen=True)
class Dataset:
    """Quantised training samples in training order, and held-out ones; labels as in ``RawData``."""

    name: str
    features: Quantised
    labels: Float64
    test_features: Quantised
    test_labels: Float64
    precision: int
    bias: bool
    classes: tuple[float, float] | None


def _digits() -> tuple[Float64, Float64]:
    features, digit = datasets.load_digits(return_X_y=True)
    return features, (digit % 2).astype(np.float64)  # odd against even


def _breast_cancer() -> tuple[Float64, Float64]:
    features, labels = datasets.load_breast_cancer(return_X_y=True)
    return features, labels.astype(np.float64)


BUNDLED: dict[str, Callable[[], tuple[Float64, Float64]]] = {
    "breast_cancer": _breast_cancer,
    "digits": _digits,
}


def load(
    source: str,
    loss: Loss,
    *,
    precision: int = DEFAULT_PRECISION,
    bias: bool = True,
    shuffle: bool = True,
    test: float = 0.25,
    seed: int = 0,
    check: Callable[[int, int], object] | None = None,
) -> Dataset:
    """``read``, then ``prepare``."""
    raw = read(source, loss)
    return prepare(raw, precision=precision, bias=bias, shuffle=shuffle, test=test, seed=seed, check=check)


def read(source: str, loss: Loss) -> RawData:
    """A bundled set by name, or a LIBSVM file; InputError, one line, where it cannot be trained on."""
    features, labels = BUNDLED[source]() if source in BUNDLED else _read_libsvm(Path(source))
    if not features.shape[0]:
        raise InputError(f"{source}: no samples")
    found = np.unique(labels)
    if loss.classifies:
        if len(found) != 2:
            some = ", ".join(f"{label:g}" for label in found[:4]) + (", …" if len(found) > 4 else "")
            count = "one class" if len(found) == 1 else f"{len(found)} classes"
            raise InputError(f"{source}: {count} (labels {some}): the {loss.name.lower()} loss needs two")
        labels = (labels == found[1]).astype(np.float64)
    classes = (float(found[0]), float(found[1])) if len(found) == 2 else None
    return RawData(source, features, labels, classes)


def prepare(
    raw: RawData,
    *,
    precision: int,
    bias: bool,
    shuffle: bool = True,
    test: float = 0.25,
    seed: int = 0,
    check: Callable[[int, int], object] | None = None,
) -> Dataset:
    """Hold out a share, shuffle the rest once, quantise both by the ranges of the rest.

    ``check`` is asked about the samples and columns to train on before anything is quantised, and may raise:
    what does not fit a node may not fit this machine's memory either.
    """
    train, held_out = split(raw, test=test, shuffle=shuffle, seed=seed)
    if check:
        check(len(train), raw.features.shape[1] + bias)
    ranges = ColumnRanges.of(raw.features[train])
    with np.errstate(over="ignore"):
        wide = np.flatnonzero(~np.isfinite(ranges.high - ranges.low))
    if len(wide):
        k = wide[0]
        raise InputError(
            f"{raw.name}: column {k + 1} spans {ranges.low[k]:g} to {ranges.high[k]:g}, more than float64 holds"
        )
    try:
        features = quantise(raw.features[train], ranges, precision, bias=bias)
        test_features = quantise(raw.features[held_out], ranges, precision, bias=bias)
    except MemoryError as error:
        samples, columns = raw.features.shape
        size = f"{samples:,} samples of {columns:,} features, a byte each"
        raise InputError(f"{raw.name}: {size}, do not fit this machine's memory") from error
    return Dataset(
        name=raw.name,
        features=features,
        labels=raw.labels[train],
        test_features=test_features,
        test_labels=raw.labels[held_out],
        precision=precision,
        bias=bias,
        classes=raw.classes,
    )


def split(
    raw: RawData, *, test: float, shuffle: bool, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The samples to train on, in training order, and the held-out ones, in file order.

    The split is stratified where there are two distinct labels. The training samples are in file order,
    or that order permuted by ``numpy.random.default_rng(seed).permutation``.
    """
    samples = len(raw.labels)
    if not 0 <= test < 1:
        raise InputError(f"the held-out share must be in [0, 1), not {test:g}")
    train, held_out = np.arange(samples), np.arange(0)
    if test:
        strata = raw.labels if raw.classes else None
        try:
            train, held_out = train_test_split(train, test_size=test, stratify=strata, random_state=seed)
        except ValueError as error:
            raise InputError(f"{raw.name}: cannot hold out a share of {test:g}: {error}") from error
    train, held_out = np.sort(train), np.sort(held_out)
    if shuffle:
        train = train[np.random.default_rng(seed).permutation(len(train))]
    return train, held_out


def _read_libsvm(path: Path) -> tuple[sparse.csr_matrix, Float64]:
    try:
        features, labels = datasets.load_svmlight_file(str(path))
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; bundled sets are {', '.join(BUNDLED)}") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    except (ValueError, OverflowError) as error:
        raise InputError(_first_bad_line(path) or f"{path}: not LIBSVM: {error}") from error
    if not (np.isfinite(features.data).all() and np.isfinite(labels).all()):
        raise InputError(_first_bad_line(path) or f"{path}: has NaN or infinite values")
    return features, labels


def _first_bad_line(path: Path) -> str | None:
    """Where and why a LIBSVM file is bad: scikit-learn's loader does not say the line."""
    with _open(path) as lines:
        for number, line in enumerate(lines, start=1):
            cause = _line_error(line.decode(errors="replace"))
            if cause:
                return f"{path}:{number}: {cause}"
    return None


def _open(path: Path) -> IO[bytes] | gzip.GzipFile | bz2.BZ2File:
    if path.suffix == ".gz":
        return gzip.open(path)
    return bz2.open(path) if path.suffix == ".bz2" else path.open("rb")


def _line_error(line: str) -> str | None:
    label, *pairs = line.partition("#")[0].split() or ["0"]
    value = _number(label)
    if value is None or not math.isfinite(value):
        return f"not LIBSVM: label {label[:20]!r} is not a {'finite ' if value is not None else ''}number"
    last = -1
    for pair in pairs:
        index, colon, text = pair.partition(":")
        value = _number(text)
        if not colon or value is None or not (index.isdecimal() or index == "qid"):
            return f"not LIBSVM: {pair[:20]!r} is not index:value"
        if index == "qid":
            continue
        if not math.isfinite(value):
            return f"feature {index} is {text}, not a finite number"
        if int(index) <= last:
            return f"not LIBSVM: feature {index} follows {last}, but indices must increase"
        if int(index) > np.iinfo(np.int32).max:
            return f"not LIBSVM: feature index {index} exceeds 32 bits"
        last = int(index)
    return None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


@dataclass(frozen=True)
class SyntheticShape:
    """What a synthetic set imitates; ``nonzeros`` per sample, ``features`` where the set is dense."""

    samples: int
    features: int
    nonzeros: int


# Samples and features: the paper's table II. Nonzeros: LIBSVM's files; amazon_fashion's are our guess, and
# its five classes become two.
TABLE_II = {
    "gisette": SyntheticShape(6_000, 5_000, 5_000),
    "real_sim": SyntheticShape(72_309, 20_958, 51),
    "rcv1": SyntheticShape(20_242, 47_236, 73),
    "amazon_fashion": SyntheticShape(200_000, 332_710, 50),
    "avazu": SyntheticShape(40_428_967, 1_000_000, 15),
}
LABEL_NOISE = 0.05


def synthetic(
    name: str,
    shape: SyntheticShape,
    *,
    precision: int = DEFAULT_PRECISION,
    bias: bool = True,
    samples: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Quantised samples of a shape (the first ``samples`` of it), two classes of a planted linear model.

    Sparse samples use low columns more often than high ones, as word counts do. One label in twenty is
    wrong. Nothing is held out.
    """
    rng = np.random.default_rng(seed)
    count = shape.samples if samples is None else samples
    columns, top = shape.features, (1 << precision) - 1
    features = np.zeros((count, columns + bias), dtype=np.uint8)
    if shape.nonzeros >= columns:
        features[:, :columns] = rng.integers(0, top, (count, columns), dtype=np.uint8, endpoint=True)
    else:
        picked = (columns * rng.random((count, shape.nonzeros)) ** 2).astype(np.int64)
        values = rng.integers(1, top, picked.shape, dtype=np.uint8, endpoint=True)
        np.put_along_axis(features, picked, values, axis=1)
    weights, margin = rng.standard_normal(columns), np.zeros(count)
    for block in column_blocks(columns):
        margin += features[:, block][:, : columns - block.start].astype(np.float64) @ weights[block]
    wrong = rng.random(count) < LABEL_NOISE
    labels = ((margin > np.median(margin)) ^ wrong).astype(np.float64)
    if bias:
        features[:, -1] = top
    return Dataset(
        name=name,
        features=features,
        labels=labels,
        test_features=features[:0],
        test_labels=labels[:0],
        precision=precision,
        bias=bias,
        classes=(0.0, 1.0),
    )
