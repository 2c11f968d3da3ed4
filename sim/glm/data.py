"""Data sets: read, split, shuffled, quantised; and synthetic sets with the shapes of the paper's table II."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn import datasets
from sklearn.model_selection import train_test_split

from fanin.base.errors import InputError
from fanin.fixed import DEFAULT_PRECISION, Loss
from fanin.glm.golden.model import Label
from fanin.glm.golden.quantise import ColumnRanges, Features, Float64, Samples, quantise
from fanin.glm.golden.targets import UNSCALED, TargetScale
from fanin.sim.glm.files import kind_of
from fanin.sim.glm.libsvm import read_libsvm
from fanin.sim.glm.tables import CsvTable, Labels, read_npz

CSV = (".csv", ".tsv")
MAX_CLASSES = 32  # each class has its own run; more are probably targets mistaken for classes


@dataclass(frozen=True)
class Source:
    """Samples in the order of their source.

    - ``columns``, ``target``: names in a CSV file.
    - ``first_index``: index of the first feature in a LIBSVM file.
    """

    features: Features
    labels: Labels | None
    columns: tuple[str, ...] = ()
    target: str = ""
    first_index: int | None = None


@dataclass(frozen=True)
class RawData:
    """All samples in the order of their source.

    - ``labels``: targets for the linear loss; otherwise indices of ``classes``.
    - ``classes``: the distinct labels, sorted.
    - ``targets``: whether the labels are targets.

    Other fields are as in ``Source``.
    """

    name: str
    features: Features
    labels: Float64
    classes: tuple[Label, ...] | None
    targets: bool = False
    columns: tuple[str, ...] = ()
    target: str = ""
    first_index: int | None = None


@dataclass(frozen=True)
class Dataset:
    """Quantised training samples in training order, and held-out ones; names as in ``RawData``.

    Labels are indices of classes, or sums that represent targets by ``scale``. ``is_csr``: whether the samples'
    source was CSR, such as a LIBSVM file. Their codes are CSR, too, unless an array is smaller.
    """

    name: str
    features: Samples
    labels: Float64
    test_features: Samples
    test_labels: Float64
    ranges: ColumnRanges
    precision: int
    bias: bool
    classes: tuple[Label, ...] | None
    columns: tuple[str, ...] = ()
    target: str = ""
    first_index: int | None = None
    scale: TargetScale = UNSCALED
    is_csr: bool = False

    def against_the_rest(self, index: int) -> Dataset:
        """Return the same samples with two classes: the given class, as the larger label, and all others."""
        return replace(
            self,
            labels=(self.labels == index).astype(np.float64),
            test_labels=(self.test_labels == index).astype(np.float64),
        )


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
    target: str | None = None,
    precision: int = DEFAULT_PRECISION,
    bias: bool = True,
    shuffle: bool = True,
    test: float = 0.25,
    seed: int = 0,
    check: Callable[[int, int, bool], object] | None = None,
) -> Dataset:
    """Read a data set, then prepare it; see ``read`` and ``prepare``."""
    raw = read(source, loss, target)
    return prepare(raw, precision=precision, bias=bias, shuffle=shuffle, test=test, seed=seed, check=check)


def read(source: str, loss: Loss, target: str | None = None) -> RawData:
    """Return the data of :func:`read_source` for a loss. Raises InputError if it cannot be trained on."""
    source_data = read_source(source, target)
    if not source_data.features.shape[0]:
        raise InputError(f"{source}: no samples")
    labels = source_data.labels
    if labels is None:
        raise InputError(f"{source}: has no labels")
    distinct: list[Label] = np.unique(labels).tolist()
    examples = ", ".join(f"{label:.6g}" if isinstance(label, float) else label for label in distinct[:4])
    examples += ", …" if len(distinct) > 4 else ""
    if loss.classifies:
        name = loss.key
        if len(distinct) < 2:
            raise InputError(f"{source}: a single class (labels {examples}): the {name} loss needs two")
        if len(distinct) > MAX_CLASSES:
            limit = f"the {name} loss takes at most {MAX_CLASSES}, the linear loss takes targets"
            raise InputError(f"{source}: {len(distinct)} classes (labels {examples}): {limit}")
        labels = np.searchsorted(distinct, labels).astype(np.float64)
    elif labels.dtype.kind == "U":
        raise InputError(f"{source}: labels are words ({examples}): the {loss.key} loss needs numbers")
    classes = tuple(distinct) if loss.classifies or len(distinct) == 2 else None
    return RawData(
        source,
        source_data.features,
        labels.astype(np.float64),
        classes,
        targets=not loss.classifies,
        columns=source_data.columns,
        target=source_data.target,
        first_index=source_data.first_index,
    )


def read_source(
    source: str,
    target: str | None = None,
    *,
    columns: tuple[str, ...] = (),
    first_index: int | None = None,
) -> Source:
    """Return a bundled set by name, or a file's data: CSV, .npz, or otherwise LIBSVM. Raises InputError.

    - ``target``: column of a CSV file that has the labels; default: the last one.
    - ``columns``: columns of a CSV file that are features; the target may then be absent.
    - ``first_index``: index of the first feature of a LIBSVM file; default: from the file
      (:func:`read_libsvm`).
    """
    path, kind = Path(source), kind_of(Path(source))
    if target is not None and kind not in CSV and not columns:
        raise InputError(f"{source}: --target is for CSV files, whose columns have names")
    if source in BUNDLED:
        return Source(*BUNDLED[source]())
    try:
        if kind in CSV:
            return _from_csv(CsvTable.open(path), target, columns)
        if kind == ".npz":
            return Source(*read_npz(path))
        features, labels, first = read_libsvm(path, first_index)
        return Source(features, labels, first_index=first)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; bundled sets are {', '.join(BUNDLED)}") from error


def _from_csv(table: CsvTable, target: str | None, columns: tuple[str, ...]) -> Source:
    if not table.names:
        raise InputError(f"{table.path}: no samples")
    if target is None:
        target = table.names[-1]
    if not columns:
        table.column(target)
        columns = tuple(name for name in table.names if name != target)
    if not columns:
        raise InputError(f"{table.path}: no columns but {target!r}")
    features, labels = table.read(columns, target)
    return Source(features, labels, columns, target)


def prepare(
    raw: RawData,
    *,
    precision: int,
    bias: bool,
    shuffle: bool = True,
    test: float = 0.25,
    seed: int = 0,
    check: Callable[[int, int, bool], object] | None = None,
) -> Dataset:
    """Hold out a share, shuffle the rest once, and quantise both by the ranges of the rest.

    ``check`` is called before quantisation with the numbers of training samples and columns, and whether the
    source is CSR. ``check`` may raise: a set that does not fit a node may also not fit this machine's memory.
    """
    train, held_out = split(raw, test=test, shuffle=shuffle, seed=seed)
    if check:
        check(len(train), raw.features.shape[1] + bias, sparse.issparse(raw.features))
    try:
        return _quantised(raw, train, held_out, precision=precision, bias=bias)
    except MemoryError as error:
        samples, columns = raw.features.shape
        size = f"{samples:,} samples of {columns:,} features"
        size += ", a byte each," if isinstance(raw.features, np.ndarray) else f", {raw.features.nnz:,} values,"
        raise InputError(f"{raw.name}: {size} do not fit this machine's memory") from error


def _quantised(
    raw: RawData,
    train: npt.NDArray[np.int64],
    held_out: npt.NDArray[np.int64],
    *,
    precision: int,
    bias: bool,
) -> Dataset:
    """Quantise the training samples and those held out. Raises MemoryError."""
    ranges = ColumnRanges.of(raw.features, train)
    with np.errstate(over="ignore"):
        wide_columns = np.flatnonzero(~np.isfinite(ranges.high - ranges.low))
    if len(wide_columns):
        k = wide_columns[0]
        raise InputError(
            f"{raw.name}: column {k + 1} spans {ranges.low[k]:g} to {ranges.high[k]:g}, more than float64 holds"
        )
    features = quantise(raw.features, ranges, precision, bias=bias, rows=train)
    test_features = quantise(raw.features, ranges, precision, bias=bias, rows=held_out)
    scale = TargetScale.of(raw.labels[train]) if raw.targets else UNSCALED
    return Dataset(
        name=raw.name,
        features=features,
        labels=scale.to_sums(raw.labels[train]),
        test_features=test_features,
        test_labels=scale.to_sums(raw.labels[held_out]),
        ranges=ranges,
        precision=precision,
        bias=bias,
        classes=raw.classes,
        columns=raw.columns,
        target=raw.target,
        first_index=raw.first_index,
        scale=scale,
        is_csr=sparse.issparse(raw.features),
    )


def split(
    raw: RawData, *, test: float, shuffle: bool, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the training samples, in training order, and the held-out samples, in file order.

    The split is stratified if there are classes, or two distinct labels. The training samples are in file
    order, or in that order permuted by ``numpy.random.default_rng(seed).permutation``.
    """
    samples = len(raw.labels)
    if not 0 <= test < 1:
        raise InputError(f"test, the held-out share, must be in [0, 1), not {test:g}")
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


