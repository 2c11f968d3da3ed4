"""Rectifier with an upper limit: min(max(x, 0), 6)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.relu import Relu


@dataclass(frozen=True, kw_only=True)
class Relu6(Relu):
    """min(max(x, 0), 6)."""

    kind: ClassVar[str] = "relu6"
