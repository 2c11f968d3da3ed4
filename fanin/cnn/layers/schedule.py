"""When a convolution multiplies what: its blocks, its loops, and the rows that it keeps on chip.

Pure numbers: RTL, cost model and tests read them (docs/systems/cluster.md, "The convolution").
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

Pair = tuple[int, int]
#: cycles, at most, between a row's last word, the block that waits for it, and the row's next use
HAND_OVER = 12
ENGINE = 64  #: cycles from a block's last step until its words leave, at most
#: cycles, at most, from a block's last sum, or its last terms of the input gradient, until words leave; and
#: from the last of them until a block may begin because of it
LEAVE = GRADIENT_ROWS - PLACES


def tree_latency(terms: int) -> int:
    """Cycles from so many pairs of words to the sum of their products: a multiplier, and levels of adders."""
    return MULTIPLIER + ADDER * (terms - 1).bit_length()


class Convolution(Protocol):
    """What a schedule asks of its layer: a ``fanin.cnn.layers.conv.Conv``, whose costs come from here."""

    depthwise: ClassVar[bool]

    @property
    def kernel(self) -> Pair:
        """Rows and columns of the window."""

    @property
    def stride(self) -> Pair:
        """Rows and columns from window to window."""

    @property
    def padding(self) -> tuple[int, int, int, int]:
        """Top, left, bottom, right."""

    @property
    def groups(self) -> int:
        """Groups of channels."""

    @property
    def group(self) -> Pair:
        """Input and output channels of one."""

    @property
    def gradient(self) -> bool:
        """Whether its input has a gradient."""

    @property
    def input(self) -> Shape:
        """What comes in."""

    @property
    def output(self) -> Shape:
        """What it makes."""

    def channel_lanes(self, p: Parallelism) -> Pair:
        """Input and output channels of a step."""

    def stream_widths(self, p: Parallelism) -> tuple[list[int], list[int]]:
        """What pi and po may be."""


class Way(Enum):
    """The three products of a convolution."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"


