"""Rectifier: max(x, 0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Relu(Layer):
    """max(x, 0); comparators are LUTs."""

    kind: ClassVar[str] = "relu"

    @property
    def saved(self) -> int:
        """Its output, which says where the gradient passes."""
        return self.output.words if self.gradient else 0
