"""Layers that take a word and give a word: bias, activations, addition, normalisation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import REUSE, Layer, Parallelism, Shape, Storage, ceil_div, divisors, memory

NORM_STATE = 7  # words a channel: μ, σ², 1/σ and two sums forward; two control terms
NORM_STATE_BACK = 3  # more of them with a gradient: 1/σ of the frame that comes back, the control terms' sums
NORM_INTERVAL = 5  #: cycles a channel, when state changes after a frame
NORM_PAUSE = 140  #: cycles besides: until sums are final, and for one channel's mean, variance and 1/σ


@dataclass(frozen=True, kw_only=True)
class Bias(Layer):
    """Adds a trained word per channel."""

    kind: ClassVar[str] = "bias"

    @property
    def parameters(self) -> int:
        """One per channel."""
        return self.input.c

    def compute_cycles(self, p: Parallelism) -> int:
        """h·w·max(c/po, 8): on the way back every position adds to each channel's velocity."""
        return self.input.h * self.input.w * max(ceil_div(self.input.c, p.po), REUSE)


@dataclass(frozen=True, kw_only=True)
class Relu(Layer):
    """max(x, 0); comparators are LUTs."""

    kind: ClassVar[str] = "relu"

    @property
    def saved(self) -> int:
        """Its output, which says where the gradient passes."""
        return self.output.words if self.gradient else 0


@dataclass(frozen=True, kw_only=True)
class Relu6(Relu):
    """min(max(x, 0), 6)."""

    kind: ClassVar[str] = "relu6"


@dataclass(frozen=True, kw_only=True)
class Add(Layer):
    """The sum of two inputs."""

    kind: ClassVar[str] = "add"

    def check(self) -> None:
        """Raise ValueError where the inputs differ in shape."""
        if len(set(self.inputs)) > 1:
            raise ValueError(f"its inputs differ in shape: {' and '.join(map(str, self.inputs))}")


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


@dataclass(frozen=True, kw_only=True)
class OnlineNorm(Layer):
    """Online normalisation by channel, in place of batch normalisation (Chiley et al., NeurIPS 2019)."""

    kind: ClassVar[str] = "online_norm"
    forward_decay: float = 0.999  #: α_fwd, of the running mean and variance
    backward_decay: float = 0.99  #: α_bwd, of the control terms
    epsilon: float = 1e-5

    def check(self) -> None:
        """Raise ValueError for decays or an epsilon that are no numbers between 0 and 1."""
        for name in ("forward_decay", "backward_decay", "epsilon"):
            value = getattr(self, name)
            if not isinstance(value, float) or not 0 < value < 1:
                raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")

    def groups(self, p: Parallelism) -> int:
        """Transfers that all channels take."""
        return ceil_div(self.input.c, p.po)

    def compute_cycles(self, p: Parallelism) -> int:
        """A channel comes again after ``REUSE`` cycles; 1/σ is saved first; last, state changes."""
        return self.input.h * self.input.w * max(self.groups(p), REUSE) + self.pause(p)

    def pause(self, p: Parallelism) -> int:
        """Cycles in which no word comes in, between a frame's last and the next one's first."""
        return bool(self.saved) * self.groups(p) + NORM_INTERVAL * self.input.c + NORM_PAUSE

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """While state changes, words wait."""
        pause, _ = super().lags(p)
        pause += Fraction(self.pause(p), self.cycles(p))
        return pause, pause

    @property
    def saved(self) -> int:
        """A frame's 1/σ of every channel and, behind it, its output: what the gradient is made of."""
        return self.input.c + self.output.words if self.gradient else 0

    @property
    def state_words(self) -> int:
        """Mean, variance, 1/σ and the two control terms of every channel."""
        return 5 * self.input.c

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """State of every channel, a memory for each word of it."""
        kinds = NORM_STATE + NORM_STATE_BACK * self.gradient
        return kinds * (memory(self.input.c, p.po),)
