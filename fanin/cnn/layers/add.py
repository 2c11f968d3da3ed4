"""Sum of two feature maps (layer kind ``add``). Hardware: ``hdl/layers/add.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fanin.cnn.flow.graph import Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.latencies import ADDER
from fanin.cnn.layers.layer import Layer, Parallelism


@dataclass(frozen=True, kw_only=True)
class Add(Layer):
    """Sum of two feature maps."""

    kind: ClassVar[str] = "add"
    component: ClassVar[str] = "add.Add"
    onnx: ClassVar[str] = "Add"
    joins: ClassVar[bool] = True
    passes_through: ClassVar[bool] = True
    OPERATORS: ClassVar = {"forward": {"add": 1}}
    LUTS: ClassVar = {"ultrascale": {"layer": 37, "lane": 50}, "ecp5": {"layer": 51, "lane": 80}}

    def check(self) -> None:
        """Raise ValueError if the inputs differ in shape."""
        if len(set(self.inputs)) > 1:
            raise ValueError(f"its inputs differ in shape: {' and '.join(map(str, self.inputs))}")

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add the adder, of ``ADDER`` cycles, and its PipelineQueue."""
        return Flows(Source(stage.pipeline_queue("adds", sources, ADDER)))

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Use the stream of gradients for each input: both inputs get the same words."""
        flows.input_gradients = [Source(gradients.channel, gradients.selection) for _ in self.inputs]

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return a ⊕ b."""
        return kernels.add(*inputs), None

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient for each input."""
        return len(self.inputs) * (gradient,)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return a + b."""
        return inputs[0] + inputs[1]