@dataclass(frozen=True)
class SyntheticShape:
    """Shape that a synthetic set imitates; ``nonzeros`` per sample, with value 1 if ``binary``."""

    samples: int
    features: int
    nonzeros: int
    binary: bool = False


# Samples and features: the paper's table II. Nonzeros: LIBSVM's files; amazon_fashion's are a guess, and its
# five classes become two.
TABLE_II = {
    "gisette": SyntheticShape(6_000, 5_000, 5_000),
    "real_sim": SyntheticShape(72_309, 20_958, 51),
    "rcv1": SyntheticShape(20_242, 47_236, 73),
    "amazon_fashion": SyntheticShape(200_000, 332_710, 50),
    "avazu": SyntheticShape(40_428_967, 1_000_000, 15, binary=True),
}
LABEL_NOISE = 0.05
#: Exponent of the popularity of features. With it, 18,217 samples of rcv1's shape use 44,504 features, the
#: number in Bradley et al. (ICML 2011). Samples of real_sim's shape use all features. No number is known for
#: other sets.
ZIPF = 1.15
_SAMPLES_AT_ONCE = 1 << 13  # bounds the memory of draws


def synthetic(name: str, shape: SyntheticShape, *, samples: int | None = None, seed: int = 0) -> RawData:
    """Return CSR samples of a shape, with two classes of a planted linear model.

    - ``samples``: their number; None: the shape's.

    A sparse sample has exactly ``shape.nonzeros`` features. Their popularity is a Zipf law, not the data's: a
    draw takes the feature of rank r with a probability proportional to r^-``ZIPF``, and duplicates in a sample
    are drawn again. Ranks are a random order of the columns. One label in twenty is wrong.
    """
    rng = np.random.default_rng(seed)
    count, columns = shape.samples if samples is None else samples, shape.features
    if shape.nonzeros >= columns:
        drawn = np.tile(np.arange(columns), (count, 1))
    else:
        drawn = rng.permutation(columns)[_zipf_draws(rng, count, columns, shape.nonzeros)]
        drawn.sort(axis=1)
    values = np.ones(drawn.size) if shape.binary else 1 - rng.random(drawn.size)
    starts = np.arange(count + 1) * drawn.shape[1]
    features = sparse.csr_matrix((values, drawn.reshape(-1), starts), shape=(count, columns))
    margin = features @ rng.standard_normal(columns)
    flipped = rng.random(count) < LABEL_NOISE
    labels = ((margin > np.median(margin)) ^ flipped).astype(np.float64)
    return RawData(name, features, labels, classes=(0.0, 1.0))


