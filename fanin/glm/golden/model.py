"""Trained GLM with the data that predictions need: scaling, number format, classes, float64 weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.base.archive import read_archive
from fanin.base.errors import InputError
from fanin.fixed import MAX_PRECISION, Loss, check_frac
from fanin.glm.golden import metrics
from fanin.glm.golden.quantise import ColumnRanges, Features, Float64, quantise
from fanin.glm.golden.targets import UNSCALED, TargetScale

Label: TypeAlias = float | str
Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

FORMAT_VERSION, READABLE_VERSIONS = 3, (2, 3)  # of the model file
_NO_INDEX = -1  # in the model file: without LIBSVM samples, or written before the array existed


@dataclass(frozen=True, kw_only=True)
class GlmModel:
    """Fixed-point weights of the nodes, and float64 weights trained on the same samples.

    - ``weights``: fixed point with ``frac`` fractional bits; with ``bias`` the last weight is the bias. For
      more than two classes there is a row of weights per class, which separates it from the other classes.
    - ``ranges``, ``precision``: quantisation of the features.
    - ``l2``: λ of the regularisation.
    - ``classes``: labels of the smaller and the larger class, or of all rows; None for the linear loss.
    - ``columns``, ``target``: names in the samples' CSV file; empty for other files.
    - ``first_index``: index of the first feature in the samples' LIBSVM file; None for other files.
    - ``scale``: from sums to targets, linear loss only.
    """

    loss: Loss
    weights: npt.NDArray[np.int32]
    float64: Float64
    ranges: ColumnRanges
    precision: int
    frac: int
    bias: bool
    l2: float
    classes: tuple[Label, ...] | None
    columns: tuple[str, ...]
    target: str
    first_index: int | None = None
    scale: TargetScale = UNSCALED

    def activations(self, features: Features) -> tuple[Float64, Float64]:
        """Return Σ features · weights, by the nodes' and by the float64 weights; a column per row of weights.

        Sparse features may have fewer columns than the model, since a LIBSVM file omits trailing zeros. Raises
        ValueError for any other number of columns.
        """
        model_columns = len(self.ranges.low)
        samples, columns = features.shape
        if columns < model_columns and sparse.issparse(features):
            features = features.copy()
            features.resize(samples, model_columns)
        elif columns != model_columns:
            raise ValueError(f"{columns:,} features, but the model has {model_columns:,}")
        q = quantise(features, self.ranges, self.precision, bias=self.bias)
        return (
            _by_row(partial(metrics.activations, q, precision=self.precision, frac=self.frac), self.weights),
            _by_row(partial(metrics.activations_float64, q, precision=self.precision), self.float64),
        )

    @property
    def linear(self) -> tuple[Float64, Float64]:
        """Coefficients of features as they are, and intercept, of the nodes' weights; for targets, of these.

        Their sums differ from ``activations`` by the quantisation of features: a code counts as its middle. A
        feature that was constant in training has 0. For more than two classes a row, and an intercept, each.
        """
        span = self.ranges.high - self.ranges.low
        weights = np.ldexp(self.weights.astype(np.float64), -self.frac)
        per_span = weights[..., : len(span)]
        coefficients = np.divide(per_span, span, out=np.zeros_like(per_span), where=span > 0)
        middle = np.ldexp(np.where(span > 0, per_span, 0), -self.precision - 1).sum(axis=-1)
        intercept = -(coefficients * self.ranges.low).sum(axis=-1) - middle
        if self.bias:
            intercept = intercept + weights[..., -1] * (1 - 2.0**-self.precision)
        return self.scale.scale * coefficients, self.scale.to_targets(intercept)

    def predict(self, activations: Float64) -> npt.NDArray[Any]:
        """Return the predicted labels, or targets for the linear loss.

        With more than two classes, the largest sum decides.
        """
        if self.classes is None:
            return self.scale.to_targets(activations)
        if activations.ndim == 2:
            return np.array(self.classes)[np.argmax(activations, axis=1)]
        return np.array(self.classes)[metrics.is_larger_class(activations).astype(int)]

    @classmethod
    def of_classes(cls, models: Sequence[GlmModel], classes: tuple[Label, ...]) -> GlmModel:
        """Return a joint model of ``classes``.

        ``models``: one model of two classes, or one per class, trained against the rest.
        """
        if len(classes) == 2:
            return replace(models[0], classes=classes)
        return replace(
            models[0],
            weights=np.stack([model.weights for model in models]),
            float64=np.stack([model.float64 for model in models]),
            classes=classes,
        )

    @property
    def by_class(self) -> list[GlmModel]:
        """The models that :meth:`of_classes` has joined: one of two classes, or one per class."""
        if self.weights.ndim == 1:
            return [self]
        rows = zip(self.weights, self.float64, strict=True)
        return [replace(self, weights=weights, float64=float64) for weights, float64 in rows]

    def save(self, file: BinaryIO) -> None:
        """Write an .npz file for :meth:`load`; NumPy alone can read it too."""
        np.savez(
            file,
            format=FORMAT_VERSION,
            loss=self.loss.key,
            weights=self.weights,
            float64=self.float64,
            low=self.ranges.low,
            high=self.ranges.high,
            precision=self.precision,
            frac=self.frac,
            bias=self.bias,
            l2=self.l2,
            classes=np.array(self.classes or ()),
            columns=np.array(self.columns, dtype=np.str_),
            target=self.target,
            first_index=_NO_INDEX if self.first_index is None else self.first_index,
            target_offset=self.scale.offset,
            target_scale=self.scale.scale,
        )

    @classmethod
    def load(cls, path: Path) -> GlmModel:
        """Read a file that :meth:`save` wrote. Raises InputError for any other file."""
        try:
            arrays = read_archive(path)
            if (version := _integer(arrays, "format")) not in READABLE_VERSIONS:
                raise InputError(f"{path}: a model of format {version}; this version reads 2 and 3")
            model = cls._of(arrays)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from error
        except (ValueError, KeyError) as error:
            raise InputError(f"{path}: no model of fanin train ({error})") from error
        return model

    @classmethod
    def _of(cls, arrays: Arrays) -> GlmModel:
        """Return the model in a file's arrays. Raises ValueError and KeyError; the file is not trusted."""
        low, high, weights, float64 = (arrays[name] for name in ("low", "high", "weights", "float64"))
        bias, classes = bool(_scalar(arrays, "bias", "b")), _classes(arrays)
        rows = (len(classes),) if len(classes) > 2 else ()
        if low.ndim != 1 or low.shape != high.shape or weights.shape != (*rows, len(low) + bias):
            raise ValueError("its arrays do not fit one another")
        if float64.shape != weights.shape:
            raise ValueError("its arrays do not fit one another")
        if weights.dtype != np.int32 or any(array.dtype != np.float64 for array in (low, high, float64)):
            raise ValueError("weights must be of int32, and float64, low and high of float64")
        with np.errstate(over="ignore", invalid="ignore"):
            if not (np.isfinite(high - low).all() and (low <= high).all()):
                raise ValueError("low and high are no ranges of numbers")
        loss = Loss[str(_scalar(arrays, "loss", "U")).upper()]
        if loss.classifies and not classes:
            raise ValueError("classes are missing")
        columns = arrays["columns"]
        if columns.shape not in ((0,), low.shape) or columns.dtype.kind != "U":
            raise ValueError("columns must be a name for each feature")
        first = _integer(arrays, "first_index", _NO_INDEX)
        if first not in (_NO_INDEX, 0, 1):
            raise ValueError(f"first_index must be -1, 0 or 1, not {first}")
        precision, frac = _integer(arrays, "precision"), _integer(arrays, "frac")
        if not 1 <= precision <= MAX_PRECISION:
            raise ValueError(f"precision must be in 1…{MAX_PRECISION}, not {precision}")
        check_frac(frac)
        return cls(
            loss=loss,
            weights=weights,
            float64=float64,
            ranges=ColumnRanges(low, high),
            precision=precision,
            frac=frac,
            bias=bias,
            l2=_number(arrays, "l2"),
            classes=classes or None,
            columns=tuple(columns.tolist()),
            target=str(_scalar(arrays, "target", "U")),
            first_index=None if first == _NO_INDEX else first,
            scale=TargetScale(_number(arrays, "target_offset", 0.0), _number(arrays, "target_scale", 1.0)),
        )


def _scalar(arrays: Arrays, name: str, kinds: str, default: object = None) -> Any:
    """Return the value of an array without dimensions, of one of NumPy's ``kinds``; raise ValueError if not."""
    array = arrays[name] if default is None else arrays.get(name, np.array(default))
    if array.shape or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
    return array.item()


def _integer(arrays: Arrays, name: str, default: int | None = None) -> int:
    return int(_scalar(arrays, name, "iu", default))


def _number(arrays: Arrays, name: str, default: float | None = None) -> float:
    value = float(_scalar(arrays, name, "fiu", default))
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, not {value}")
    return value


def _classes(arrays: Arrays) -> tuple[Label, ...]:
    """Return the labels of the classes; empty without classes. Raises ValueError."""
    classes = arrays["classes"]
    if classes.ndim != 1 or len(classes) == 1 or classes.dtype.kind not in "fiuU":
        raise ValueError(f"classes are {classes.dtype} of shape {classes.shape}")
    return tuple(classes.tolist())


def _by_row(sums: Callable[[npt.NDArray[Any]], Float64], weights: npt.NDArray[Any]) -> Float64:
    return np.column_stack([sums(row) for row in weights]) if weights.ndim == 2 else sums(weights)
