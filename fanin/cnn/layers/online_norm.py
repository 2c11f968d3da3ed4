"""Online normalisation (layer kind ``online_norm``), which replaces batch normalisation.

Hardware: ``hdl/layers/norm_forward.py`` and ``norm_backward.py``, which take their latencies from here.
tests/hdl/layers/test_online_norm.py measures latencies and the exact cycles of a frame, pause included.
"""

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

# Memories on chip: one word a channel each.
FORWARD_MEMORIES = 7  # m, σ², r and two sums forward; two control terms
GRADIENT_MEMORIES = 3  # with a gradient, in addition: r of the gradient's frame, two sums
INTERVAL = 5  #: cycles per channel of the state update after a frame; channels share its operators
#: Cycles of the forward state update in addition to ``INTERVAL`` per channel: until the sums are final, and the
#: latency of one channel's mean, variance and 1/σ. The test of exact cycles holds it.
PAUSE = 140
#: The same of the backward state update, whose result is two control terms without a square root. The forward
#: update is longer, so ``pause`` covers both.
PAUSE_BACK = 52
CENTRED = 1 + ADDER  #: cycles from an input word to x ⊖ m; 1: read of m
SCALED = CENTRED + MULTIPLIER  #: cycles from an input word to y
CONTROL_TERM = 1 + MULTIPLIER  #: cycles from a gradient to ey ⊗ y; 1: read of ey
CONTROLLED = CONTROL_TERM + ADDER  #: cycles from a gradient to a = dy ⊖ (ey ⊗ y)
PRODUCTS = CONTROLLED + MULTIPLIER  #: cycles from a gradient to a ⊗ r and a ⊗ y
GRADIENT = PRODUCTS + ADDER  #: cycles from a gradient to dx = (a ⊗ r) ⊖ e1
LATENCY, LATENCY_BACK = SCALED + 1, GRADIENT + 1  #: cycles from a word to its result, through a queue
FORWARD_STATE, BACKWARD_STATE = ("mean", "variance", "scale"), ("ey", "e1")  #: scale is r = 1/σ
STATE = FORWARD_STATE + BACKWARD_STATE  #: in memory order


class Constants(NamedTuple):
    """Constants of the hardware in binary32, each rounded once from binary64."""

    alpha: np.float32  #: α = RN(α_fwd)
    beta: np.float32  #: β = RN(1 − α_fwd)
    gain: np.float32  #: k = RN(1 − α_bwd)
    epsilon: np.float32
    mean_factor: np.float32  #: RN(1 / (h · w))


