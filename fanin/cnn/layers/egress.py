"""A feature map to another device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Egress(Layer):
    """A feature map to another device, whose gradient comes back if ``gradient``."""

    kind: ClassVar[str] = "egress"
