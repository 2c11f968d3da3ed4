"""Schedule of a convolution: order and cycles of its products, and rows kept on chip.

A convolution has three *ways*: forward, input gradient and weight gradient. Each way has an engine of its own.
In a *step*, which takes one cycle, an engine multiplies ``pic`` input by ``poc`` output channels at one
*position*: ``ph`` neighbouring columns of an output row. A *block* is a number of positions whose steps run in
nested loops without a stall. Maps arrive row by row, so an engine keeps the rows that its windows read in a
ring of rows. A ``Raster`` says which rows a step needs, and how many rows the ring must have.

docs/systems/layers.md, "The convolution", has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar, Protocol

from fanin.cnn.layers.family import WORD_BITS, Memory
from fanin.cnn.layers.latencies import ADDER, GRADIENT_ROWS, LINES, MULTIPLIER, PLACES
from fanin.cnn.layers.layer import REUSE, Parallelism, Shape, ceil_div, divisors
from fanin.cnn.layers.raster import HAND_OVER, Raster

Pair = tuple[int, int]
#: Cycles, at most, from a block's last step until its first word leaves: an upper bound for planning.
ENGINE = 64
#: Cycles from a row's last term of the input gradient until the row's first word leaves. Also an upper bound,
#: for a forward block, of two waits together: from its last sum to its first word, and from its last word until
#: a waiting block gets the room. tests/hdl/layers/test_costs.py compares it with the components.
LEAVE_LATENCY = GRADIENT_ROWS - PLACES


def tree_latency(terms: int) -> int:
    """Return the cycles from ``terms`` pairs of words to the sum of their products: multiplier, adder tree."""
    return MULTIPLIER + ADDER * (terms - 1).bit_length()


class Convolution(Protocol):
    """Members of a layer that its schedule reads. ``fanin.cnn.layers.conv.Conv`` implements them."""

    depthwise: ClassVar[bool]

    @property
    def kernel(self) -> Pair:
        """Rows and columns of the window."""

    @property
    def stride(self) -> Pair:
        """Rows and columns from a window to the next."""

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Padding at top, left, bottom and right."""

    @property
    def groups(self) -> int:
        """Number of groups of channels."""

    @property
    def group(self) -> Pair:
        """Input and output channels of a group."""

    @property
    def gradient(self) -> bool:
        """True if the layer computes its input's gradient."""

    @property
    def input(self) -> Shape:
        """Shape of the input."""

    @property
    def output(self) -> Shape:
        """Shape of the output."""

    def channel_lanes(self, parallelism: Parallelism) -> Pair:
        """Return the input and output channels of a step."""

    def stream_widths(self, parallelism: Parallelism) -> tuple[list[int], list[int]]:
        """Return the allowed values of pi and of po."""


