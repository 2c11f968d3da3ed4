"""Concatenation of feature maps' channels (layer kind ``concat``). Hardware: ``hdl/layers/concat.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow import parts
from fanin.cnn.flow.graph import Pattern, Selection, Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.arithmetic import Frames, Kernels, State
from fanin.cnn.layers.layer import Layer, Parallelism, Shape, divisors


@dataclass(frozen=True, kw_only=True)
class Concat(Layer):
    """Concatenation of all inputs' channels in order: at each position, one input after the other."""

    kind: ClassVar[str] = "concat"
    component: ClassVar[str] = "concat.Concat"
    joins: ClassVar[bool] = True
    passes_through: ClassVar[bool] = True
    takes_turns: ClassVar[bool] = True
    LUTS: ClassVar = {"ultrascale": {"layer": 16, "lane": 31}, "ecp5": {"lane": 137}}

    def check(self) -> None:
        """Raise ValueError if the inputs differ in rows or columns."""
        if len({(shape.h, shape.w) for shape in self.inputs}) > 1:
            raise ValueError(f"its inputs differ in rows or columns: {' and '.join(map(str, self.inputs))}")

    @property
    def output(self) -> Shape:
        """Shape of the inputs with all channels."""
        return Shape(self.input.h, self.input.w, sum(shape.c for shape in self.inputs))

    def parallelisms(self) -> Iterator[Parallelism]:
        """Yield every width that divides the channels of each input."""
        for lanes in divisors(gcd(*(shape.c for shape in self.inputs))):
            yield Parallelism(pi=lanes, po=lanes)

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the lags of outputs and input gradients in frames.

        The inputs take turns within a position, so a word waits for at most one position more.
        """
        lag, _ = super().lags(parallelism)
        position = Fraction(1, self.input.h * self.input.w)  # in frames
        lag += position
        return lag, lag

    def logic_units(self, parallelism: Parallelism) -> Mapping[str, int]:
        """Return the units. ``lane``: words of each input except the first, selected by a multiplexer."""
        return {"layer": 1, "lane": (len(self.inputs) - 1) * parallelism.po}

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add an actor that takes one transfer a firing, from the input whose turn it is."""
        actor = stage.parts.actor("forward", stage.transfers)
        outputs = stage.parts.channel("outputs", parts.SLICE_PAYLOADS)
        # The port of each firing of one position, for example 0, 0, 1 for inputs of two and one transfers.
        turns = np.repeat(np.arange(len(sources)), [shape.c // stage.parallelism.pi for shape in self.inputs])
        for port, source in enumerate(sources):
            taken = np.cumsum(turns == port)  # transfers taken from this input, by firing
            stage.graph.take(actor, source, Pattern.of(taken))
        stage.graph.give(actor, outputs)
        return Flows(Source(outputs))

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Select the part of the gradient that belongs to each input."""
        flows.input_gradients = [self._part(stage, gradients, port) for port in range(len(self.inputs))]

    def _part(self, stage: StageActors, gradients: Source, port: int) -> Source:
        """Return the stream of one input's channels of the gradient."""
        shapes, lanes = self.inputs, stage.parallelism.pi
        first = sum(shape.c for shape in shapes[:port]) // lanes  # transfer of a position, from 0
        indices = range(first, first + shapes[port].c // lanes)
        if gradients.selection is None:
            return Source(gradients.channel, Selection(stage.groups, tuple(indices)))
        outer = gradients.selection  # made by a downstream concatenation
        return Source(gradients.channel, Selection(outer.size, tuple(outer.indices[k] for k in indices)))

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """Return all channels; None: the backward pass needs no saved words."""
        return np.concatenate(inputs, -1), None

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return each input's channels of the gradient."""
        ends = np.cumsum([shape.c for shape in self.inputs])
        return tuple(np.split(gradient, ends[:-1], axis=-1))

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return all channels."""
        return torch.cat(list(inputs), -1)

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add Concat over channels."""
        graph.node("Concat", sources, axis=1)