def _zipf_draws(rng: np.random.Generator, count: int, ranks: int, size: int) -> npt.NDArray[np.int64]:
    """Return ``size`` different ranks below ``ranks`` for each of ``count`` samples: the first ones drawn."""
    ends = np.cumsum(np.arange(1, ranks + 1) ** -ZIPF)
    result = np.empty((count, size), dtype=np.int64)
    for start in range(0, count, _SAMPLES_AT_ONCE):
        missing = np.arange(start, min(start + _SAMPLES_AT_ONCE, count))
        drawn = np.empty((len(missing), 0), dtype=np.int64)
        while len(missing):
            more = np.searchsorted(ends, rng.random((len(missing), 2 * size)) * ends[-1], side="right")
            drawn = np.concatenate([drawn, more], axis=1)
            first = _first_ones(drawn)
            done = first.sum(axis=1) >= size
            chosen = first[done] & (first[done].cumsum(axis=1) <= size)
            result[missing[done]] = drawn[done][chosen].reshape(-1, size)
            missing, drawn = missing[~done], drawn[~done]
    return result


def _first_ones(values: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask of each row's values that no earlier value of the row equals."""
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    is_new = np.ones(values.shape, dtype=bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    mask = np.empty_like(is_new)
    np.put_along_axis(mask, order, is_new, axis=1)
    return mask
