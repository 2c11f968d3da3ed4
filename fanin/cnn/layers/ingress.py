"""Layer kind ``ingress``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer, Shape


@dataclass(frozen=True, kw_only=True)
class Ingress(Layer):
    """End at which a feature map arrives from another device.

    ``inputs`` is empty. ``shape``: shape of the map; ``learns``: true if its gradient is sent back.
    """

    kind: ClassVar[str] = "ingress"
    inputs: tuple[Shape, ...] = ()
    shape: Shape
    learns: bool

    @property
    def output(self) -> Shape:
        """Shape of the map from the other device."""
        return self.shape

    @property
    def trains(self) -> bool:
        """True if downstream layers must send gradients back to it."""
        return self.learns
