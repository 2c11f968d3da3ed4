"""Layers that move a window over their input: convolutions, im2col, pools; and dense, whose window is all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import product
from typing import ClassVar

from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.layer import (
    REUSE,
    Layer,
    Parallelism,
    Shape,
    Storage,
    ceil_div,
    check_sizes,
    divisors,
    memory,
)
from fanin.cnn.layers.schedule import Raster, Schedule, Way

Pair = tuple[int, int]
Padding = str | int | tuple[int, int, int, int]


def pair(name: str, value: object) -> Pair:
    """(vertical, horizontal) of one number or two. Raises ValueError."""
    both = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(both) != 2:
        raise ValueError(f"{name} must be one number or two, not {value!r}")
    check_sizes(**{name: both[0]})
    check_sizes(**{name: both[1]})
    return both


def find_padding(padding: Padding, shape: Shape, kernel: Pair, stride: Pair) -> tuple[int, int, int, int]:
    """(top, left, bottom, right). "same": ⌈size / stride⌉ outputs, odd pixels below and right."""
    if padding == "valid":
        return (0, 0, 0, 0)
    if padding == "same":
        total = [
            max((-(-size // step) - 1) * step + k - size, 0)
            for size, k, step in zip((shape.h, shape.w), kernel, stride, strict=True)
        ]
        top, left = (t // 2 for t in total)
        return (top, left, total[0] - top, total[1] - left)
    sides = 4 * (padding,) if isinstance(padding, int) else padding
    if (
        not isinstance(sides, (tuple, list))
        or len(sides) != 4
        or any(isinstance(side, bool) or not isinstance(side, int) or side < 0 for side in sides)
    ):
        raise ValueError(
            f'padding must be "same", "valid", a number or (top, left, bottom, right), not {padding!r}'
        )
    return (sides[0], sides[1], sides[2], sides[3])


def pixel_fits(width: int, lanes: int, columns: int) -> bool:
    """Whether ``columns`` memories of ``lanes`` words take ``width`` neighbouring channels of a column at once.

    That is a part of the lanes, or up to ``columns`` times all of them.
    """
    return lanes % width == 0 or (width % lanes == 0 and width // lanes <= columns)


@dataclass(frozen=True, kw_only=True)
class Window(Layer):
    """A window of ``kernel`` (rows, columns) that moves in steps of ``stride`` over the padded input."""

    kernel: Pair
    stride: Pair
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)  #: top, left, bottom, right

    def check(self) -> None:
        """Raise ValueError where the padded input is smaller than the window."""
        top, left, bottom, right = self.padding
        height, width = self.input.h + top + bottom, self.input.w + left + right
        if self.kernel[0] > height or self.kernel[1] > width:
            window = f"{self.kernel[0]}×{self.kernel[1]}"
            raise ValueError(f"a window of {window} does not fit {height}×{width} (padding included)")

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.input.c

    @cached_property
    def output(self) -> Shape:
        """Positions of the window, by channels."""
        top, left, bottom, right = self.padding
        return Shape(
            (self.input.h + top + bottom - self.kernel[0]) // self.stride[0] + 1,
            (self.input.w + left + right - self.kernel[1]) // self.stride[1] + 1,
            self.channels,
        )

    @property
    def delay(self) -> Fraction:
        """The rows of the first window, a row of output being computed, and one being handed on."""
        rows = min(max(self.kernel[0] - self.padding[0], 1), self.input.h)
        return Fraction(rows, self.input.h) + Fraction(2, self.output.h)


@dataclass(frozen=True, kw_only=True)
class Conv(Window):
    """Two-dimensional convolution without bias, in ``groups``: pic × poc × ph multipliers each way."""

    kind: ClassVar[str] = "conv"
    depthwise: ClassVar[bool] = False  #: whether every output channel sees one input channel
    output_channels: int
    groups: int = 1

    def check(self) -> None:
        """Raise ValueError where groups do not divide the channels, too."""
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
    def parameters(self) -> int:
        """Weights."""
        return self.kernel[0] * self.kernel[1] * self.group[0] * self.output_channels

    @property
    def storages(self) -> tuple[Storage, ...]:
        """The chip: a weight is needed again for every position."""
        return (Storage.CHIP,)

    @property
    def saved(self) -> int:
        """The input, for the weights' gradient."""
        return self.input.words

    def save_lanes(self, p: Parallelism) -> int:
        """As the input comes."""
        return p.pi

    def schedule(self, p: Parallelism) -> Schedule:
        """When it multiplies what."""
        return _schedule(self, p)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """Those of the schedule."""
        return self.schedule(p).lags

    def compute_cycles(self, p: Parallelism) -> int:
        """A step for every (ic/g/pic)·g·(oc/g/poc)·oh·(ow/ph)·kh·kw, and what rounds wait for the adders."""
        return self.schedule(p).cycles

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every (pic, poc, ph), with streams as ``with_streams`` has them."""
        for pic, poc, ph in product(divisors(self.group[0]), divisors(self.group[1]), divisors(self.output.w)):
            yield self.with_streams(Parallelism(pic=pic, poc=poc, ph=ph))

    def with_streams(self, p: Parallelism) -> Parallelism:
        """``p`` with the narrowest streams that slow its multipliers down as little as any do."""
        ends = tuple(zip((self.input.words, self.output.words), self.stream_widths(p), strict=True))
        cycles = max(self.compute_cycles(p), *(ceil_div(words, widths[-1]) for words, widths in ends))
        pi, po = (next(n for n in widths if words <= n * cycles) for words, widths in ends)
        return Parallelism(pic=p.pic, poc=p.poc, ph=p.ph, pi=pi, po=po)

    def stream_widths(self, p: Parallelism) -> tuple[list[int], list[int]]:
        """What pi and po may be, ascending: divisors of the channels that the memories take in a cycle."""
        ends = zip((self.input.c, self.output.c), self.channel_lanes(p), strict=True)
        inputs, outputs = ([n for n in divisors(c) if pixel_fits(n, lanes, p.ph)] for c, lanes in ends)
        return inputs, outputs

    def channel_lanes(self, p: Parallelism) -> Pair:
        """Input and output channels of a step."""
        return p.pic, p.poc

    def logic_part(self, storage: Storage) -> str:
        """One component for all kinds."""
        return "convolution" if storage is Storage.CHIP else "streamed dense"

    def logic_units(self, p: Parallelism) -> Mapping[str, int]:
        """Ways; the words of a block's step that they move, each turned by as many levels as ph asks for."""
        ways = 2 + self.gradient
        words = ways * sum(self.channel_lanes(p)) * p.ph
        return {
            "way": ways,
            "weight": self.parameter_width(p),
            "word": words,
            "level": words * (p.ph - 1).bit_length(),
            "stream": ways * (p.pi + p.po),
            "column": ways * p.ph,
        }

    def lanes(self, p: Parallelism) -> int:
        """Multipliers of one way."""
        return p.pic * p.poc * p.ph

    def parameter_width(self, p: Parallelism) -> int:
        """Weights of a cycle: columns share them."""
        return p.pic * p.poc

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Rows of maps, sums and results, of each way."""
        schedule = self.schedule(p)
        return tuple(found for way in schedule.ways for found in schedule.memories(way))


@lru_cache(maxsize=1 << 16)
def _schedule(layer: Conv, p: Parallelism) -> Schedule:
    return Schedule(layer, p)


@dataclass(frozen=True, kw_only=True)
class DepthwiseConv(Conv):
    """A convolution of every channel by itself: poc × ph multipliers each way."""

    kind: ClassVar[str] = "dwconv"
    depthwise: ClassVar[bool] = True

    def check(self) -> None:
        """Raise ValueError where a group is more than one channel, too."""
        super().check()
        if not self.groups == self.output_channels == self.input.c:
            raise ValueError(f"{self.input.c} channels are not {self.groups} groups of one each")

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every (poc, ph), with streams as ``with_streams`` has them."""
        for poc, ph in product(divisors(self.input.c), divisors(self.output.w)):
            yield self.with_streams(Parallelism(poc=poc, ph=ph))

    def channel_lanes(self, p: Parallelism) -> Pair:
        """Channels of a step, each an input and an output."""
        return p.poc, p.poc


