"""A feature map from another device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer, Shape


@dataclass(frozen=True, kw_only=True)
class Ingress(Layer):
    """A feature map from another device. ``learns``: its gradient goes back there. ``inputs`` is empty."""

    kind: ClassVar[str] = "ingress"
    inputs: tuple[Shape, ...] = ()
    shape: Shape
    learns: bool

    @property
    def output(self) -> Shape:
        """What the other device sends."""
        return self.shape

    @property
    def trains(self) -> bool:
        """Whether the layer after it sends a gradient."""
        return self.learns
