"""What layers are made of, as actors: rows on chip, queues behind pipelines, streams that change their width.

Each function adds to a graph what a component of hdl/layers or hdl/stream is, with its room and its cycles;
tests hold the numbers against those of the components.
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

MEMORY_LATENCY = 64  #: cycles from a burst's address to its first beat, or from its last one to the response
WRITE = 11  #: cycles besides from a frame's last word in a queue until it may be read
READ = 10  #: likewise from that to its first word
SLICE = 2  #: payloads of a RegisterSlice
WRITTEN = 2  #: cycles from a row's last word until a block may begin because of it
GIVEN_BACK = 2  #: from a row's last read until a block may begin because of it
FREED = 3  #: from a block's last step until a word may come in because of that
READER = LINE_READER - 2  #: from a word's read to the stream
FILLED = RESULT_LINES - READER  #: from the last result of a block until it is read
ADDED = GRADIENT_ROWS - READER  #: from the place of a row's last terms until the row is read


@dataclass(frozen=True)
class Parts:
    """Parts of ``name``, in ``graph``."""

    graph: Graph
    name: str

    def actor(self, what: str, firings: int, intervals: object = 1) -> Actor:
        """One that is called after the layer."""
        return self.graph.actor(what, self.name, firings, intervals)

    def channel(self, what: str, capacity: int, again: float = 1) -> Channel:
        """One that is called after the layer."""
        return self.graph.channel(what, self.name, capacity, again)

    def passed(
        self, what: str, source: Source, transfers: int, capacity: int, delay: float = 1, pace: float = 1
    ) -> Channel:
        """What ``source`` gives, in a place of its own."""
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
        """A ring of ``rows`` that is written by a stream of ``words``, together with those ``beside`` it.

        What is made of a row waits for something else for so many cycles, ``late``.
        """
        transfers = row_transfers(raster, words)
        writer, channel = self.actor(f"takes {what}", raster.height * transfers), self.channel(what, rows)
        for stream in (source, *beside):
            self.graph.take(writer, stream)
        self.graph.give(writer, channel, at_last(transfers), at_first(transfers), WRITTEN + late)
        return channel

    def reader(self, what: str, rows: Channel, raster: Raster, words: int) -> Channel:
        """Rows as a stream of ``words``."""
        transfers = row_transfers(raster, words)
        reader, channel = self.actor(f"gives {what}", raster.height * transfers), self.channel(what, READ_AHEAD)
        self.graph.take(reader, rows, at_first(transfers), at_last(transfers), GIVEN_BACK)
        self.graph.give(reader, channel, delay=READER)
        return channel

    def resized(self, what: str, source: Source, words: int, i: int, o: int) -> Source:
        """A frame of so many words, ``i`` a transfer, as one of ``o``: Resize."""
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
        """The same of any widths, ``frames`` apart from one another: Gearbox."""
        transfers = ceil_div(words, i)
        complete = np.minimum(np.arange(1, transfers + 1) * i // o, words // o)
        complete[-1] = ceil_div(words, o)
        gearbox = self.actor(f"packs {what}", transfers * frames, max(1.0, i / o))
        channel, given = self.channel(f"{what}, packed,", 1, 0), Pattern.of(complete)
        self.graph.take(gearbox, source)
        self.graph.give(gearbox, channel, given, after(given))
        return channel


def row_transfers(raster: Raster, words: int) -> int:
    """Transfers of a row."""
    return ceil_div(raster.width * raster.groups * raster.lanes, words)


def forward_latency(schedule: Schedule) -> int:
    """Cycles from a step to its sum: lines, products and their tree, fold."""
    depth = 1 if schedule.depthwise else schedule.lanes_in
    return LINES + MULTIPLIER + ADDER * (depth - 1).bit_length() + ADDER + 1


def block_steps(schedule: Schedule, way: Way) -> int:
    """Cycles from the one in which a block is taken to its last step."""
    idle = schedule.round_cycles(way) - schedule.round_steps(way)
    return schedule.block_cycles(way) - idle


def rows_needed(schedule: Schedule) -> Pattern:
    """Of each block: rows that must be there, or have room."""
    raster, beside = schedule.features, schedule.row_blocks
    return Pattern.of([raster.last(k // beside) + 1 for k in range(schedule.blocks)], raster.height)


def rows_done(schedule: Schedule) -> Pattern:
    """Of each block: rows that no later one sees."""
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
    """Blocks of gradients that are summed in rows; ``terms``: cycles from a step to its terms.

    The gradients of the input, and the actor that multiplies.
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
    """Blocks of gradients and rows of the saved input, which make the weights' gradient."""
    way, outputs, inputs, p = Way.WEIGHT_GRADIENT, schedule.outputs, schedule.features, schedule.p
    rows = parts.lines("saved rows", replay, inputs, schedule.feature_rows, p.pi)
    blocks = parts.lines("gradients for weights", gradients, outputs, schedule.output_rows, p.po, late=late)
    actor = parts.actor("weight gradient", schedule.blocks, schedule.block_cycles(way))
    steps = block_steps(schedule, way)
    parts.graph.take(actor, rows, rows_needed(schedule), rows_done(schedule), steps + FREED)
    parts.graph.take(actor, blocks, delay=steps + FREED)
    return actor


def paced(groups: int, least: int) -> list[int]:
    """Intervals of a position's transfers: it takes ``least`` cycles or more."""
    return [1] * (groups - 1) + [1 + max(least - groups, 0)]
