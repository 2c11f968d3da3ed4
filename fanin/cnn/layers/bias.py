"""Bias of each channel (layer kind ``bias``). Hardware: ``hdl/layers/bias.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fanin.cnn.flow import parts
from fanin.cnn.flow.graph import UNLIMITED, Source, at_first
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.arithmetic import Frames, Kernels, State, zero_parameters
from fanin.cnn.layers.latencies import ADDER
from fanin.cnn.layers.layer import PIPELINE, REUSE, Layer, Parallelism, ceil_div

#: Cycles from an input word to its sum: read of the bias, addition, PipelineQueue.
#: tests/hdl/layers/test_bias.py measures them.
LATENCY = 1 + ADDER + 1


@dataclass(frozen=True, kw_only=True)
class Bias(Layer):
    """Bias, which adds a trained word per channel."""

    kind: ClassVar[str] = "bias"
    component: ClassVar[str] = "bias.Bias"
    channelwise: ClassVar[bool] = True
    passes_through: ClassVar[bool] = True
    OPERATORS: ClassVar = {
        "forward": {"add": 1},
        "weight_gradient": {"add": 1},
        "update": {"mac": 1, "mul": 1},
    }
    LUTS: ClassVar = {
        "ultrascale": {"layer": 565, "lane": 115, "gradient_lane": 37},
        "ecp5": {"layer": 353, "lane": 367, "gradient": 170},
    }

    @property
    def parameters(self) -> int:
        """Number of trained words: one per channel."""
        return self.input.c

    def zero_state(self) -> State:
        """Return ``weights`` and ``velocity``: (channel,), zeros."""
        return zero_parameters((self.input.c,))

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of the backward pass, h·w · max(⌈c / po⌉, REUSE).

        Every position adds to each channel's velocity, and an accumulator takes a term every ``REUSE`` cycles.
        """
        return self.input.h * self.input.w * max(ceil_div(self.input.c, parallelism.po), REUSE)

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave; the velocities allow at most one position every ``REUSE`` cycles."""
        return paced(arrivals + PIPELINE, max(ceil_div(self.input.c, parallelism.pi), REUSE))

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add the adder's actor; the first word of a frame waits until the frame is admitted."""
        admissions = stage.parts.channel("frames", UNLIMITED)
        actor = stage.parts.actor("forward", stage.transfers)
        outputs = stage.parts.channel("outputs", LATENCY + 1)  # places of a PipelineQueue of LATENCY - 1
        stage.graph.take(actor, sources[0])
        stage.graph.take(actor, admissions, at_first(stage.transfers))
        stage.graph.give(actor, outputs, delay=LATENCY)
        return Flows(Source(outputs), admissions=admissions)

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add the backward actor; a position waits until its channels' sums may be used again."""
        actor = stage.parts.actor("back", stage.transfers, parts.position_intervals(stage.groups, REUSE))
        stage.graph.take(actor, gradients)
        if self.gradient:
            input_gradients = stage.parts.channel("input gradients", parts.SLICE_PAYLOADS)
            stage.graph.give(actor, input_gradients)
            flows.input_gradients = [Source(input_gradients)]
        flows.gradient_actors.append((actor, stage.transfers, REUSE))

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return x ⊕ b."""
        return kernels.add(inputs[0], state["weights"]), None

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient itself. Fold the bias's gradient into the velocity."""
        state["velocity"] = kernels.fold(gradient.reshape(-1, gradient.shape[-1]), state["velocity"])
        return (gradient,)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return x + b."""
        return inputs[0] + state["weights"]

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add the node Add with a constant."""
        graph.node("Add", [*sources, graph.channels("bias", state["weights"])])

    def torch_arrays(self, state: State) -> State:
        """Return ``bias``."""
        return {"bias": state["weights"]}
