"""Channels of several feature maps side by side."""

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
    """The channels of all inputs side by side, in their order: of each position one input after the other."""

    kind: ClassVar[str] = "concat"
    component: ClassVar[str] = "concat.Concat"
    joins: ClassVar[bool] = True
    hands_on: ClassVar[bool] = True
    takes_turns: ClassVar[bool] = True
    LUTS: ClassVar = {"ultrascale": {"layer": 16, "lane": 31}, "ecp5": {"lane": 137}}

    def check(self) -> None:
        """Raise ValueError where the inputs differ in rows or columns."""
        if len({(shape.h, shape.w) for shape in self.inputs}) > 1:
            raise ValueError(f"its inputs differ in rows or columns: {' and '.join(map(str, self.inputs))}")

    @property
    def output(self) -> Shape:
        """As the inputs, with all channels."""
        return Shape(self.input.h, self.input.w, sum(shape.c for shape in self.inputs))

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every width that divides the channels of each input."""
        for lanes in divisors(gcd(*(shape.c for shape in self.inputs))):
            yield Parallelism(pi=lanes, po=lanes)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """A position waits at most for the turns of the other inputs."""
        pause, _ = super().lags(p)
        pause += Fraction(1, self.input.h * self.input.w)
        return pause, pause

    def logic_units(self, p: Parallelism) -> Mapping[str, int]:
        """A lane is one of an input beyond the first: so many words a multiplexer chooses among."""
        return {"layer": 1, "lane": (len(self.inputs) - 1) * p.po}

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Inputs take turns at a register."""
        actor = stage.parts.actor("forward", stage.transfers)
        outputs = stage.parts.channel("outputs", parts.SLICE)
        turn = np.repeat(np.arange(len(sources)), [shape.c // stage.parallelism.pi for shape in self.inputs])
        for port, source in enumerate(sources):
            stage.graph.take(actor, source, Pattern.of(np.cumsum(turn == port)))
        stage.graph.give(actor, outputs)
        return Flows(Source(outputs))

    def actors_back(self, stage: StageActors, flows: Flows, came: Source) -> None:
        """Of the gradient, the words of each input."""
        flows.gradients = [self._part(stage, came, port) for port in range(len(self.inputs))]

    def _part(self, stage: StageActors, came: Source, port: int) -> Source:
        shapes, lanes = self.inputs, stage.parallelism.pi
        begin = sum(shape.c for shape in shapes[:port]) // lanes
        chosen = range(begin, begin + shapes[port].c // lanes)
        if came.selection is None:
            return Source(came.channel, Selection(stage.groups, tuple(chosen)))
        outer = came.selection  # of a concatenation after this one, a position's tokens each time
        return Source(came.channel, Selection(outer.size, tuple(outer.chosen[k] for k in chosen)))

    def golden(
        self, k: Kernels, p: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, None]:
        """All channels."""
        return np.concatenate(inputs, -1), None

    def golden_back(
        self, k: Kernels, p: Parallelism, state: State, saved: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Each input's channels."""
        ends = np.cumsum([shape.c for shape in self.inputs])
        return tuple(np.split(gradient, ends[:-1], axis=-1))

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """All channels."""
        return torch.cat(list(inputs), -1)

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Concat, over channels."""
        graph.node("Concat", sources, axis=1)
