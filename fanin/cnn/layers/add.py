"""Sum of two feature maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fanin.cnn.layers.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Add(Layer):
    """The sum of two inputs."""

    kind: ClassVar[str] = "add"

    def check(self) -> None:
        """Raise ValueError where the inputs differ in shape."""
        if len(set(self.inputs)) > 1:
            raise ValueError(f"its inputs differ in shape: {' and '.join(map(str, self.inputs))}")
