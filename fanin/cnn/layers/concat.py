"""Channels of several feature maps side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import ClassVar

from fanin.cnn.layers.layer import Layer, Parallelism, Shape, divisors


@dataclass(frozen=True, kw_only=True)
class Concat(Layer):
    """The channels of all inputs side by side, in their order: of each position one input after the other."""

    kind: ClassVar[str] = "concat"
    takes_turns: ClassVar[bool] = True

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