@dataclass(frozen=True)
class Raster:
    """A map that passes through a ring of rows, and the windows that blocks of whole output rows see of it.

    A frame has ``steps`` of ``step_rows`` output rows each. Channels come in ``groups`` of ``lanes``. Column x,
    channel i lie in memory (x div stride + i div lanes) mod ``columns``, lane i mod lanes. So ``columns``
    columns at the stride by ``lanes`` channels of a group, and up to ``columns`` neighbouring groups of one
    column, touch every memory at most once.
    """

    height: int
    width: int
    groups: int
    lanes: int
    columns: int  #: of a position
    positions: int  #: of an output row
    steps: int
    step_rows: int = 1
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    top: int = 0  #: rows of padding
    left: int = 0  #: columns of padding

    def first(self, step: int) -> int:
        """The first row that this step or a later one reads; ``height`` after the last step."""
        if step == self.steps:
            return self.height
        return min(max(step * self.step_rows * self.stride[0] - self.top, 0), self.height)

    def last(self, step: int) -> int:
        """The last row that this step waits for: in the frame's first steps at least row 0, in its last all."""
        if step == self.steps - 1:
            return self.height - 1
        row = ((step + 1) * self.step_rows - 1) * self.stride[0] - self.top + self.kernel[0] - 1
        return min(max(row, self.first(step) - 1, 0), self.height - 1)

    @property
    def span(self) -> int:
        """Rows that a step's windows cover, padding included."""
        return (self.step_rows - 1) * self.stride[0] + self.kernel[0]

    @property
    def column_step(self) -> int:
        """Addresses from a column to the one ``columns`` · stride further."""
        return self.stride[1] * self.groups

    @property
    def row_step(self) -> int:
        """Addresses of a row."""
        return ceil_div(ceil_div(self.width, self.stride[1]), self.columns) * self.column_step

    def address(self, row: int, column: int, group: int) -> int:
        """Where a group of channels of a column lies, in its memory; ``row`` counts in the ring."""
        q, phase = divmod(column, self.stride[1])
        return row * self.row_step + q // self.columns * self.column_step + phase * self.groups + group

    def memory(self, column: int, group: int) -> int:
        """In which of the ``columns`` memories a group of channels of a column lies."""
        return (column // self.stride[1] + group) % self.columns

    def tap(self, kx: int) -> tuple[int, int]:
        """Of position 0 at column ``kx`` of the kernel: address, perhaps negative, and q mod ``columns``."""
        q, phase = divmod(kx - self.left, self.stride[1])
        return q // self.columns * self.column_step + phase * self.groups, q % self.columns

    def memories(self, rows: int, *, copies: int = 1) -> tuple[Memory, ...]:
        """Those of a ring of so many rows."""
        one = Memory(width=WORD_BITS * self.lanes, depth=rows * self.row_step, copies=copies)
        return self.columns * (one,)

    @property
    def _bends(self) -> set[int]:
        """Steps of which one is the extreme of whatever grows evenly with steps, ``first`` and ``last``.

        For those two grow evenly between the steps at which they leave the first row, and reach the last.
        """
        pace = self.step_rows * self.stride[0]
        rows = (self.top, self.top + self.height, self.top + 1 - self.span, self.top + self.height - self.span)
        ends = (0, self.steps - 1, *(ceil_div(row, pace) for row in rows))
        return {k for end in ends for k in (end - 1, end) if 0 <= k < self.steps}

    @property
    def _freeing(self) -> list[int]:
        """Of those steps the ones that no later step needs all rows of."""
        return [k for k in self._bends if self.first(k) < self.first(k + 1)]

    @property
    def lags(self) -> tuple[Fraction, Fraction]:
        """Frames, at most, from an even stream's row until the steps that it lets begin, and end, if even.

        Forward from a position of the map to that of the output; backward the other way.
        """
        forward = max(Fraction(self.last(k) + 1, self.height) - Fraction(k, self.steps) for k in self._bends)
        backward = max(
            Fraction(k + 1, self.steps) - Fraction(self.first(k), self.height) for k in self._freeing
        )
        return forward, backward

    def ring(self, period: int) -> int:
        """Rows that the ring needs so that a frame every ``period`` cycles stops neither writer nor reader.

        It is shown by one schedule that keeps every promise: words come evenly, and steps begin evenly, as
        early as no step waits for its rows. As soon as possible is never later.
        """
        row, step, hand_over = self.steps * period, self.height * period, HAND_OVER * self.height * self.steps
        begin = min(k * step - (self.last(k) + 1) * row for k in self._bends)  # of the first row's words
        needed = max((k + 1) * step - self.first(k) * row for k in self._freeing) + hand_over - begin
        return max(ceil_div(needed, row), self.span, 2)

    def ring_back(self, period: int, latency: int) -> int:
        """The same of a map to which windows add, and whose rows leave when the last window has added.

        ``latency``: cycles from a step's end until a row that is complete begins to leave.
        """
        row, step, scale = self.steps * period, self.height * period, self.height * self.steps
        # of row 0's words, after the frame's first step
        begin = latency * scale + max((k + 1) * step - self.first(k) * row for k in self._freeing)
        needed = max((self.last(k) + 1) * row - k * step for k in self._bends) + HAND_OVER * scale + begin
        return max(ceil_div(needed, row), self.span, 2)


@dataclass(frozen=True)
class Block:
    """What runs from its first step to its last without a stall.

    ``positions`` of ``ph`` columns each, neighbours in raster order: of one row, or ``rows`` whole rows.
    """

    positions: int
    rows: int = 1


@dataclass(frozen=True)
class Step:
    """Indices of one step: p counts positions of the block, in raster order."""

    ky: int
    kx: int
    g: int
    ig: int
    og: int
    p: int


@dataclass(frozen=True)
class Schedule:
    """Loops of the three ways of ``layer`` built with ``p``; what ``p`` does not divide is rounded up.

    A 1×1 window of stride 1 without padding has no rows: its map is taken as rows of one block each, whatever
    the width. A depthwise convolution has groups of ``poc`` channels that are worked on side by side, an input
    channel each.

    Innermost right: forward ky↑ kx↑ ig g og p; input gradient ky↓ kx↓ og g ig p; weight gradient p ky kx g ig
    og.
    A way uses an accumulator again after :data:`REUSE` cycles or more, if need be by waiting at the end of a
    round.
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
        """Whether every output channel sees one input channel."""
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
        """Groups g of the loops."""
        return ceil_div(self.layer.input.c, self.p.poc) if self.depthwise else self.layer.groups

    @cached_property
    def igs(self) -> int:
        """Input groups ig of ``lanes_in`` channels, of a group."""
        return 1 if self.depthwise else ceil_div(self.layer.group[0], self.p.pic)

    @cached_property
    def ogs(self) -> int:
        """Output groups og of ``lanes_out`` channels, of a group."""
        return 1 if self.depthwise else ceil_div(self.layer.group[1], self.p.poc)

    @cached_property
    def weight_words(self) -> int:
        """Words of the weights' memory: (ky, kx, g, ig, og)."""
        return prod(self.layer.kernel) * self.groups * self.igs * self.ogs

    @cached_property
    def weight_lanes(self) -> int:
        """Weights of such a word: (i, o), of a depthwise convolution (o)."""
        return self.p.poc if self.depthwise else self.p.pic * self.p.poc

    @cached_property
    def across(self) -> int:
        """Positions of an output row."""
        return ceil_div(self.layer.output.w, self.p.ph)

    @cached_property
    def flat(self) -> bool:
        """Whether the map has no rows: the window is one position of the input."""
        return self.layer.kernel == self.layer.stride == (1, 1) and not any(self.layer.padding)

    @cached_property
    def block(self) -> Block:
        """The smallest block that uses no accumulator twice within ``REUSE`` cycles; else the largest."""
        rows, each = self.layer.output.h, self.across
        if self.flat:
            choices = [Block(n) for n in divisors(rows * each)]
        else:
            choices = [Block(n) for n in divisors(each)]
            choices += [Block(each * n, n) for n in divisors(rows)[1:]]
        least = self.groups * min(self.ogs, self.igs if self.layer.gradient else self.ogs)
        return next((b for b in choices if b.positions * least >= REUSE), choices[-1])

    @cached_property
    def row_positions(self) -> int:
        """Positions of a block that lie in one row."""
        return self.block.positions // self.block.rows

    @cached_property
    def blocks(self) -> int:
        """Blocks of a frame."""
        return self.layer.output.h * self.across // self.block.positions

    @cached_property
    def row_blocks(self) -> int:
        """Blocks that lie side by side in a row."""
        if self.flat or self.block.rows > 1:
            return 1
        return self.across // self.block.positions

    @cached_property
    def tile(self) -> int:
        """Input groups whose gradients take turns at the adder, of a dense layer whose weights are streamed."""
        return next((n for n in divisors(self.igs) if n >= REUSE), self.igs)

    @cached_property
    def term_rows(self) -> int:
        """Rows of ``ogs`` terms, one of each input group, that such a layer keeps so that no way waits.

        Rows begin evenly. A row is free again in the last round of its tile's folds.
        """
        latency = LINES + tree_latency(self.lanes_out) + 3  # to a tile's last term, its first fold, and a row
        folds = (self.ogs - 1) * max(self.tile, REUSE)
        return self.tile - 1 + ceil_div((self.ogs + latency + folds) * self.igs, self.period)

    def round_steps(self, way: Way) -> int:
        """Steps after which the loops come back to the same accumulators."""
        if way is Way.WEIGHT_GRADIENT:
            return self.weight_words
        return self.groups * (self.ogs if way is Way.FORWARD else self.igs) * self.block.positions

    def rounds(self, way: Way) -> int:
        """Rounds of a block."""
        if way is Way.WEIGHT_GRADIENT:
            return self.block.positions
        return prod(self.layer.kernel) * (self.igs if way is Way.FORWARD else self.ogs)

    def round_cycles(self, way: Way) -> int:
        """Cycles of a round: its steps, and those that it waits for the adders."""
        return max(self.round_steps(way), REUSE)

    def block_cycles(self, way: Way) -> int:
        """Cycles of a block."""
        return self.rounds(way) * self.round_cycles(way)

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """Those that the layer has."""
        return tuple(way for way in Way if way is not Way.INPUT_GRADIENT or self.layer.gradient)

    @cached_property
    def cycles(self) -> int:
        """Cycles of a frame, streams apart."""
        return self.blocks * max(map(self.block_cycles, self.ways))

    @cached_property
    def period(self) -> int:
        """Cycles of a frame, streams included."""
        words = ((self.layer.input.words, self.p.pi), (self.layer.output.words, self.p.po))
        return max(self.cycles, *(ceil_div(count, lanes) for count, lanes in words))

    @cached_property
    def features(self) -> Raster:
        """The input, as a row of blocks sees it; dx has the same place."""
        layer, shape = self.layer, self.layer.input
        height, width = shape.h, shape.w
        if self.flat:
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
        """The output or its gradient: a block is a row, since its positions are neighbours in raster order."""
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
        """The word in the weights' memory."""
        tap = ky * self.layer.kernel[1] + kx
        return ((tap * self.groups + g) * self.igs + ig) * self.ogs + og

    def term_latency(self, way: Way) -> int:
        """Cycles from a step to its terms, products summed over a step's channels: forward and back."""
        lanes = self.lanes_in if way is Way.FORWARD else self.lanes_out
        return LINES + tree_latency(1 if self.depthwise else lanes)

    @cached_property
    def feature_rows(self) -> int:
        """Rows of ``features`` that forward keeps, and the weight gradient."""
        return self.features.ring(self.period)

    @cached_property
    def output_rows(self) -> int:
        """Rows of ``outputs``, which are blocks, that each way back keeps of the gradient."""
        return self.outputs.ring(self.period)

    @cached_property
    def input_gradient_rows(self) -> int:
        """Rows of ``features`` that the input gradient is summed in."""
        return self.features.ring_back(self.period, self.term_latency(Way.INPUT_GRADIENT) + LEAVE)

    @cached_property
    def result_rows(self) -> int:
        """Rows of ``outputs`` that have room, so that no block waits for its predecessors' words to leave."""
        words = ceil_div(self.block.positions * self.p.ph * self.layer.output.c, self.p.po)
        latency = self.term_latency(Way.FORWARD) + REUSE + LEAVE
        return 1 + ceil_div((latency + words) * self.blocks, self.period)

    def memories(self, way: Way) -> tuple[Memory, ...]:
        """All memories of a way but parameters, and queues of a few words."""
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
        """Those of its rows, of a block and a position, which leave when made, and of the pipeline behind."""
        forward, backward = self.features.lags
        positions = self.blocks * self.block.positions
        made = Fraction(1, self.blocks) + Fraction(1, positions) + Fraction(HAND_OVER + ENGINE, self.period)
        return forward + made, backward + made

    def steps(self, way: Way) -> Iterator[tuple[int, Step]]:
        """(cycle, indices) of every step of a block."""
        kernel = self.layer.kernel
        ky, kx = range(kernel[0]), range(kernel[1])
        if way is Way.INPUT_GRADIENT:
            ky, kx = ky[::-1], kx[::-1]
        g, ig, og, p = map(range, (self.groups, self.igs, self.ogs, self.block.positions))
        if way is Way.FORWARD:
            order = (Step(*s[:2], s[3], s[2], *s[4:]) for s in product(ky, kx, ig, g, og, p))
        elif way is Way.INPUT_GRADIENT:
            order = (Step(*s[:2], s[3], s[4], s[2], s[5]) for s in product(ky, kx, og, g, ig, p))
        else:
            order = (Step(*s[1:], s[0]) for s in product(p, ky, kx, g, ig, og))
        for index, step in enumerate(order):
            done, left = divmod(index, self.round_steps(way))
            yield done * self.round_cycles(way) + left, step
