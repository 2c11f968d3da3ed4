"""Trained GLM with the data that predictions need: scaling, number format, classes, float64 weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fanin.base.archive import read_archive
from fanin.base.errors import InputError
from fanin.fixed import Loss
from fanin.glm.golden import metrics
from fanin.glm.golden.quantise import ColumnRanges, Features, Float64, quantise
from fanin.glm.golden.targets import UNSCALED, TargetScale

Label: TypeAlias = float | str

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

    def save(self, file: BinaryIO) -> None:
        """Write an .npz file for :meth:`load`; NumPy alone can read it too."""
        np.savez(
            file,
            format=FORMAT_VERSION,
            loss=self.loss.name.lower(),
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
            if (version := int(arrays["format"])) not in READABLE_VERSIONS:
                raise InputError(f"{path}: a model of format {version}; this version reads 2 and 3")
            model = cls._of(arrays)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: no model of fanin train ({error})") from error
        return model

    @classmethod
    def _of(cls, arrays: dict[str, npt.NDArray[Any]]) -> GlmModel:
        low, high, weights = arrays["low"], arrays["high"], arrays["weights"]
        bias, classes = bool(arrays["bias"]), tuple(arrays["classes"].tolist())
        first = int(arrays.get("first_index", _NO_INDEX))
        rows = (len(classes),) if len(classes) > 2 else ()
        if not low.shape == high.shape or not weights.shape == arrays["float64"].shape == (
            *rows,
            len(low) + bias,
        ):
            raise ValueError("its arrays do not fit one another")
        return cls(
            loss=Loss[str(arrays["loss"]).upper()],
            weights=weights,
            float64=arrays["float64"],
            ranges=ColumnRanges(low, high),
            precision=int(arrays["precision"]),
            frac=int(arrays["frac"]),
            bias=bias,
            l2=float(arrays["l2"]),
            classes=classes or None,
            columns=tuple(arrays["columns"].tolist()),
            target=str(arrays["target"]),
            first_index=None if first == _NO_INDEX else first,
            scale=TargetScale(float(arrays.get("target_offset", 0.0)), float(arrays.get("target_scale", 1.0))),
        )


def _by_row(sums: Callable[[npt.NDArray[Any]], Float64], weights: npt.NDArray[Any]) -> Float64:
    return np.column_stack([sums(row) for row in weights]) if weights.ndim == 2 else sums(weights)
