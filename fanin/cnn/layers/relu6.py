"""Rectifier with an upper limit of 6 (layer kind ``relu6``). Hardware: ``hdl/layers/relu.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fanin.cnn.layers.arithmetic import Frames, State
from fanin.cnn.layers.relu import Relu

LIMIT = np.float32(6)  #: largest output


@dataclass(frozen=True, kw_only=True)
class Relu6(Relu):
    """Rectifier with an upper limit, min(max(x, 0), 6)."""

    kind: ClassVar[str] = "relu6"
    component: ClassVar[str] = "relu.Relu6"
    onnx: ClassVar[str] = ""
    LUTS: ClassVar = {
        "ultrascale": {"layer": 4, "lane": 45, "gradient_lane": 145, "mask": 184, "mask_lane": 90},
        "ecp5": {"layer": 9, "lane": 130, "gradient_lane": 85, "mask": 300, "mask_lane": 145},
    }

    def rectified(self, x: Frames) -> Frames:
        """Return min(max(x, 0), 6); a NaN passes."""
        y = super().rectified(x)
        return np.where(y > LIMIT, LIMIT, y)

    def passes(self, y: Frames) -> NDArray[np.bool_]:
        """Return where the gradient passes: the output is a NaN, or above 0 and below 6."""
        return super().passes(y) & ((y < LIMIT) | np.isnan(y))

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return min(max(x, 0), 6)."""
        return torch.nn.functional.relu6(inputs[0])

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add Clip, with limits as inputs."""
        limits = [graph.constant(part, np.float32(value)) for part, value in (("min", 0), ("max", LIMIT))]
        graph.node("Clip", [*sources, *limits])