@dataclass(frozen=True, kw_only=True)
class OnlineNorm(Layer):
    """Online normalisation by channel, in place of batch normalisation (Chiley et al., NeurIPS 2019).

    - Forward: y = (x − m) · r, with the channel's running mean m and r = 1/σ.
    - Backward: a = dy − ey · y, then dx = a · r − e1. The *control terms* ey and e1 of a channel drive the
      means of a · y and of dx to zero.
    - After each frame, the channel's state follows the means of this frame. The layer pauses meanwhile.
    """

    kind: ClassVar[str] = "online_norm"
    component: ClassVar[str] = "online_norm.OnlineNorm"
    channelwise: ClassVar[bool] = True
    pauses: ClassVar[bool] = True
    plan_fields: ClassVar[tuple[str, ...]] = ("forward_decay", "backward_decay", "epsilon")
    # Chiley et al., algorithm 1.
    # Forward: x − m, its product with r, the frame's sums of x − m and its squares.
    # Backward: two control terms, two sums, the product with r.
    # Fixed: channel by channel, after a frame.
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
    forward_decay: float = 0.999  #: α_fwd, decay of the running mean and variance, in (0, 1)
    backward_decay: float = 0.99  #: α_bwd, decay of the control terms, in (0, 1)
    epsilon: float = 1e-5

    def check(self) -> None:
        """Raise ValueError for a decay or an epsilon outside (0, 1)."""
        for name in self.plan_fields:
            value = getattr(self, name)
            if not isinstance(value, float) or not 0 < value < 1:
                raise ValueError(f"{name} must be a number between 0 and 1, not {value!r}")

    @property
    def constants(self) -> Constants:
        """Constants of the hardware."""
        return Constants(
            alpha=np.float32(self.forward_decay),
            beta=np.float32(1 - self.forward_decay),
            gain=np.float32(1 - self.backward_decay),
            epsilon=np.float32(self.epsilon),
            mean_factor=inverse(self.input.h * self.input.w),
        )

    def groups(self, parallelism: Parallelism) -> int:
        """Return the transfers of a position."""
        return ceil_div(self.input.c, parallelism.po)

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of a frame, h·w · max(⌈c / po⌉, REUSE), and the pause.

        Every position adds to each channel's sums, and an accumulator takes a term every ``REUSE`` cycles.
        """
        return self.input.h * self.input.w * max(self.groups(parallelism), REUSE) + self.pause(parallelism)

    def pause(self, parallelism: Parallelism) -> int:
        """Return the cycles without input between two frames: r is saved, and state changes."""
        return bool(self.saved_words) * self.groups(parallelism) + INTERVAL * self.input.c + PAUSE

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the lags, including the wait while state changes."""
        lag, _ = super().lags(parallelism)
        lag += Fraction(self.pause(parallelism), self.cycles(parallelism))
        return lag, lag

    @property
    def saved_words(self) -> int:
        """Words of r of every channel, then of the output, for the gradient; 0 without gradient."""
        return self.input.c + self.output.words if self.gradient else 0

    @property
    def state_words(self) -> int:
        """Words of ``STATE`` of every channel, that is, of a checkpoint; sums are not part of it."""
        return len(STATE) * self.input.c

    def zero_state(self) -> State:
        """Return ``STATE``, one word a channel: variance and scale are 1, mean and control terms 0."""
        initially_one = ("variance", "scale")
        return {name: np.full(self.input.c, name in initially_one, np.float32) for name in STATE}

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return a memory for each word of a channel's state and sums."""
        count = FORWARD_MEMORIES + GRADIENT_MEMORIES * self.gradient
        return count * (memory(self.input.c, parallelism.po),)

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave; the sums allow at most one position every ``REUSE`` cycles."""
        return paced(inputs[0] + PIPELINE, max(self.groups(parallelism), REUSE))

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave; the sums allow at most one position every ``REUSE`` cycles."""
        return paced(arrivals + PIPELINE, max(ceil_div(self.input.c, parallelism.pi), REUSE))

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add the forward actor. It gives a frame's r to memory, then outputs to memory and the next layer.

        The next frame waits until the state is updated. A period of the actor is a frame: ``scales`` firings
        for r, then one firing per word.
        """
        groups, words = stage.groups, stage.transfers
        scales = groups if self.saved_words else 0
        intervals = np.ones(scales + words)  # cycles until the next firing
        last_of_positions = slice(scales + groups - 1, None, groups)
        intervals[last_of_positions] += max(REUSE - groups, 0)  # a position takes at least REUSE cycles
        intervals[-1] += INTERVAL * self.input.c + PAUSE
        actor = stage.parts.actor("forward", scales + words, intervals)
        results = stage.parts.channel("results", RESULTS)
        counts = np.arange(scales + words) - scales + 1  # words taken, by firing; 0 or less while r is saved
        # The first firing waits for the frame's first word, although it takes none.
        needed_tokens, freed_tokens = (Pattern.of(np.maximum(counts, minimum)) for minimum in (1, 0))
        stage.graph.take(actor, sources[0], needed_tokens, freed_tokens)
        stage.graph.give(actor, results, delay=LATENCY)
        if not scales:
            return Flows(Source(results))
        outputs = Selection(scales + words, tuple(range(scales, scales + words)))
        return Flows(Source(results, outputs), Source(results))

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add the backward actor. It reads a frame's r, then its saved outputs with their gradients.

        The next frame waits until the control terms are updated. A period of the actor is a frame: ``groups``
        firings for r, then one firing per word.
        """
        groups, words = stage.groups, stage.transfers
        assert flows.replay is not None
        intervals = np.ones(groups + words)  # cycles until the next firing
        last_of_positions = slice(2 * groups - 1, None, groups)
        intervals[last_of_positions] += max(REUSE - groups, 0)  # a position takes at least REUSE cycles
        intervals[-1] += INTERVAL * self.input.c + PAUSE_BACK
        actor = stage.parts.actor("back", groups + words, intervals)
        results = stage.parts.channel("input gradients", RESULTS)
        # Gradients taken and given, by firing: none while r is read.
        gradient_counts = Pattern.of(np.maximum(np.arange(groups + words) - groups + 1, 0))
        stage.graph.take(actor, flows.replay)
        stage.graph.take(actor, gradients, gradient_counts)
        stage.graph.give(actor, results, gradient_counts, delay=LATENCY_BACK)
        flows.input_gradients = [Source(results)]

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Float32]:
        """Normalise frame by frame, each with the state after the previous frame."""
        return kernels.norm_forward(self, state, inputs[0], train)

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the input gradients, each frame with the control terms after the previous frame."""
        return (kernels.norm_backward(self, state, replay, gradient),)

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the output of evaluation.

        ``fanin.torch.cnn`` has the training, since this layer's gradient is not the derivative of its output.
        """
        return (inputs[0] - state["mean"]) * state["scale"]

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add Sub and Mul: (x − m) · r."""
        mean, scale = (graph.channels(part, state[part]) for part in ("mean", "scale"))
        graph.node("Mul", [graph.node("Sub", [*sources, mean], part="centred"), scale])

    def torch_arrays(self, state: State) -> State:
        """Return ``running_mean`` and ``running_var``."""
        return {"running_mean": state["mean"], "running_var": state["variance"]}
