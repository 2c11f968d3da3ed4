"""Two-dimensional convolution (layer kind ``conv``). Hardware: ``hdl/layers/convolution.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np

from fanin.cnn.flow import parts
from fanin.cnn.flow.engine import block_gradients, block_outputs
from fanin.cnn.flow.graph import UNLIMITED, Source
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.flow.times import Cycles, paced
from fanin.cnn.layers.arithmetic import Float32, Frames, Kernels, State, zero_parameters
from fanin.cnn.layers.family import Memory
from fanin.cnn.layers.latencies import ADDER, LINES, MULTIPLIER
from fanin.cnn.layers.layer import Parallelism, Storage, ceil_div, divisors
from fanin.cnn.layers.schedule import Schedule, Way
from fanin.cnn.layers.window import Pair, Window, pixel_fits


@dataclass(frozen=True, kw_only=True)
class Conv(Window):
    """Two-dimensional convolution without bias, in ``groups`` of channels.

    Each way (``fanin.cnn.layers.schedule``) has pic × poc × ph multipliers.
    """

    kind: ClassVar[str] = "conv"
    component: ClassVar[str] = "convolution.Convolution"
    depthwise: ClassVar[bool] = False  #: true if every output channel sees one input channel
    plan_fields: ClassVar[tuple[str, ...]] = (*Window.plan_fields, "output_channels", "groups")
    # Update: the learning rate takes a mac, momentum a mul.
    OPERATORS: ClassVar = {
        "forward": {"mac": 1},
        "input_gradient": {"mac": 1},
        "weight_gradient": {"mac": 1},
        "update": {"mac": 1, "mul": 1},
    }
    # Units of ``LUTS``; ``logic_units`` has the number of each.
    # way: loops, places, rings.
    # weight: selection of a parameter's lane.
    # word: masks, first terms, delays of a block's step.
    # level: multiplexers that rotate a step's words to their memories.
    # stream: registers and queues.
    # column: addresses of a memory.
    LUTS: ClassVar = {
        "ultrascale": {"way": 288, "weight": 93, "word": 40, "level": 17, "stream": 23, "column": 58},
        "ecp5": {"way": 358, "weight": 130, "word": 88, "column": 206},
    }
    # Only dense layers spill. A way and a weight cost more, since parameters from DRAM wait in queues.
    SPILLED_LUTS: ClassVar = {"ultrascale": {"way": 610, "weight": 462}, "ecp5": {"weight": 1207}}
    output_channels: int
    groups: int = 1

    def check(self) -> None:
        """Raise ValueError also if groups do not divide the channels."""
        super().check()
        if self.input.c % self.groups or self.output_channels % self.groups:
            channels = f"{self.input.c} input and {self.output_channels} output channels"
            raise ValueError(f"{self.groups} groups do not divide {channels}")

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.output_channels

    @cached_property
    def group(self) -> Pair:
        """Input and output channels of one group."""
        return self.input.c // self.groups, self.output_channels // self.groups

    @property
    def fan_in(self) -> int:
        """Weights of an output word."""
        return self.kernel[0] * self.kernel[1] * self.group[0]

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return self.fan_in * self.output_channels

    def zero_state(self) -> State:
        """Return ``weights`` and ``velocity``, zeros: (ky, kx, input channel of the group, output channel)."""
        return zero_parameters((*self.kernel, self.group[0], self.output_channels))

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Only the chip, since each output position reads every weight."""
        return (Storage.CHIP,)

    @property
    def saved_words(self) -> int:
        """Words of the input, which the weight gradient needs."""
        return self.input.words

    def save_lanes(self, parallelism: Parallelism) -> int:
        """Return the words of an input transfer."""
        return parallelism.pi

    def schedule(self, parallelism: Parallelism) -> Schedule:
        """Return the schedule."""
        return schedule_of(self, parallelism)

    def lags(self, parallelism: Parallelism) -> tuple[Fraction, Fraction]:
        """Return the lags of the schedule."""
        return self.schedule(parallelism).lags

    def compute_cycles(self, parallelism: Parallelism) -> int:
        """Return the cycles of the schedule: one for each step, and the waits of rounds shorter than ``REUSE``.

        A frame has kh·kw · oh·(ow/ph) · g·(ic/g/pic)·(oc/g/poc) steps, for g groups, ic input and oc output
        channels.
        """
        return self.schedule(parallelism).cycles

    def parallelisms(self) -> Iterator[Parallelism]:
        """Yield every (pic, poc, ph), with the streams of ``with_streams``."""
        for pic, poc, ph in product(divisors(self.group[0]), divisors(self.group[1]), divisors(self.output.w)):
            yield self.with_streams(Parallelism(pic=pic, poc=poc, ph=ph))

    def with_streams(self, parallelism: Parallelism) -> Parallelism:
        """Return ``parallelism`` with the narrowest streams that are as fast as the widest ones."""
        ends = tuple(zip((self.input.words, self.output.words), self.stream_widths(parallelism), strict=True))
        cycles = max(self.compute_cycles(parallelism), *(ceil_div(words, widths[-1]) for words, widths in ends))
        pi, po = (next(n for n in widths if words <= n * cycles) for words, widths in ends)
        return replace(parallelism, pi=pi, po=po)

    def stream_widths(self, parallelism: Parallelism) -> tuple[list[int], list[int]]:
        """Return the values of pi and po, ascending: divisors of channels that memories take in a cycle."""
        ends = zip((self.input.c, self.output.c), self.channel_lanes(parallelism), strict=True)
        inputs, outputs = (
            [n for n in divisors(c) if pixel_fits(n, lanes, parallelism.ph)] for c, lanes in ends
        )
        return inputs, outputs

    def channel_lanes(self, parallelism: Parallelism) -> Pair:
        """Return the input and output channels of a step."""
        return parallelism.pic, parallelism.poc

    def logic_units(self, parallelism: Parallelism) -> Mapping[str, int]:
        """Return the units. ``level``: words of a step times the multiplexer levels for ph columns."""
        way_count = 2 + self.gradient
        words = way_count * sum(self.channel_lanes(parallelism)) * parallelism.ph
        return {
            "way": way_count,
            "weight": self.parameter_width(parallelism),
            "word": words,
            "level": words * (parallelism.ph - 1).bit_length(),
            "stream": way_count * (parallelism.pi + parallelism.po),
            "column": way_count * parallelism.ph,
        }

    def lanes(self, parallelism: Parallelism) -> int:
        """Return the multipliers of one way."""
        return parallelism.pic * parallelism.poc * parallelism.ph

    def parameter_width(self, parallelism: Parallelism) -> int:
        """Return the weights read in one cycle; the ph columns share them."""
        return parallelism.pic * parallelism.poc

    def buffers(self, parallelism: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Return the memories of each way: rows of maps, sums, results."""
        schedule = self.schedule(parallelism)
        return tuple(memory for way in schedule.ways for memory in schedule.memories(way))

    def output_times(self, parallelism: Parallelism, inputs: Sequence[Cycles]) -> Cycles:
        """Return when outputs leave, block by block."""
        return block_outputs(self.schedule(parallelism), inputs[0], ceil_div(self.output.c, parallelism.po))

    def gradient_times(self, parallelism: Parallelism, arrivals: Cycles, port: int) -> Cycles:
        """Return when gradients leave: row by row, once all windows that saw a row have added to it."""
        return paced(
            block_gradients(self.schedule(parallelism), arrivals), ceil_div(self.inputs[port].c, parallelism.pi)
        )

    def actors(self, stage: StageActors, sources: list[Source]) -> Flows:
        """Add the forward way. It starts a frame once the frame is admitted, and saves its input to memory."""
        schedule, flows = self.schedule(stage.parallelism), Flows()
        transfers = ceil_div(self.input.words, stage.parallelism.pi)
        flows.save = Source(stage.parts.copy("saved words", sources[0], transfers, parts.SLICE_PAYLOADS))
        flows.admissions = stage.parts.channel("frames", UNLIMITED)
        flows.output = Source(stage.windows(sources[0], schedule, flows.admissions))
        return flows

    def actors_back(self, stage: StageActors, flows: Flows, gradients: Source) -> None:
        """Add the engine of the weight gradient and, if ``gradient`` is true, of the input gradient."""
        assert flows.replay is not None
        schedule, memory_wait = self.schedule(stage.parallelism), stage.memory_wait(stage.transfers)
        weight_actor = parts.weight_gradient(stage.parts, schedule, gradients, flows.replay, memory_wait)
        # Latencies from a step: window read, products, adder tree.
        product_latency = LINES + MULTIPLIER + ADDER * (stage.parallelism.ph - 1).bit_length()
        steps = parts.block_steps(schedule, Way.WEIGHT_GRADIENT)
        flows.gradient_actors.append((weight_actor, schedule.blocks, steps + product_latency + ADDER))
        if not self.gradient:
            return
        tree_inputs = 1 if schedule.depthwise else schedule.lanes_out
        term_latency = LINES + MULTIPLIER + ADDER * (tree_inputs - 1).bit_length()
        if stage.storage is Storage.DRAM:
            term_latency += schedule.tile * schedule.ogs  # until the last tile is folded
        input_gradients, input_actor = parts.input_gradient(
            stage.parts, schedule, gradients, term_latency, extra_delay=memory_wait
        )
        flows.input_gradients = [Source(input_gradients)]
        steps = parts.block_steps(schedule, Way.INPUT_GRADIENT)
        flows.gradient_actors.append((input_actor, schedule.blocks, steps + LINES))

    def golden(
        self, kernels: Kernels, parallelism: Parallelism, state: State, inputs: Sequence[Frames], train: bool
    ) -> tuple[Frames, Frames]:
        """Return the output, and the input as saved words."""
        (x,) = inputs
        pic, _ = self._trees(parallelism)
        y = kernels.outputs(self, pic, self._by_group(x), self._weights_by_group(state["weights"]))
        return y.reshape(*y.shape[:3], self.channels), x

    def golden_back(
        self, kernels: Kernels, parallelism: Parallelism, state: State, replay: Frames, gradient: Frames
    ) -> tuple[Frames, ...]:
        """Return the gradient of the input, if any. Fold the gradient of the weights into the velocity."""
        _, poc = self._trees(parallelism)
        x, dy = self._by_group(replay), gradient.reshape(*gradient.shape[:3], self.groups, self.group[1])
        velocity = state["velocity"]
        folded = kernels.weight_gradient(self, parallelism.ph, x, dy, self._weights_by_group(velocity))
        state["velocity"] = folded.reshape(velocity.shape)
        if not self.gradient:
            return ()
        weights = self._weights_by_group(state["weights"])
        dx = self.crop(kernels.input_gradient(self, poc, weights, dy, np.zeros_like(x)))
        shape = self.inputs[0]
        return (dx.reshape(len(dx), shape.h, shape.w, shape.c),)

    def _trees(self, parallelism: Parallelism) -> Pair:
        """Return the input and output channels that an adder tree sums: one each if depthwise.

        Raises ValueError if the parallelism does not divide channels or columns.
        """
        pic, poc = (1, 1) if self.depthwise else (parallelism.pic, parallelism.poc)
        ic, oc = self.group
        if ic % pic or oc % poc or self.output.w % parallelism.ph:
            raise ValueError(f"{parallelism} does not divide {ic} → {oc} channels and {self.output.w} columns")
        return pic, poc

    def _by_group(self, x: Float32) -> Float32:
        """Return the padded input by group; a dense layer's input is flattened."""
        shape = self.input
        return self.pad(x.reshape(len(x), shape.h, shape.w, self.groups, self.group[0]))

    def _weights_by_group(self, weights: Float32) -> Float32:
        return weights.reshape(*self.kernel, self.group[0], self.groups, self.group[1])

    def memory_blocks(self, parallelism: Parallelism) -> tuple[int, ...] | None:
        """Return the axes of the weights: channels split into (ig, i), g, (og, o)."""
        ic, oc = self.group
        return (
            *self.kernel,
            ic // parallelism.pic,
            parallelism.pic,
            self.groups,
            oc // parallelism.poc,
            parallelism.poc,
        )

    def float64(self, torch: Any, state: Any, inputs: Sequence[Any]) -> Any:
        """Return the output, differentiable in binary64."""
        shape = self.input
        padded = self.padded64(torch, inputs[0].reshape(-1, shape.h, shape.w, shape.c))
        weights = state["weights"].permute(3, 2, 0, 1)
        y = torch.nn.functional.conv2d(padded, weights, stride=self.stride, groups=self.groups)
        return y.permute(0, 2, 3, 1)

    def channels_first(self, weights: Float32) -> Float32:
        """Return weights as (output, input channel, ky, kx); a dense layer's kernel is the whole image."""
        return np.ascontiguousarray(weights.transpose(3, 2, 0, 1))

    def onnx_nodes(self, graph: Any, sources: Sequence[str], state: State) -> None:
        """Add Conv; the window of a dense layer is the whole image."""
        weights = self.channels_first(state["weights"])
        window = self.onnx_window() | {"kernel_shape": weights.shape[2:]}
        graph.node("Conv", [*sources, graph.constant("weights", weights)], group=self.groups, **window)

    def torch_arrays(self, state: State) -> State:
        """Return ``weight``."""
        return {"weight": self.channels_first(state["weights"])}


@lru_cache(maxsize=1 << 16)
def schedule_of(layer: Conv, parallelism: Parallelism) -> Schedule:
    """Return the schedule of a convolution, cached because layers use it often."""
    return Schedule(layer, parallelism)
