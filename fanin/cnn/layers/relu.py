"""Rectifier max(x, 0) (layer kind ``relu``). Hardware: ``hdl/layers/relu.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow import parts
from fanin.cnn.flow.graph import Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.arithmetic import Frames, Kernels, State, comparable
from fanin.cnn.layers.layer import Layer, Parallelism


@dataclass(frozen=True, kw_only=True)
class Relu(Layer):
    """Rectifier max(x, 0); it needs no operators, only LUTs."""

    kind: ClassVar[str] = "relu"
    component: ClassVar[str] = "relu.Relu"
    onnx: ClassVar[str] = "Relu"
    channelwise: ClassVar[bool] = True
    passes_through: ClassVar[bool] = True
    LUTS: ClassVar = {
        "ultrascale": {"layer": 3, "lane": 41, "gradient_lane": 68},
        "ecp5": {"layer": 4, "lane": 175, "gradient_lane": 111},
    }

    @property
    def saved_words(self) -> int:
        """Words of the output, which decides where the gradient passes; 0 without gradient."""
        return self.output.words if self.gradient else 0

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add a register slice to the next layer and, if words are saved, one to memory."""
        return stage.give_and_save(sources[0])

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add an actor that pairs each gradient with its saved output."""
        assert flows.replay is not None
        flows.input_gradients = [Source(stage.join("back", [gradients, flows.replay], parts.SLICE_PAYLOADS, 1))]

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Frames]:
        """Return max(x, 0); a NaN passes."""
        (x,) = inputs
        y = np.where(np.signbit(x) & ~np.isnan(x), np.float32(0), x)
        return y, y

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient where the output is a NaN or above 0, else 0."""
        y = replay.reshape(gradient.shape)
        return (np.where((comparable(y) > 0) | np.isnan(y), gradient, np.float32(0)),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return max(x, 0)."""
        return torch.relu(inputs[0])
