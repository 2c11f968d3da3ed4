"""Parts of layers in the flow model: rings of rows, queues after pipelines, changes of a stream's width.

Each function adds the model of a component of hdl/layers or hdl/stream to a graph: actors and channels with the
component's room and cycles. Tests compare the constants with the components.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm

import numpy as np

from fanin.cnn.flow.graph import (
    EVERY_FIRING,
    Actor,
    Channel,
    Graph,
    Pattern,
    Source,
    at_first,
    at_last,
    next_token,
)
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
from fanin.cnn.layers.raster import Raster
from fanin.cnn.layers.schedule import Schedule, Way

MEMORY_LATENCY = 64  #: cycles from a burst's address to its first beat, or from its last beat to the response
WRITE_LATENCY = 11  #: cycles, besides memory's, from a frame's last word in a queue until the frame may be read
READ_LATENCY = 10  #: cycles, besides memory's, from the start of a frame's read until its first word
SLICE_PAYLOADS = 2  #: payloads of a RegisterSlice
ROW_WRITTEN = 2  #: cycles from a row's last word until a block that waits for it may start
ROW_FREED = 2  #: cycles from a row's last read until a block that waits for its room may start
BLOCK_FREED = 3  #: cycles from a block's last step until a word may enter the freed room
READER_LATENCY = LINE_READER - 2  #: cycles from a word's read to the stream
#: cycles from the last result of a block until the block is read
RESULT_ROW_LATENCY = RESULT_LINES - READER_LATENCY
#: cycles from the place of a row's last terms until the row is read
GRADIENT_ROW_LATENCY = GRADIENT_ROWS - READER_LATENCY


@dataclass(frozen=True)
class Parts:
    """Builder of the parts of a stage or an edge in a graph.

    Methods add actors and channels, and return the channel from which the part's output is taken.
    """

    graph: Graph
    owner: str  #: name of the stage or edge

    def actor(self, name: str, firings: int, intervals: object = 1) -> Actor:
        """Add an actor owned by ``owner``, and return it."""
        return self.graph.actor(name, self.owner, firings, intervals)

    def channel(self, name: str, capacity: int, free_delay: float = 1) -> Channel:
        """Add a channel owned by ``owner``, and return it."""
        return self.graph.channel(name, self.owner, capacity, free_delay)

    def copy(
        self, name: str, source: Source, transfers: int, capacity: int, delay: float = 1, pace: float = 1
    ) -> Channel:
        """Add an actor that copies ``source``'s tokens to a new channel. Return the channel.

        ``transfers``: tokens per frame.
        ``capacity``: tokens of the new channel.
        ``pace``: minimum cycles between tokens.
        """
        actor, channel = self.actor(name, transfers, pace), self.channel(name, capacity)
        self.graph.take(actor, source)
        self.graph.give(actor, channel, delay=delay)
        return channel

    def row_ring(
        self,
        name: str,
        source: Source,
        raster: Raster,
        rows: int,
        words: int,
        *companions: Source,
        extra_delay: float = 0,
        group: int = 1,
    ) -> Channel:
        """Add a ring of rows, and return its channel. A token is a row.

        ``source``: stream that is written to the ring.
        ``rows``: capacity in rows.
        ``words``: words of a transfer.
        ``companions``: streams of which a transfer is taken with each transfer of ``source``.
        ``extra_delay``: cycles until a written row may be used, in addition to ``ROW_WRITTEN``.
        ``group``: frames of the raster's map.
        """
        transfers = row_transfers(raster, words)
        firings = raster.height * transfers // group
        writer, channel = self.actor(f"takes {name}", firings), self.channel(name, rows)
        for stream in (source, *companions):
            self.graph.take(writer, stream)
        self.graph.give(writer, channel, at_last(transfers), at_first(transfers), ROW_WRITTEN + extra_delay)
        return channel

    def row_reader(self, name: str, rows: Channel, raster: Raster, words: int, group: int = 1) -> Channel:
        """Add a reader of complete rows. Return its stream.

        ``words``: words of a transfer.
        ``group``: frames of the raster's map.
        """
        transfers = row_transfers(raster, words)
        firings = raster.height * transfers // group
        reader, channel = self.actor(f"gives {name}", firings), self.channel(name, READ_AHEAD)
        self.graph.take(reader, rows, at_first(transfers), at_last(transfers), ROW_FREED)
        self.graph.give(reader, channel, delay=READER_LATENCY)
        return channel

    def resize(self, name: str, source: Source, words: int, width_in: int, width_out: int) -> Source:
        """Add a Resize from ``width_in`` to ``width_out`` words a transfer. ``words``: words of a frame."""
        if width_in == width_out:
            return source
        group_words = lcm(width_in, width_out)
        collector = self.actor(f"collects {name}", words // width_in)
        groups = self.channel(f"{name}, collected,", 1)
        self.graph.take(collector, source)
        self.graph.give(collector, groups, at_last(group_words // width_in))
        if group_words == width_out:
            return Source(groups)
        giver = self.actor(f"gives {name}", words // group_words, group_words // width_out)
        channel = self.channel(name, 1, 0)
        self.graph.take(giver, groups)
        group = Pattern.of([group_words // width_out])
        self.graph.give(giver, channel, group, next_token(group))
        return Source(channel)

    def gearbox(
        self, name: str, source: Source, words: int, width_in: int, width_out: int, frames: int = 1
    ) -> Channel:
        """Add a Gearbox from ``width_in`` to ``width_out`` words a transfer, of any widths.

        Each of ``frames`` groups of ``words`` words starts with a new transfer.
        """
        transfers = ceil_div(words, width_in)
        given_words = np.minimum(np.arange(1, transfers + 1) * width_in // width_out, words // width_out)
        given_words[-1] = ceil_div(words, width_out)
        gearbox = self.actor(f"packs {name}", transfers * frames, max(1.0, width_in / width_out))
        channel, given_tokens = self.channel(f"{name}, packed,", 1, 0), Pattern.of(given_words)
        self.graph.take(gearbox, source)
        self.graph.give(gearbox, channel, given_tokens, next_token(given_tokens))
        return channel


def row_transfers(raster: Raster, words: int) -> int:
    """Return the transfers of a row. ``words``: words of a transfer."""
    return ceil_div(raster.width * raster.groups * raster.lanes, words)


def forward_latency(schedule: Schedule) -> int:
    """Return the cycles from a step of the forward engine to its sum: lines, products and their tree, fold."""
    tree_inputs = 1 if schedule.depthwise else schedule.lanes_in
    return LINES + MULTIPLIER + ADDER * (tree_inputs - 1).bit_length() + ADDER + 1


def block_steps(schedule: Schedule, way: Way) -> int:
    """Return the cycles from the cycle in which an engine takes a block to the block's last step."""
    idle = schedule.round_cycles(way) - schedule.round_steps(way)
    return schedule.block_cycles(way) - idle


