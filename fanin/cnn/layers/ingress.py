"""End of a cut edge on the receiving device (layer kind ``ingress``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer, Shape


@dataclass(frozen=True, kw_only=True)
class Ingress(Layer):
    """Source of a feature map that another device sends.

    ``inputs``: empty.
    ``shape``: shape of the map.
    ``learns``: true if the map's gradient is sent back.
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
        """True if downstream layers must send gradients back to this end."""
        return self.learns
