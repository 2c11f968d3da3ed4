"""End of a cut edge on the sending device (layer kind ``egress``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Egress(Layer):
    """Sink of a feature map that is sent to another device.

    ``gradient``: true if the other device returns the map's gradient.
    """

    kind: ClassVar[str] = "egress"
