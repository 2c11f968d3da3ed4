"""Parts of layers as actors: rows on chip, queues after pipelines, changes of a stream's width.

Each function adds the model of a component of hdl/layers or hdl/stream to a graph, with its room and
cycles. Tests compare the numbers with the components.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

from fanin.cnn.flow.graph import Actor, Channel, Graph, Pattern, Source, after, at_first, at_last
from fanin.cnn.layers.latencies import (
    ADDER,
    GRADIENT_ROWS,
    LINE_READER,
    LINES,
    MULTIPLIER,
    PLACES,
    READ_AHEAD,
    RESULT_LINES,
)
from fanin.cnn.layers.layer import ceil_div
from fanin.cnn.layers.schedule import Raster, Schedule, Way

MEMORY_LATENCY = 64  #: cycles from a burst's address to its first beat, or from its last beat to the response
WRITE = 11  #: more cycles from a frame's last word in a queue until the frame may be read
READ = 10  #: more cycles from the start of a frame's read until its first word
SLICE = 2  #: payloads of a RegisterSlice
WRITTEN = 2  #: cycles from a row's last word until a block that waits for it may start
GIVEN_BACK = 2  #: cycles from a row's last read until a block that waits for its room may start
FREED = 3  #: cycles from a block's last step until a word may enter the freed room
READER = LINE_READER - 2  #: cycles from a word's read to the stream
FILLED = RESULT_LINES - READER  #: cycles from the last result of a block until the block is read
ADDED = GRADIENT_ROWS - READER  #: cycles from the place of a row's last terms until the row is read


@dataclass(frozen=True)
class Parts:
    """Builder of the parts of stage or edge ``name`` in ``graph``."""

    graph: Graph
    name: str

    def actor(self, what: str, firings: int, intervals: object = 1) -> Actor:
        """Add an actor owned by ``name``, and return it."""
        return self.graph.actor(what, self.name, firings, intervals)

    def channel(self, what: str, capacity: int, again: float = 1) -> Channel:
        """Add a channel owned by ``name``, and return it."""
        return self.graph.channel(what, self.name, capacity, again)

    def passed(
        self, what: str, source: Source, transfers: int, capacity: int, delay: float = 1, pace: float = 1
    ) -> Channel:
        """Add an actor that copies ``source``'s tokens to a new channel. Return the channel."""
        actor, channel = self.actor(what, transfers, pace), self.channel(what, capacity)
        self.graph.take(actor, source)
        self.graph.give(actor, channel, delay=delay)
        return channel

    def lines(
        self,
        what: str,
        source: Source,
        raster: Raster,
        rows: int,
        words: int,
        *beside: Source,
        late: float = 0,
    ) -> Channel:
        """Add a ring of rows, and return its channel.

        ``source``: stream that is written to the ring.
        ``rows``: capacity in rows.
        ``words``: words of a transfer.
        ``beside``: streams taken together with ``source``.
        ``late``: more cycles until a written row may be used.
        """
        transfers = row_transfers(raster, words)
        writer, channel = self.actor(f"takes {what}", raster.height * transfers), self.channel(what, rows)
        for stream in (source, *beside):
            self.graph.take(writer, stream)
        self.graph.give(writer, channel, at_last(transfers), at_first(transfers), WRITTEN + late)
        return channel

    def reader(self, what: str, rows: Channel, raster: Raster, words: int) -> Channel:
        """Add a reader of rows. Return its stream, ``words`` a transfer."""
        transfers = row_transfers(raster, words)
        reader, channel = self.actor(f"gives {what}", raster.height * transfers), self.channel(what, READ_AHEAD)
        self.graph.take(reader, rows, at_first(transfers), at_last(transfers), GIVEN_BACK)
        self.graph.give(reader, channel, delay=READER)
        return channel

    def resized(self, what: str, source: Source, words: int, i: int, o: int) -> Source:
        """Add a Resize from ``i`` to ``o`` words a transfer. ``words``: words of a frame."""
        if i == o:
            return source
        whole = lcm(i, o)
        collect = self.actor(f"collects {what}", words // i)
        full = self.channel(f"{what}, collected,", 1)
        self.graph.take(collect, source)
        self.graph.give(collect, full, at_last(whole // i))
        if whole == o:
            return Source(full)
        give, channel = self.actor(f"gives {what}", words // whole, whole // o), self.channel(what, 1, 0)
        self.graph.take(give, full)
        share = Pattern.of([whole // o])
        self.graph.give(give, channel, share, after(share))
        return Source(channel)

    def geared(self, what: str, source: Source, words: int, i: int, o: int, frames: int = 1) -> Channel:
        """Add a Gearbox from ``i`` to ``o`` words a transfer, of any widths.

        Each of ``frames`` groups of ``words`` words starts with a new transfer.
        """
        transfers = ceil_div(words, i)
        complete = np.minimum(np.arange(1, transfers + 1) * i // o, words // o)
        complete[-1] = ceil_div(words, o)
        gearbox = self.actor(f"packs {what}", transfers * frames, max(1.0, i / o))
        channel, given = self.channel(f"{what}, packed,", 1, 0), Pattern.of(complete)
        self.graph.take(gearbox, source)
        self.graph.give(gearbox, channel, given, after(given))
        return channel


def row_transfers(raster: Raster, words: int) -> int:
    """Return the transfers of a row."""
    return ceil_div(raster.width * raster.groups * raster.lanes, words)


def forward_latency(schedule: Schedule) -> int:
    """Return the cycles from a step to its sum: lines, products and their tree, fold."""
    depth = 1 if schedule.depthwise else schedule.lanes_in
    return LINES + MULTIPLIER + ADDER * (depth - 1).bit_length() + ADDER + 1


def block_steps(schedule: Schedule, way: Way) -> int:
    """Return the cycles from the cycle in which a block is taken to its last step."""
    idle = schedule.round_cycles(way) - schedule.round_steps(way)
    return schedule.block_cycles(way) - idle


def rows_needed(schedule: Schedule) -> Pattern:
    """Return, by block, the rows that must be present, or have room."""
    raster, beside = schedule.features, schedule.row_blocks
    return Pattern.of([raster.last(k // beside) + 1 for k in range(schedule.blocks)], raster.height)


def rows_done(schedule: Schedule) -> Pattern:
    """Return, by block, the rows that no later block reads."""
    raster, beside = schedule.features, schedule.row_blocks
    return Pattern.of([raster.first((k + 1) // beside) for k in range(schedule.blocks)], raster.height)


def input_gradient(
    parts: Parts,
    schedule: Schedule,
    gradients: Source,
    terms: int,
    *beside: Source,
    late: float = 0,
) -> tuple[Channel, Actor]:
    """Add the engine that sums blocks of gradients in rows. ``terms``: cycles from a step to its terms.

    Return the stream of input gradients, and the actor that multiplies.
    """
    way, outputs, p = Way.INPUT_GRADIENT, schedule.outputs, schedule.p
    blocks = parts.lines("gradients", gradients, outputs, schedule.output_rows, p.po, *beside, late=late)
    sums = parts.channel("rows of input gradients", schedule.input_gradient_rows)
    actor = parts.actor("input gradient", schedule.blocks, schedule.block_cycles(way))
    steps = block_steps(schedule, way)
    parts.graph.take(actor, blocks, delay=steps + FREED)
    done = steps + terms - PLACES + ADDED
    parts.graph.give(actor, sums, rows_done(schedule), rows_needed(schedule), done)
    return parts.reader("input gradients", sums, schedule.features, p.pi), actor


def weight_gradient(parts: Parts, schedule: Schedule, gradients: Source, replay: Source, late: float) -> Actor:
    """Add the weight-gradient engine, which reads blocks of gradients and saved rows. Return its actor."""
    way, outputs, inputs, p = Way.WEIGHT_GRADIENT, schedule.outputs, schedule.features, schedule.p
    rows = parts.lines("saved rows", replay, inputs, schedule.feature_rows, p.pi)
    blocks = parts.lines("gradients for weights", gradients, outputs, schedule.output_rows, p.po, late=late)
    actor = parts.actor("weight gradient", schedule.blocks, schedule.block_cycles(way))
    steps = block_steps(schedule, way)
    parts.graph.take(actor, rows, rows_needed(schedule), rows_done(schedule), steps + FREED)
    parts.graph.take(actor, blocks, delay=steps + FREED)
    return actor


def paced(groups: int, least: int) -> list[int]:
    """Return the intervals of a position's transfers, which take at least ``least`` cycles in all."""
    return [1] * (groups - 1) + [1 + max(least - groups, 0)]
