"""Helpers with which layers define their actors: streams of a stage's component, its room and its cycles.

``fanin/cnn/layers/KIND.py`` has the actors of a kind of layer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fanin.cnn.flow import parts as p
from fanin.cnn.flow.graph import Actor, Channel, Graph, Source, at_first
from fanin.cnn.flow.parts import Parts
from fanin.cnn.layers.layer import Layer, Parallelism, Storage, ceil_div
from fanin.cnn.layers.port import BEAT_WORDS
from fanin.cnn.layers.schedule import Schedule, Way


@dataclass
class Flows:
    """Streams of a stage that have been added so far.

    ``saved``: stream of saved words.
    ``replay``: stream of replayed words.
    ``admits``: channel with a token for each frame that may go forward.
    ``finished``: actors, firings of a frame, and cycles from its last firing until its gradient is in the
    velocities.
    """

    output: Source | None = None
    saved: Source | None = None
    replay: Source | None = None
    admits: Channel | None = None
    finished: list[tuple[Actor, int, float]] = field(default_factory=list)
    gradients: list[Source] = field(default_factory=list)  #: gradient stream of each input


@dataclass(frozen=True)
class StageActors:
    """Builder of a stage's actors in a graph. ``name``: name of the stage."""

    graph: Graph
    name: str
    layer: Layer
    parallelism: Parallelism
    storage: Storage

    @property
    def parts(self) -> Parts:
        """Builder of parts owned by the stage."""
        return Parts(self.graph, self.name)

    @property
    def transfers(self) -> int:
        """Transfers of a frame of the output."""
        return self.layer.output.words // self.parallelism.po

    @property
    def groups(self) -> int:
        """Transfers of a position of the output."""
        return ceil_div(self.layer.output.c, self.parallelism.po)

    def joined(
        self, what: str, sources: list[Source], capacity: int, delay: float, intervals: object = 1
    ) -> Channel:
        """Add an actor that takes one transfer of each source and gives one. Return its channel."""
        actor = self.parts.actor(what, self.transfers, intervals)
        channel = self.parts.channel("outputs" if what in ("adds", "forward") else what, capacity)
        for source in sources:
            self.graph.take(actor, source)
        self.graph.give(actor, channel, delay=delay)
        return channel

    def piped(self, what: str, sources: list[Source], latency: int) -> Channel:
        """Add a PipelineQueue of ``latency`` cycles. Return its channel."""
        return self.joined(what, sources, latency + 2, latency + 1)

    def give_and_save(self, source: Source) -> Flows:
        """Add a register slice to the next layer, and one to memory if the layer saves."""
        transfers = self.transfers
        flows = Flows(Source(self.parts.passed("outputs", source, transfers, p.SLICE)))
        if self.layer.saved:
            flows.saved = Source(self.parts.passed("saved words", source, transfers, p.SLICE))
        return flows

    def windows(self, source: Source, schedule: Schedule, admits: Channel | None = None) -> Channel:
        """Add rows, blocks and results of a windowed layer. Return the channel of outputs."""
        parts, raster, lanes = self.parts, schedule.features, self.parallelism
        sums = p.forward_latency(schedule)
        late = self.answered(p.row_transfers(raster, lanes.pi))
        rows = parts.lines("rows", source, raster, schedule.feature_rows, lanes.pi, late=late)
        results = parts.channel("results", schedule.result_rows)
        blocks = self.blocks(schedule, rows, results, sums)
        if admits is not None:
            if answer := self.answered(0):
                admits = parts.passed("weights", Source(admits), 1, 1 << 40, answer)
            self.graph.take(blocks, admits, at_first(schedule.blocks))
        return parts.reader("outputs", results, schedule.outputs, lanes.po)

    def blocks(self, schedule: Schedule, rows: Channel, results: Channel, sums: int) -> Actor:
        """Add the forward engine, and return its actor. ``sums``: cycles from a step to its result."""
        steps = p.block_steps(schedule, Way.FORWARD)
        cycles = max(schedule.block_cycles(Way.FORWARD), self._pass_cycles)
        actor = self.parts.actor("forward", schedule.blocks, cycles)
        late = cycles - schedule.block_cycles(Way.FORWARD)
        self.graph.take(actor, rows, p.rows_needed(schedule), p.rows_done(schedule), late + steps + p.FREED)
        self.graph.give(actor, results, delay=late + steps + sums + p.FILLED)
        return actor

    @property
    def _pass_cycles(self) -> int:
        """Cycles of a pass over parameters in memory, a beat a cycle; 0 where they are on chip."""
        return ceil_div(self.layer.parameters, BEAT_WORDS) if self.storage is Storage.DRAM else 0

    def answered(self, transfers: int) -> int:
        """Return the cycles from a frame's last transfer until memory answers its first transfer's request."""
        answer = p.MEMORY_LATENCY + p.READ if self.storage is Storage.DRAM else 0
        return max(answer - transfers, 0)