class Way(Enum):
    """Way of a convolution: one of its three products, each with an engine of its own."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"


#: loops of a block by way, outermost first; indices as in :class:`Step`
_LOOPS = {
    Way.FORWARD: ("ky", "kx", "ig", "g", "og", "p"),
    Way.INPUT_GRADIENT: ("ky", "kx", "og", "g", "ig", "p"),
    Way.WEIGHT_GRADIENT: ("p", "ky", "kx", "g", "ig", "og"),
}


@dataclass(frozen=True)
class Block:
    """Block of neighbouring output positions, which runs from its first step to its last without a stall."""

    positions: int  #: positions, of ``ph`` columns each, in raster order
    rows: int = 1  #: number of whole rows; 1 for a block within one row


@dataclass(frozen=True)
class Step:
    """Loop indices of a step."""

    ky: int  #: row of the kernel
    kx: int  #: column of the kernel
    g: int  #: group of the convolution
    ig: int  #: input group in group g: ``lanes_in`` channels
    og: int  #: output group in group g: ``lanes_out`` channels
    p: int  #: position in the block


@dataclass(frozen=True)
class Schedule:
    """Schedule of the three ways of ``layer`` with parallelism ``p``; loop counts are rounded up.

    A dense layer that works on ``p.frames`` frames at a time is scheduled as a 1×1 convolution, whose columns
    are the frames and whose frame is the group (``fanin.cnn.layers.dense``). Its only block is the group.

    A map under a 1×1 window of stride 1 without padding is split into rows of one block each, whatever its
    width. A depthwise convolution has groups of ``poc`` parallel channels, with one input channel each.

    The order of the loops over a block is ``_LOOPS``. The input gradient takes kernel rows and columns in
    descending order. A *round* is a run of steps that uses each accumulator once. A round takes at least
    :data:`REUSE` cycles: after fewer steps, the engine waits at the round's end.
    """

    layer: Convolution
    p: Parallelism

    def check(self) -> None:
        """Raise ValueError for parallelism that cannot be built."""
        ic, oc = self.layer.group
        limits = {"pic": ic, "poc": oc, "ph": self.layer.output.w}
        if self.layer.depthwise:
            limits |= {"pic": 1, "poc": self.layer.input.c}
        for name, size in limits.items():
            value = getattr(self.p, name)
            if size % value:
                raise ValueError(f"{name} must divide {size}, not {value}")
        for name, widths in zip(("pi", "po"), self.layer.stream_widths(self.p), strict=True):
            if getattr(self.p, name) not in widths:
                allowed = ", ".join(map(str, widths))
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self.p, name)}")

    @property
    def depthwise(self) -> bool:
        """True if each output channel depends on one input channel."""
        return self.layer.depthwise

    @property
    def lanes_in(self) -> int:
        """Input channels of a step."""
        return self.layer.channel_lanes(self.p)[0]

    @property
    def lanes_out(self) -> int:
        """Output channels of a step."""
        return self.layer.channel_lanes(self.p)[1]

    @cached_property
    def groups(self) -> int:
        """Number of groups g."""
        return ceil_div(self.layer.input.c, self.p.poc) if self.depthwise else self.layer.groups

    @cached_property
    def igs(self) -> int:
        """Number of input groups ig, of ``lanes_in`` channels each, per group g."""
        return 1 if self.depthwise else ceil_div(self.layer.group[0], self.p.pic)

    @cached_property
    def ogs(self) -> int:
        """Number of output groups og, of ``lanes_out`` channels each, per group g."""
        return 1 if self.depthwise else ceil_div(self.layer.group[1], self.p.poc)

    @cached_property
    def weight_words(self) -> int:
        """Words of the weights' memory, one for each (ky, kx, g, ig, og)."""
        return prod(self.layer.kernel) * self.groups * self.igs * self.ogs

    @cached_property
    def weight_lanes(self) -> int:
        """Weights of a word of the weights' memory: (i, o); (o) of a depthwise convolution."""
        return self.p.poc if self.depthwise else self.p.pic * self.p.poc

    @cached_property
    def row_length(self) -> int:
        """Positions of an output row."""
        return ceil_div(self.layer.output.w, self.p.ph)

    @cached_property
    def pointwise(self) -> bool:
        """True if a window is one position of the input, so that blocks need not end with the map's rows."""
        return self.layer.kernel == self.layer.stride == (1, 1) and not any(self.layer.padding)

    @cached_property
    def block(self) -> Block:
        """Smallest block whose rounds take at least ``REUSE`` cycles; the largest block if there is none."""
        height, length = self.layer.output.h, self.row_length
        if self.p.frames > 1:
            return Block(self.p.frames)
        if self.pointwise:
            candidates = [Block(n) for n in divisors(height * length)]
        else:
            candidates = [Block(n) for n in divisors(length)]
            candidates += [Block(length * n, n) for n in divisors(height)[1:]]
        accumulators = self.groups * min(self.ogs, self.igs if self.layer.gradient else self.ogs)
        return next((block for block in candidates if block.positions * accumulators >= REUSE), candidates[-1])

    @cached_property
    def row_positions(self) -> int:
        """Positions of a block in one row."""
        return self.block.positions // self.block.rows

    @cached_property
    def blocks(self) -> int:
        """Blocks of a frame."""
        return self.layer.output.h * self.row_length // self.block.positions

    @cached_property
    def row_blocks(self) -> int:
        """Blocks of a row."""
        if self.pointwise or self.block.rows > 1:
            return 1
        return self.row_length // self.block.positions

    @cached_property
    def tile(self) -> int:
        """Input groups whose gradients alternate at the adder of a dense layer with weights in DRAM."""
        return next((n for n in divisors(self.igs) if n * self.p.frames >= REUSE), self.igs)

    @cached_property
    def weight_tile(self) -> Pair:
        """Input and output groups whose velocities alternate at the adder, with velocities in DRAM.

        The velocities of a tile are added to frame by frame. A tile is a run of weights in memory order: output
        groups of one input group, or all output groups of several. With one frame at a time it is all weights.
        """
        if self.p.frames == 1:
            return self.igs, self.ogs
        if self.ogs >= REUSE:
            return 1, next(n for n in divisors(self.ogs) if n >= REUSE)
        return next((n for n in divisors(self.igs) if n * self.ogs >= REUSE), self.igs), self.ogs

    @cached_property
    def term_rows(self) -> int:
        """Rows of terms that a dense layer with weights in DRAM keeps so that no way waits.

        A row has the ``ogs`` · ``p.frames`` terms of one input group. Rows start at equal intervals. The last
        round of a tile's folds frees the tile's rows.
        """
        # from a step to its term, then to the term's fold and to the freed row
        latency = LINES + tree_latency(self.lanes_out) + 3
        folds = (self.ogs - 1) * max(self.tile * self.p.frames, REUSE)
        return self.tile - 1 + ceil_div((self.ogs * self.p.frames + latency + folds) * self.igs, self.period)

    def round_steps(self, way: Way) -> int:
        """Return the steps of a round, after which the loops use the same accumulators again."""
        if way is Way.WEIGHT_GRADIENT:
            return self.weight_words if self.p.frames == 1 else prod(self.weight_tile)
        return self.groups * (self.ogs if way is Way.FORWARD else self.igs) * self.block.positions

    def rounds(self, way: Way) -> int:
        """Return the rounds of a block."""
        if way is Way.WEIGHT_GRADIENT:
            return self.block.positions * self.weight_words // self.round_steps(way)
        return prod(self.layer.kernel) * (self.igs if way is Way.FORWARD else self.ogs)

    def round_cycles(self, way: Way) -> int:
        """Return the cycles of a round: its steps, and the wait for the adders."""
        return max(self.round_steps(way), REUSE)

    def block_cycles(self, way: Way) -> int:
        """Return the cycles of a block."""
        return self.rounds(way) * self.round_cycles(way)

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """Ways of the layer: without the input gradient if no upstream layer has parameters."""
        return tuple(way for way in Way if way is not Way.INPUT_GRADIENT or self.layer.gradient)

    @cached_property
    def cycles(self) -> int:
        """Cycles of a frame's computation, not limited by streams."""
        return self.blocks * max(map(self.block_cycles, self.ways))

    @cached_property
    def period(self) -> int:
        """Cycles of a frame, as limited by computation and streams."""
        words = ((self.layer.input.words, self.p.pi), (self.layer.output.words, self.p.po))
        return max(self.cycles, *(ceil_div(count, lanes) for count, lanes in words))

    @cached_property
    def features(self) -> Raster:
        """Raster of the input and of its gradient. A step of the raster is a row of blocks."""
        layer, shape = self.layer, self.layer.input
        height, width = shape.h, shape.w
        if self.pointwise:
            width = self.block.positions * self.p.ph
            height = ceil_div(shape.h * shape.w, width)
        top, left, _, _ = layer.padding
        return Raster(
            height=height,
            width=width,
            groups=self.groups * self.igs,
            lanes=self.lanes_in,
            columns=self.p.ph,
            positions=self.row_positions * self.row_blocks,
            steps=self.blocks // self.row_blocks,
            step_rows=self.block.rows,
            kernel=layer.kernel,
            stride=layer.stride,
            top=top,
            left=left,
        )

    @cached_property
    def outputs(self) -> Raster:
        """Raster of the output and of its gradient. A row of the raster is a block."""
        return Raster(
            height=self.blocks,
            width=self.block.positions * self.p.ph,
            groups=self.groups * self.ogs,
            lanes=self.lanes_out,
            columns=self.p.ph,
            positions=self.block.positions,
            steps=self.blocks,
        )

    def weight_address(self, ky: int, kx: int, g: int, ig: int, og: int) -> int:
        """Return the address of a word of the weights' memory."""
        tap = ky * self.layer.kernel[1] + kx
        return ((tap * self.groups + g) * self.igs + ig) * self.ogs + og

    def term_latency(self, way: Way) -> int:
        """Return the cycles from a step to its terms: products summed over the step's channels."""
        lanes = self.lanes_in if way is Way.FORWARD else self.lanes_out
        return LINES + tree_latency(1 if self.depthwise else lanes)

    @cached_property
    def feature_rows(self) -> int:
        """Rows of ``features`` in the ring of the forward way, and in that of the weight gradient."""
        return self.features.ring(self.period)

    @cached_property
    def output_rows(self) -> int:
        """Rows of ``outputs`` (one per block) in the ring of gradients of each backward way."""
        return self.outputs.ring(self.period)

    @cached_property
    def input_gradient_rows(self) -> int:
        """Rows of ``features`` in the ring in which the input gradient is summed."""
        return self.features.ring_back(self.period, self.term_latency(Way.INPUT_GRADIENT) + LEAVE_LATENCY)

    @cached_property
    def result_rows(self) -> int:
        """Rows of ``outputs`` (one per block) in the ring of results, so that no block waits for room."""
        words = ceil_div(self.block.positions * self.p.ph * self.layer.output.c, self.p.po)
        latency = self.term_latency(Way.FORWARD) + REUSE + LEAVE_LATENCY
        return 1 + ceil_div((latency + words) * self.blocks, self.period)

    def memories(self, way: Way) -> tuple[Memory, ...]:
        """Return the memories of a way, except those of parameters and queues of a few words."""
        if way is Way.FORWARD:
            sums = Memory(width=WORD_BITS * self.p.ph * self.lanes_out, depth=self.round_steps(way))
            lines = self.features.memories(self.feature_rows)
            return (*lines, sums, *self.outputs.memories(self.result_rows))
        gradients = self.outputs.memories(self.output_rows)
        if way is Way.WEIGHT_GRADIENT:
            return (*self.features.memories(self.feature_rows), *gradients)
        # summed by one port, read by another
        return (*gradients, *self.features.memories(self.input_gradient_rows, copies=2))

    @cached_property
    def lags(self) -> tuple[Fraction, Fraction]:
        """Largest lags in frames, forward and backward: sums of the rows', a block's and the pipeline's."""
        forward, backward = self.features.lags
        positions = self.blocks * self.block.positions
        lag = Fraction(1, self.blocks) + Fraction(1, positions) + Fraction(HAND_OVER + ENGINE, self.period)
        return forward + lag, backward + lag

    def steps(self, way: Way) -> Iterator[tuple[int, Step]]:
        """Yield (cycle, indices) of every step of a block."""
        ky, kx = map(range, self.layer.kernel)
        if way is Way.INPUT_GRADIENT:
            ky, kx = ky[::-1], kx[::-1]
        ranges = {
            "ky": ky,
            "kx": kx,
            "g": range(self.groups),
            "ig": range(self.igs),
            "og": range(self.ogs),
            "p": range(self.block.positions),
        }
        names = _LOOPS[way]
        for number, indices in enumerate(product(*(ranges[name] for name in names))):
            rounds, round_step = divmod(number, self.round_steps(way))
            step = Step(**dict(zip(names, indices, strict=True)))
            yield rounds * self.round_cycles(way) + round_step, step