@dataclass(frozen=True, kw_only=True)
class Dense(Conv):
    """Fully connected: a convolution whose window is the whole input, flattened."""

    kind: ClassVar[str] = "dense"
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Chip or DRAM: a weight is needed once a frame and way."""
        return tuple(Storage)

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """With the weights in DRAM, instead of the input gradient's rows those of its terms, and sums."""
        if storage is Storage.CHIP or not self.gradient:
            return super().buffers(p, storage)
        schedule, width = self.schedule(p), WORD_BITS * p.pic
        return (
            *schedule.memories(Way.FORWARD),
            *schedule.memories(Way.WEIGHT_GRADIENT),
            *schedule.outputs.memories(schedule.output_rows),
            Memory(width=width, depth=schedule.term_rows * schedule.ogs),
            Memory(width=width, depth=schedule.tile),
        )

    @property
    def input(self) -> Shape:
        """The input, flattened."""
        return Shape(1, 1, self.inputs[0].words)


@dataclass(frozen=True, kw_only=True)
class Im2col(Window):
    """Every window's words side by side, as channels: what turns a convolution into a 1×1 one."""

    kind: ClassVar[str] = "im2col"
    ADDED: ClassVar[int] = 22  #: cycles from a row's last gradient until words of complete rows leave

    @property
    def channels(self) -> int:
        """Channels of the output."""
        return self.kernel[0] * self.kernel[1] * self.input.c

    def logic_units(self, p: Parallelism) -> Mapping[str, int]:
        """Lanes of the lines, and of the stream of windows."""
        return {
            "layer": 1,
            "lane": p.pi,
            "window_lane": p.po,
            "gradient": int(self.gradient),
            "gradient_lane": self.gradient * p.pi,
        }

    def parallelisms(self) -> Iterator[Parallelism]:
        """Every pair of stream widths."""
        for pi, po in product(divisors(self.input.c), divisors(self.output.c)):
            yield Parallelism(pi=pi, po=po)

    def compute_cycles(self, p: Parallelism) -> int:
        """Of its positions."""
        return self.output.h * self.output.w * self.position_cycles(p)

    def position_cycles(self, p: Parallelism) -> int:
        """Cycles of a window: pi words a cycle, or more if a sum were used again within 8 on the way back.

        Windows that lie ``down`` rows and ``right`` columns apart share inputs, which come ``earlier`` in the
        later one by so many steps.
        """
        (height, width), (vertical, horizontal) = self.kernel, self.stride
        groups = ceil_div(self.input.c, p.pi)
        period = height * width * groups
        if not self.gradient:
            return period
        for down in range(min(ceil_div(height, vertical), self.output.h)):
            reach = min(ceil_div(width, horizontal), self.output.w)
            for right in range(1 - reach, reach):
                positions = down * self.output.w + right
                earlier = (down * vertical * width + right * horizontal) * groups
                if positions > 0:
                    period = max(period, ceil_div(REUSE + earlier, positions))
        return period

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Rows; on the way back rows that overlapping windows are added in, with a second port to leave by."""
        raster, period = self.raster(p), self.cycles(p)
        found = raster.memories(raster.ring(period))
        return found + self.gradient * raster.memories(raster.ring_back(period, self.ADDED), copies=2)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """Those of its rows, and of a window."""
        (pause, _), (forward, backward) = super().lags(p), self.raster(p).lags
        pause += Fraction(1, self.output.h * self.output.w)
        return pause + forward, pause + backward

    def raster(self, p: Parallelism) -> Raster:
        """The input, as windows see it that are read ``pi`` words at a time."""
        return Raster(
            height=self.input.h,
            width=self.input.w,
            groups=self.input.c // p.pi,
            lanes=p.pi,
            columns=1,
            positions=self.output.w,
            steps=self.output.h,
            kernel=self.kernel,
            stride=self.stride,
            top=self.padding[0],
            left=self.padding[1],
        )


@dataclass(frozen=True, kw_only=True)
class Pool(Window):
    """A window that makes one word a channel: it moves as that of a depthwise convolution."""

    def compute_cycles(self, p: Parallelism) -> int:
        """kh·kw·max(oh·ow·c/po, 8): each output takes a word of its window at a time, into one accumulator."""
        outputs = self.output.h * self.output.w * ceil_div(self.input.c, p.po)
        return self.kernel[0] * self.kernel[1] * max(outputs, REUSE)

    def schedule(self, p: Parallelism) -> Schedule:
        """That of a depthwise convolution with the same window and streams, ``po`` channels at once."""
        convolution = DepthwiseConv(
            inputs=self.inputs,
            gradient=self.gradient,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            output_channels=self.input.c,
            groups=self.input.c,
        )
        return _schedule(convolution, Parallelism(poc=p.po, pi=p.pi, po=p.po))

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """Those of the schedule."""
        return self.schedule(p).lags


@dataclass(frozen=True, kw_only=True)
class MaxPool(Pool):
    """The largest word of every window, by channel; of equals the first in raster order."""

    kind: ClassVar[str] = "max_pool"

    def check(self) -> None:
        """Raise ValueError where a window would see nothing but padding, too."""
        super().check()
        if any(side >= size for side, size in zip(self.padding, 2 * self.kernel, strict=True)):
            window = f"{self.kernel[0]}×{self.kernel[1]}"
            raise ValueError(f"a window of {window} would see nothing but padding, which is {self.padding}")

    @property
    def saved(self) -> int:
        """Where in its window each output was found: row · kernel width + column, a word each."""
        return self.output.words if self.gradient else 0

    def pairs(self, p: Parallelism) -> Raster:
        """Outputs, or their gradients, each group beside its places in the windows."""
        return replace(self.schedule(p).outputs, lanes=2 * p.po)

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """Rows, what is the largest so far, and pairs; on the way back pairs, and rows of gradients."""
        schedule, pairs = self.schedule(p), self.pairs(p)
        place = (self.kernel[0] * self.kernel[1] - 1).bit_length()
        largest = Memory(width=1 + p.po * (WORD_BITS + place), depth=schedule.round_steps(Way.FORWARD))
        lines = schedule.features.memories(schedule.feature_rows)
        found = (*lines, largest, *pairs.memories(schedule.result_rows))
        if not self.gradient:
            return found
        sums = schedule.features.memories(schedule.input_gradient_rows, copies=2)
        return (*found, *pairs.memories(schedule.output_rows), *sums)


@dataclass(frozen=True, kw_only=True)
class AvgPool(Pool):
    """The mean of every window, by channel."""

    kind: ClassVar[str] = "avg_pool"

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """As a convolution, which has no weights to learn."""
        schedule = self.schedule(p)
        back = schedule.memories(Way.INPUT_GRADIENT) if self.gradient else ()
        return schedule.memories(Way.FORWARD) + back


@dataclass(frozen=True, kw_only=True)
class GlobalAvgPool(Layer):
    """The mean of every channel."""

    kind: ClassVar[str] = "global_avg_pool"

    @property
    def output(self) -> Shape:
        """One position."""
        return Shape(1, 1, self.input.c)

    @property
    def delay(self) -> Fraction:
        """A whole frame."""
        return Fraction(1)

    def lags(self, p: Parallelism) -> tuple[Fraction, Fraction]:
        """A whole frame, too."""
        pause, _ = super().lags(p)
        return pause + 1, pause + 1

    def compute_cycles(self, p: Parallelism) -> int:
        """h·w·max(c/po, 8): every position uses each channel's sum."""
        return self.input.h * self.input.w * max(ceil_div(self.input.c, p.po), REUSE)

    def buffers(self, p: Parallelism, storage: Storage) -> tuple[Memory, ...]:
        """A sum per channel; on the way back two shares per channel: one comes in while one is handed on."""
        return (memory(self.input.c, p.po),) + self.gradient * (memory(2 * self.input.c, p.po),)
