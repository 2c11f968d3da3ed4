"""Builder of a stage's actors in the flow model.

``fanin/cnn/layers/KIND.py`` calls the builder in ``actors`` and ``actors_back``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fanin.cnn.flow.graph import EVERY_FIRING, UNLIMITED, Actor, Channel, Graph, Pattern, Source, at_first
from fanin.cnn.flow.parts import (
    MEMORY_LATENCY,
    READ_LATENCY,
    RESULT_ROW_LATENCY,
    SLICE_PAYLOADS,
    Parts,
    at_group_end,
    at_group_start,
    block_steps,
    forward_latency,
    row_transfers,
    take_rows,
)
from fanin.cnn.layers.layer import Layer, Parallelism, Storage, ceil_div
from fanin.cnn.layers.port import BEAT_WORDS
from fanin.cnn.layers.schedule import Schedule, Way


@dataclass
class Flows:
    """Streams of a stage in the graph, named like the ports of its component.

    None: the stage has no such stream, or the stream is not added yet.
    """

    output: Source | None = None
    save: Source | None = None  #: words to save for the backward pass
    replay: Source | None = None  #: saved words, read back
    admissions: Channel | None = None  #: a token for each frame that may go forward
    #: actors of parameters' gradients: actor, firings per frame, and cycles from a frame's last firing until
    #: the frame's gradient is in the velocities
    gradient_actors: list[tuple[Actor, int, float]] = field(default_factory=list)
    input_gradients: list[Source] = field(default_factory=list)  #: gradient of each input


@dataclass(frozen=True)
class StageActors:
    """Builder of a stage's actors in a graph.

    - ``graph``: graph to which actors and channels are added.
    - ``name``: name of the stage.
    - ``layer``: layer of the stage.
    - ``parallelism``: lanes of the stage.
    - ``storage``: memory of the layer's parameters: on chip or DRAM.
    """

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
        """Transfers of the output per frame."""
        return self.layer.output.words // self.parallelism.po

    @property
    def groups(self) -> int:
        """Transfers of the output per position."""
        return ceil_div(self.layer.output.c, self.parallelism.po)

    def join(
        self, name: str, sources: list[Source], capacity: int, delay: float, intervals: object = 1
    ) -> Channel:
        """Add an actor that takes one transfer of each source and gives one. Return the output channel.

        ``capacity``: transfers in the output channel.
        ``delay``: cycles from the inputs to the output.
        ``intervals``: minimum cycles between firings: a number, or a sequence that repeats.
        """
        actor = self.parts.actor(name, self.transfers, intervals)
        channel = self.parts.channel("outputs" if name in ("adds", "forward") else name, capacity)
        for source in sources:
            self.graph.take(actor, source)
        self.graph.give(actor, channel, delay=delay)
        return channel

    def pipeline_queue(self, name: str, sources: list[Source], latency: int) -> Channel:
        """Add a PipelineQueue after a pipeline of ``latency`` cycles. Return the output channel."""
        return self.join(name, sources, latency + 2, latency + 1)

    def give_and_save(self, source: Source) -> Flows:
        """Add a register slice to the next layer, and one to memory if the layer saves words."""
        transfers = self.transfers
        flows = Flows(Source(self.parts.copy("outputs", source, transfers, SLICE_PAYLOADS)))
        if self.layer.saved_words:
            flows.save = Source(self.parts.copy("saved words", source, transfers, SLICE_PAYLOADS))
        return flows

    def windows(self, source: Source, schedule: Schedule, admissions: Channel | None = None) -> Channel:
        """Add the ring of rows, the engine and the results of a windowed layer. Return the channel of outputs.

        ``admissions``: channel of which a frame's first block takes a token.
        """
        parts, raster, lanes = self.parts, schedule.features, self.parallelism
        result_latency = forward_latency(schedule)
        memory_wait = self.memory_wait(row_transfers(raster, lanes.pi))
        rows = parts.row_ring(
            "rows",
            source,
            raster,
            schedule.feature_rows,
            lanes.pi,
            extra_delay=memory_wait,
            group=schedule.p.frames,
        )
        results = parts.channel("results", schedule.result_rows)
        engine = self.forward_engine(schedule, rows, results, result_latency)
        if admissions is not None:
            if wait := self.memory_wait(0):
                # The copy only delays the tokens.
                admissions = parts.copy("weights", Source(admissions), 1, UNLIMITED, wait)
            frames = schedule.p.frames
            whole_group = Pattern.of([frames] * frames)  # of frames, all admitted when the group begins
            self.graph.take(engine, admissions, at_first(schedule.blocks) if frames == 1 else whole_group)
        return parts.row_reader("outputs", results, schedule.outputs, lanes.po, schedule.p.frames)

    def forward_engine(self, schedule: Schedule, rows: Channel, results: Channel, result_latency: int) -> Actor:
        """Add the forward engine, and return its actor.

        ``result_latency``: cycles from a step to its result.
        """
        frames = schedule.p.frames
        steps = block_steps(schedule, Way.FORWARD) / frames
        cycles = max(schedule.block_cycles(Way.FORWARD), self._pass_cycles) / frames
        actor = self.parts.actor("forward", schedule.blocks, cycles)
        extra_cycles = cycles - schedule.block_cycles(Way.FORWARD) / frames
        take_rows(self.graph, actor, rows, schedule, extra_cycles + steps)
        self.graph.give(
            actor,
            results,
            at_group_end(EVERY_FIRING, frames),
            at_group_start(EVERY_FIRING, frames),
            extra_cycles + steps + result_latency + RESULT_ROW_LATENCY,
        )
        return actor

    @property
    def _pass_cycles(self) -> int:
        """Cycles to read all parameters from DRAM, a beat a cycle; 0 for parameters on chip."""
        return ceil_div(self.layer.parameters, BEAT_WORDS) if self.storage is Storage.DRAM else 0

    def memory_wait(self, transfers: int) -> int:
        """Return the cycles from a frame's last transfer until DRAM answers the frame's first request.

        The request is sent with the frame's first transfer. The wait is 0 for parameters on chip.

        ``transfers``: transfers of the frame.
        """
        latency = MEMORY_LATENCY + READ_LATENCY if self.storage is Storage.DRAM else 0
        return max(latency - transfers, 0)
