"""Layer kind ``egress``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Egress(Layer):
    """End at which a feature map leaves to another device. ``gradient``: true if its gradient comes back."""

    kind: ClassVar[str] = "egress"
