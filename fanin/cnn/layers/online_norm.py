"""Online normalisation by channel, in place of batch normalisation."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.layer import REUSE, Layer, Parallelism, Storage, ceil_div, memory

NORM_STATE = 7  # words a channel: μ, σ², 1/σ and two sums forward; two control terms
NORM_STATE_BACK = 3  # more of them with a gradient: 1/σ of the frame that comes back, the control terms' sums
NORM_INTERVAL = 5  #: cycles a channel, when state changes after a frame
NORM_PAUSE = 140  #: cycles besides: until sums are final, and for one channel's mean, variance and 1/σ


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