def at_group_start(pattern: Pattern, frames: int) -> Pattern:
    """Return the pattern of an engine that fires once a frame, with a group's tokens at its first firing."""
    return Pattern(np.repeat(pattern.counts, frames), pattern.step)


def at_group_end(pattern: Pattern, frames: int) -> Pattern:
    """Return the pattern of an engine that fires once a frame, with a group's tokens at its last firing."""
    before = np.concatenate(([pattern.counts[-1] - pattern.step], pattern.counts[:-1]))
    counts = np.repeat(before, frames)
    counts[frames - 1 :: frames] = pattern.counts
    return Pattern(counts, pattern.step)


def rows_needed(schedule: Schedule) -> Pattern:
    """Return, by block, the number of rows that must be present to read, or have room to be summed."""
    raster, row_blocks = schedule.features, schedule.row_blocks
    return Pattern.of([raster.last(k // row_blocks) + 1 for k in range(schedule.blocks)], raster.height)


def rows_done(schedule: Schedule) -> Pattern:
    """Return, by block, the number of rows that no later block uses."""
    raster, row_blocks = schedule.features, schedule.row_blocks
    return Pattern.of([raster.first((k + 1) // row_blocks) for k in range(schedule.blocks)], raster.height)


def input_gradient(
    parts: Parts,
    schedule: Schedule,
    gradients: Source,
    term_latency: int,
    *companions: Source,
    extra_delay: float = 0,
) -> tuple[Channel, Actor]:
    """Add the input-gradient engine. Return the stream of input gradients, and the engine's actor.

    ``gradients``: gradient of the output.
    ``term_latency``: cycles from a step to its terms.
    ``companions``, ``extra_delay``: as in :meth:`Parts.row_ring`.
    """
    way, outputs, p = Way.INPUT_GRADIENT, schedule.outputs, schedule.p
    blocks = parts.row_ring(
        "gradients",
        gradients,
        outputs,
        schedule.output_rows,
        p.po,
        *companions,
        extra_delay=extra_delay,
        group=p.frames,
    )
    sums = parts.channel("rows of input gradients", schedule.input_gradient_rows)
    actor = parts.actor("input gradient", schedule.blocks, schedule.block_cycles(way) / p.frames)
    steps = block_steps(schedule, way) / p.frames
    _take_blocks(parts.graph, actor, blocks, steps, p.frames)
    sum_delay = steps + term_latency - PLACES + GRADIENT_ROW_LATENCY
    given, claimed = (
        at_group_end(rows_done(schedule), p.frames),
        at_group_start(rows_needed(schedule), p.frames),
    )
    parts.graph.give(actor, sums, given, claimed, sum_delay)
    return parts.row_reader("input gradients", sums, schedule.features, p.pi, p.frames), actor


def _take_blocks(graph: Graph, actor: Actor, blocks: Channel, steps: float, frames: int) -> None:
    """Let an engine take a block of gradients; ``steps`` cycles after its last firing the block is free."""
    start, end = at_group_start(EVERY_FIRING, frames), at_group_end(EVERY_FIRING, frames)
    graph.take(actor, blocks, start, end, steps + BLOCK_FREED)


def weight_gradient(
    parts: Parts, schedule: Schedule, gradients: Source, replay: Source, extra_delay: float
) -> Actor:
    """Add the weight-gradient engine, which reads saved rows and blocks of gradients. Return its actor.

    ``extra_delay``: as in :meth:`Parts.row_ring`, for the gradients.
    """
    way, outputs, inputs, p = Way.WEIGHT_GRADIENT, schedule.outputs, schedule.features, schedule.p
    rows = parts.row_ring("saved rows", replay, inputs, schedule.feature_rows, p.pi, group=p.frames)
    blocks = parts.row_ring(
        "gradients for weights",
        gradients,
        outputs,
        schedule.output_rows,
        p.po,
        extra_delay=extra_delay,
        group=p.frames,
    )
    actor = parts.actor("weight gradient", schedule.blocks, schedule.block_cycles(way) / p.frames)
    steps = block_steps(schedule, way) / p.frames
    take_rows(parts.graph, actor, rows, schedule, steps)
    _take_blocks(parts.graph, actor, blocks, steps, p.frames)
    return actor


def take_rows(graph: Graph, actor: Actor, rows: Channel, schedule: Schedule, steps: float) -> None:
    """Let an engine read rows of features, which are free ``steps`` cycles after their last use."""
    needed = at_group_start(rows_needed(schedule), schedule.p.frames)
    done = at_group_end(rows_done(schedule), schedule.p.frames)
    graph.take(actor, rows, needed, done, steps + BLOCK_FREED)


def position_intervals(groups: int, minimum: int) -> list[int]:
    """Return the intervals of a position's ``groups`` transfers, in all at least ``minimum`` cycles."""
    return [1] * (groups - 1) + [1 + max(minimum - groups, 0)]
