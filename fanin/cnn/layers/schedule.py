"""Schedule of a convolution: blocks, loops, rows on chip (docs/systems/layers.md, "The convolution")."""

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
#: cycles, at most, from a block's last sum, or its last terms of the input gradient, until words leave;
#: also from the last word until a block that waits for its room may start
LEAVE = GRADIENT_ROWS - PLACES


def tree_latency(terms: int) -> int:
    """Return the cycles from ``terms`` pairs of words to the sum of products: multiplier and adder tree."""
    return MULTIPLIER + ADDER * (terms - 1).bit_length()


class Convolution(Protocol):
    """Interface of a schedule's layer. ``fanin.cnn.layers.conv.Conv`` has it, and takes its costs from here."""

    depthwise: ClassVar[bool]

    @property
    def kernel(self) -> Pair:
        """Rows and columns of the window."""

    @property
    def stride(self) -> Pair:
        """Rows and columns from window to window."""

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

    def channel_lanes(self, p: Parallelism) -> Pair:
        """Return the input and output channels of a step."""

    def stream_widths(self, p: Parallelism) -> tuple[list[int], list[int]]:
        """Return the allowed values of pi and of po."""


class Way(Enum):
    """The three products of a convolution."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"


@dataclass(frozen=True)
class Raster:
    """Map that passes through a ring of rows, and the windows that blocks of whole output rows see of it.

    A frame has ``steps`` of ``step_rows`` output rows each. Channels come in ``groups`` of ``lanes``.
    Column x, channel i is in memory (x div stride + i div lanes) mod ``columns``, lane i mod lanes. Two kinds
    of access therefore touch every memory at most once: ``columns`` columns at the stride by ``lanes``
    channels of a group, and up to ``columns`` neighbouring groups of one column.
    """

    height: int
    width: int
    groups: int
    lanes: int
    columns: int  #: columns of a position
    positions: int  #: positions of an output row
    steps: int
    step_rows: int = 1
    kernel: Pair = (1, 1)
    stride: Pair = (1, 1)
    top: int = 0  #: rows of padding
    left: int = 0  #: columns of padding

    def first(self, step: int) -> int:
        """Return the first row that this step or a later one reads; ``height`` after the last step."""
        if step == self.steps:
            return self.height
        return min(max(step * self.step_rows * self.stride[0] - self.top, 0), self.height)

    def last(self, step: int) -> int:
        """Return the last row that this step waits for: at least row 0; in the last step, the last row."""
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
        """Addresses from a column to the column ``columns`` · stride further right."""
        return self.stride[1] * self.groups

    @property
    def row_step(self) -> int:
        """Addresses of a row."""
        return ceil_div(ceil_div(self.width, self.stride[1]), self.columns) * self.column_step

    def address(self, row: int, column: int, group: int) -> int:
        """Return the address of a column's group of channels, in its memory. ``row`` counts in the ring."""
        q, phase = divmod(column, self.stride[1])
        return row * self.row_step + q // self.columns * self.column_step + phase * self.groups + group

    def memory(self, column: int, group: int) -> int:
        """Return which of the ``columns`` memories holds a column's group of channels."""
        return (column // self.stride[1] + group) % self.columns

    def tap(self, kx: int) -> tuple[int, int]:
        """Return position 0's address, possibly negative, at kernel column ``kx``, and q mod ``columns``."""
        q, phase = divmod(kx - self.left, self.stride[1])
        return q // self.columns * self.column_step + phase * self.groups, q % self.columns

    def memories(self, rows: int, *, copies: int = 1) -> tuple[Memory, ...]:
        """Return the memories of a ring of ``rows`` rows."""
        one = Memory(width=WORD_BITS * self.lanes, depth=rows * self.row_step, copies=copies)
        return self.columns * (one,)

    @property
    def _bends(self) -> set[int]:
        """Steps among which any linear function of step, ``first`` and ``last`` has its extreme.

        The two are linear between the steps at which they leave the first row and reach the last.
        """
        pace = self.step_rows * self.stride[0]
        rows = (self.top, self.top + self.height, self.top + 1 - self.span, self.top + self.height - self.span)
        ends = (0, self.steps - 1, *(ceil_div(row, pace) for row in rows))
        return {k for end in ends for k in (end - 1, end) if 0 <= k < self.steps}

    @property
    def _freeing(self) -> list[int]:
        """Steps of ``_bends`` that free a row."""
        return [k for k in self._bends if self.first(k) < self.first(k + 1)]

    @property
    def lags(self) -> tuple[Fraction, Fraction]:
        """Largest lags, in frames, of evenly spaced steps after an even stream of rows.

        Forward: from a position of the map to that of the output. Backward: from a position of the output's
        gradient to that of the map's gradient.
        """
        forward = max(Fraction(self.last(k) + 1, self.height) - Fraction(k, self.steps) for k in self._bends)
        backward = max(
            Fraction(k + 1, self.steps) - Fraction(self.first(k), self.height) for k in self._freeing
        )
        return forward, backward

    def ring(self, period: int) -> int:
        """Return the rows of a ring that stops neither writer nor reader, with a frame every ``period`` cycles.

        Assume evenly spaced words and steps, the steps started just late enough that no step waits for a row.
        The real schedule starts earlier or at the same time.
        """
        row, step, hand_over = self.steps * period, self.height * period, HAND_OVER * self.height * self.steps
        begin = min(k * step - (self.last(k) + 1) * row for k in self._bends)  # of the first row's words
        needed = max((k + 1) * step - self.first(k) * row for k in self._freeing) + hand_over - begin
        return max(ceil_div(needed, row), self.span, 2)

    def ring_back(self, period: int, latency: int) -> int:
        """Return the rows of a ring to which windows add, and whose rows leave after the last addition.

        ``period``: cycles from frame to frame.
        ``latency``: cycles from a step's end until a complete row starts to leave.
        """
        row, step, scale = self.steps * period, self.height * period, self.height * self.steps
        # of row 0's words, after the frame's first step
        begin = latency * scale + max((k + 1) * step - self.first(k) * row for k in self._freeing)
        needed = max((self.last(k) + 1) * row - k * step for k in self._bends) + HAND_OVER * scale + begin
        return max(ceil_div(needed, row), self.span, 2)


@dataclass(frozen=True)
class Block:
    """Block of positions, which runs from its first step to its last without a stall.

    ``positions``: positions of ``ph`` columns each, neighbours in raster order.
    ``rows``: number of whole rows; 1 for a block within one row.
    """

    positions: int
    rows: int = 1


@dataclass(frozen=True)
class Step:
    """Indices of a step. ``p`` counts positions of the block in raster order."""

    ky: int
    kx: int
    g: int
    ig: int
    og: int
    p: int


@dataclass(frozen=True)
class Schedule:
    """Schedule of the three ways of ``layer`` built with ``p``; loop counts are rounded up.

    A map under a 1×1 window of stride 1 without padding is split into rows of one block each, whatever its
    width. A depthwise convolution has groups of ``poc`` parallel channels, with one input channel each.

    Loops, the innermost right:

    - forward: ky↑ kx↑ ig g og p
    - input gradient: ky↓ kx↓ og g ig p
    - weight gradient: p ky kx g ig og

    A way reuses an accumulator after at least :data:`REUSE` cycles; a shorter round waits at its end.
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
        """True if every output channel sees one input channel."""
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
        """Weights of a word in the weights' memory: (i, o); (o) of a depthwise convolution."""
        return self.p.poc if self.depthwise else self.p.pic * self.p.poc

    @cached_property
    def across(self) -> int:
        """Positions of an output row."""
        return ceil_div(self.layer.output.w, self.p.ph)

    @cached_property
    def flat(self) -> bool:
        """True if the window is one position of the input, so that blocks ignore the map's rows."""
        return self.layer.kernel == self.layer.stride == (1, 1) and not any(self.layer.padding)

    @cached_property
    def block(self) -> Block:
        """Smallest block that uses no accumulator twice within ``REUSE`` cycles; else the largest block."""
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
        """Positions of a block in one row."""
        return self.block.positions // self.block.rows

    @cached_property
    def blocks(self) -> int:
        """Blocks of a frame."""
        return self.layer.output.h * self.across // self.block.positions

    @cached_property
    def row_blocks(self) -> int:
        """Blocks of a row."""
        if self.flat or self.block.rows > 1:
            return 1
        return self.across // self.block.positions

    @cached_property
    def tile(self) -> int:
        """Input groups of a dense layer with streamed weights whose gradients alternate at the adder."""
        return next((n for n in divisors(self.igs) if n >= REUSE), self.igs)

    @cached_property
    def term_rows(self) -> int:
        """Rows that a dense layer with streamed weights keeps so that no way waits.

        A row has ``ogs`` terms of one input group. Rows start evenly. A row is free again in the last round of
        its tile's folds.
        """
        latency = LINES + tree_latency(self.lanes_out) + 3  # to a tile's last term, its first fold, and a row
        folds = (self.ogs - 1) * max(self.tile, REUSE)
        return self.tile - 1 + ceil_div((self.ogs + latency + folds) * self.igs, self.period)

    def round_steps(self, way: Way) -> int:
        """Return the steps after which the loops use the same accumulators again."""
        if way is Way.WEIGHT_GRADIENT:
            return self.weight_words
        return self.groups * (self.ogs if way is Way.FORWARD else self.igs) * self.block.positions

    def rounds(self, way: Way) -> int:
        """Return the rounds of a block."""
        if way is Way.WEIGHT_GRADIENT:
            return self.block.positions
        return prod(self.layer.kernel) * (self.igs if way is Way.FORWARD else self.ogs)

    def round_cycles(self, way: Way) -> int:
        """Return the cycles of a round: its steps, and its wait for the adders."""
        return max(self.round_steps(way), REUSE)

    def block_cycles(self, way: Way) -> int:
        """Return the cycles of a block."""
        return self.rounds(way) * self.round_cycles(way)

    @cached_property
    def ways(self) -> tuple[Way, ...]:
        """Ways of the layer."""
        return tuple(way for way in Way if way is not Way.INPUT_GRADIENT or self.layer.gradient)

    @cached_property
    def cycles(self) -> int:
        """Cycles of a frame without streams."""
        return self.blocks * max(map(self.block_cycles, self.ways))

    @cached_property
    def period(self) -> int:
        """Cycles of a frame with streams."""
        words = ((self.layer.input.words, self.p.pi), (self.layer.output.words, self.p.po))
        return max(self.cycles, *(ceil_div(count, lanes) for count, lanes in words))

    @cached_property
    def features(self) -> Raster:
        """Raster of the input, and of its gradient, as a row of blocks sees it."""
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
        """Raster of the output or its gradient. A block is a row of positions that follow in raster order."""
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
        """Return the address of a word in the weights' memory."""
        tap = ky * self.layer.kernel[1] + kx
        return ((tap * self.groups + g) * self.igs + ig) * self.ogs + og

    def term_latency(self, way: Way) -> int:
        """Return the cycles from a step to its terms, which are products summed over the step's channels."""
        lanes = self.lanes_in if way is Way.FORWARD else self.lanes_out
        return LINES + tree_latency(1 if self.depthwise else lanes)

    @cached_property
    def feature_rows(self) -> int:
        """Rows of ``features`` that the forward way keeps, and the weight gradient."""
        return self.features.ring(self.period)

    @cached_property
    def output_rows(self) -> int:
        """Rows of ``outputs``, one a block, of the gradient that each backward way keeps."""
        return self.outputs.ring(self.period)

    @cached_property
    def input_gradient_rows(self) -> int:
        """Rows of ``features`` in which the input gradient is summed."""
        return self.features.ring_back(self.period, self.term_latency(Way.INPUT_GRADIENT) + LEAVE)

    @cached_property
    def result_rows(self) -> int:
        """Rows of ``outputs`` with room, so that no block waits until earlier blocks' words have left."""
        words = ceil_div(self.block.positions * self.p.ph * self.layer.output.c, self.p.po)
        latency = self.term_latency(Way.FORWARD) + REUSE + LEAVE
        return 1 + ceil_div((latency + words) * self.blocks, self.period)

    def memories(self, way: Way) -> tuple[Memory, ...]:
        """Return the memories of a way, except parameters and queues of a few words."""
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
        """Largest lags in frames, forward and backward: of rows, a block, a position and the pipeline."""
        forward, backward = self.features.lags
        positions = self.blocks * self.block.positions
        made = Fraction(1, self.blocks) + Fraction(1, positions) + Fraction(HAND_OVER + ENGINE, self.period)
        return forward + made, backward + made

    def steps(self, way: Way) -> Iterator[tuple[int, Step]]:
        """Yield (cycle, indices) of every step of a block."""
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
