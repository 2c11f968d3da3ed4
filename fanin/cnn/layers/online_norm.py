"""Online normalisation by channel, in place of batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fanin.cnn.flow.graph import Pattern, Selection, Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.arithmetic import Float32, Frames, Kernels, State, inverse
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.latencies import ADDER, MULTIPLIER, RESULTS
from fanin.cnn.layers.layer import PIPELINE, REUSE, Layer, Parallelism, Storage, ceil_div, memory

WORDS = 7  # of state a channel: μ, σ², 1/σ and two sums forward; two control terms
WORDS_BACK = 3  # more of them with a gradient: 1/σ of the frame that comes back, the control terms' sums
INTERVAL = 5  #: cycles a channel, when state changes after a frame
PAUSE = 140  #: cycles besides: until sums are final, and for one channel's mean, variance and 1/σ
PAUSE_BACK = 52  #: cycles after the words of a frame on the way back, besides those of its channels
CENTRED = 1 + ADDER  #: cycles from a word that is taken to x ⊖ m,
SCALED = CENTRED + MULTIPLIER  #: and to y
CONTROL_TERM = 1 + MULTIPLIER  #: cycles from a gradient that is taken to ey ⊗ y,
CONTROLLED = CONTROL_TERM + ADDER  #: to a = dy ⊖ (ey ⊗ y),
PRODUCTS = CONTROLLED + MULTIPLIER  #: to a ⊗ r and a ⊗ y,
GRADIENT = PRODUCTS + ADDER  #: and to dx = (a ⊗ r) ⊖ e1
LATENCY, LATENCY_BACK = SCALED + 1, GRADIENT + 1  #: cycles from a word to its result, through a queue
FORWARD_STATE, BACKWARD_STATE = ("mean", "variance", "scale"), ("ey", "e1")  #: scale is r = 1/σ
STATE = FORWARD_STATE + BACKWARD_STATE  #: in memory order


class Constants(NamedTuple):
    """Numbers that the hardware multiplies with, binary32; each is rounded once, from its binary64."""

    alpha: np.float32  #: α = RN(α_fwd)
    beta: np.float32  #: β = RN(1 − α_fwd)
    gain: np.float32  #: k = RN(1 − α_bwd)
    epsilon: np.float32
    share: np.float32  #: RN(1 / (h · w))


@dataclass(frozen=True, kw_only=True)
class OnlineNorm(Layer):
    """Online normalisation by channel, in place of batch normalisation (Chiley et al., NeurIPS 2019)."""

    kind: ClassVar[str] = "online_norm"
    component: ClassVar[str] = "online_norm.OnlineNorm"
    keeps_channels: ClassVar[bool] = True
    pauses: ClassVar[bool] = True
    plan_fields: ClassVar[tuple[str, ...]] = ("forward_decay", "backward_decay", "epsilon")
    # Chiley et al., algorithm 1: forward x − μ, times 1/σ, the frame's sums of that and of its
    # squares; backward two control terms, their two sums, times 1/σ. Fixed: channel by channel, after a frame.
    OPERATORS: ClassVar = {
        "forward": {"add": 2, "mul": 1, "mac": 1},
        "input_gradient": {"add": 2, "mul": 1, "mac": 2},
        "fixed": {"add": 2, "mul": 3},
        "fixed_gradient": {"add": 1, "mul": 1},
    }
    LUTS: ClassVar = {
        "ultrascale": {"layer": 1136, "lane": 300, "gradient": 354, "gradient_lane": 268},
        "ecp5": {"layer": 1197, "lane": 681, "gradient": 321, "gradient_lane": 461},
    }
    forward_decay: float = 0.999  #: α_fwd, of the running mean and variance
    backward_decay: float = 0.99  #: α_bwd, of the control terms
    epsilon: float = 1e-5

    def check(self) -> None:
        """Raise ValueError for decays or an epsilon that are no numbers between 0 and 1."""
        for name in self.plan_fields:
            value = getattr(self, name)
            if not isinstance(value, float) or not 0 < value < 1:
                raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")

    @property
    def constants(self) -> Constants:
        """Numbers that the hardware multiplies with."""
        return Constants(
            np.float32(self.forward_decay),
            np.float32(1 - self.forward_decay),
            np.float32(1 - self.backward_decay),
            np.float32(self.epsilon),
            inverse(self.input.h * self.input.w),
        )

    def groups(self, p: Parallelism) -> int:
        """Transfers that all channels take."""
        return ceil_div(self.input.c, p.po)

    def compute_cycles(self, p: Parallelism) -> int:
        """A channel comes again after ``REUSE`` cycles; 1/σ is saved first; last, state changes."""
        return self.input.h * self.input.w * max(self.groups(p), REUSE) + self.pause(p)

    def pause(self, p: Parallelism) -> int:
        """Cycles in which no word comes in, between a frame's last and the next one's first."""
        return bool(self.saved) * self.groups(p) + INTERVAL * self.input.c + PAUSE

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """While state changes, words wait."""
        pause, _ = super().lags(p)
        pause += Fraction(self.pause(p), self.cycles(p))
        return pause, pause

    @property
    def saved(self) -> int:
        """A frame's 1/σ of every channel and then its output: what the gradient is made of."""
        return self.input.c + self.output.words if self.gradient else 0

    @property
    def state_words(self) -> int:
        """Mean, variance, 1/σ and the two control terms of every channel."""
        return len(STATE) * self.input.c

    def zero_state(self) -> State:
        """``STATE``, (channel,) each: mean 0, variance 1, scale 1, control terms 0."""
        ones = ("variance", "scale")
        return {name: np.full(self.input.c, name in ones, np.float32) for name in STATE}

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """State of every channel, a memory for each word of it."""
        kinds = WORDS + WORDS_BACK * self.gradient
        return kinds * (memory(self.input.c, p.po),)

    def output_times(self, p: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Each word is added to its channel's sums."""
        return paced(inputs[0] + PIPELINE, max(self.groups(p), REUSE))

    def gradient_times(self, p: Parallelism, came: Cycles, port: int) -> Cycles:
        """Each word is added to its channel's sums."""
        return paced(came + PIPELINE, max(ceil_div(self.input.c, p.pi), REUSE))

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """1/σ of all channels to memory, words to both; the next frame begins when state has changed."""
        groups, words = stage.groups, stage.transfers
        scales = groups if self.saved else 0
        intervals = np.ones(scales + words)
        intervals[scales + groups - 1 :: groups] += max(REUSE - groups, 0)
        intervals[-1] += INTERVAL * self.input.c + PAUSE
        actor = stage.parts.actor("forward", scales + words, intervals)
        results = stage.parts.channel("results", RESULTS)
        counts = np.arange(scales + words) - scales + 1
        need, done = (Pattern.of(np.maximum(counts, least)) for least in (1, 0))
        stage.graph.take(actor, sources[0], need, done)
        stage.graph.give(actor, results, delay=LATENCY)
        if not scales:
            return Flows(Source(results))
        outputs = Selection(scales + words, tuple(range(scales, scales + words)))
        return Flows(Source(results, outputs), Source(results))

    def actors_back(self, stage: StageActors, flows: Flows, came: Source) -> None:
        """1/σ of all channels, then words; the next frame begins when control terms have changed."""
        groups, words = stage.groups, stage.transfers
        assert flows.replay is not None
        intervals = np.ones(groups + words)
        intervals[2 * groups - 1 :: groups] += max(REUSE - groups, 0)
        intervals[-1] += INTERVAL * self.input.c + PAUSE_BACK
        actor = stage.parts.actor("back", groups + words, intervals)
        results = stage.parts.channel("input gradients", RESULTS)
        counts = Pattern.of(np.maximum(np.arange(groups + words) - groups + 1, 0))
        stage.graph.take(actor, flows.replay)
        stage.graph.take(actor, came, counts)
        stage.graph.give(actor, results, counts, delay=LATENCY_BACK)
        flows.gradients = [Source(results)]

    def golden(
        self, k: Kernels, p: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Float32]:
        """Frame by frame, each with the state that the one before left."""
        return k.norm_forward(self, state, inputs[0], train)

    def golden_back(
        self, k: Kernels, p: Parallelism, state: State, saved: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Frame by frame, each with the control terms that the one before left."""
        return (k.norm_backward(self, state, saved, gradient),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """In evaluation; ``fanin.torch.cnn`` has the training, whose gradient is no derivative."""
        return (inputs[0] - state["mean"]) * state["scale"]

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Sub and Mul: m is taken away, and the rest is multiplied by r."""
        mean, scale = (graph.channels(part, state[part]) for part in ("mean", "scale"))
        graph.node("Mul", [graph.node("Sub", [*sources, mean], part="centred"), scale])

    def torch_arrays(self, state: State) -> State:
        """``running_mean`` and ``running_var``."""
        return {"running_mean": state["mean"], "running_var": state["variance"]}
