"""Dataflow graph of a build: stages' actors, FIFOs between stages, rings of saved maps, and batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fanin.cnn.facts import Consumer, Network, Stage
from fanin.cnn.flow import parts as p
from fanin.cnn.flow.graph import Actor, Channel, Graph, Pattern, Source, at_first, at_last
from fanin.cnn.flow.link import Edge, Link
from fanin.cnn.flow.parts import Parts
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.latencies import ADDER, MULTIPLIER
from fanin.cnn.layers.layer import Storage
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.port import BEAT_WORDS, WRITE_DEPTH, read_depth
from fanin.cnn.layers.soft_cross_loss import LABELS_PORT, SoftCrossLoss
from fanin.cnn.memory import saved_frames

ADMITTED = 3  #: cycles from an update's end until a frame may start
FINISHED = 2  #: cycles from a frame's last gradient until the update may start
RENEWED = MULTIPLIER + ADDER + 3  #: cycles of an update in addition to one cycle a parameter
RESULT = 14  #: cycles from a result's last word until it is in memory


@dataclass(frozen=True)
class Sizes:
    """Sizes of a build's buffers.

    ``rings``: frames of each ring, by stage.
    ``skews``: transfers of each forward FIFO, by edge.
    ``gradient_skews``: transfers of each backward FIFO, by edge.
    ``links``: link of each cut edge, with its room.
    """

    rings: Mapping[int, int]
    skews: Mapping[Edge, int]
    gradient_skews: Mapping[Edge, int]
    links: Mapping[Edge, Link] = field(default_factory=dict)

    @staticmethod
    def of(flow: Flow) -> Sizes:
        """Return the sizes with which frames stream without a pause."""
        return Sizes(flow.rings, flow.skews, flow.gradient_skews, flow.links)


@dataclass
class NodeGraph:
    """Dataflow graph of a network.

    ``batch``: frames between two updates.
    ``period``: least cycles from image to image.
    ``updates``: least cycles of each stage's update.
    ``pace``: least cycles from frame to frame in trained layers, for limits outside the graph such as memory.

    ``flows``: streams of each stage.
    ``images``: channels of images.
    ``results``: actor that takes the loss's results.
    ``ends``: one for each weight or input gradient of a trained layer. An end has its actor, the cycles until a
    frame's gradient is in the velocities, and the cycles from then until parameters are updated.
    """

    network: Network
    sizes: Sizes
    batch: int
    period: float = 0
    updates: Mapping[int, float] = field(default_factory=dict)
    pace: float = 0
    graph: Graph = field(default_factory=Graph)
    flows: dict[int, Flows] = field(default_factory=dict)
    images: list[Channel] = field(default_factory=list)
    results: Actor | None = None
    ends: list[tuple[Actor, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for index in range(len(self.network.stages)):
            self._forward(index)
        for index in reversed(range(len(self.network.stages))):
            self._backward(index)

    def _parts(self, index: int) -> Parts:
        return Parts(self.graph, self.network.stages[index].name)

    def _stage_actors(self, stage: Stage) -> StageActors:
        return StageActors(self.graph, stage.name, stage.layer, stage.parallelism, stage.storage)

    def _forward(self, index: int) -> None:
        stage = self.network.stages[index]
        sources = [self._edge(Consumer(index, port)) for port in range(len(stage.sources))]
        if isinstance(stage.layer, Input):
            self.flows[index] = Flows(Source(self._input(index)))
        elif isinstance(stage.layer, Output):
            self.flows[index] = Flows()
            self._output(index, sources[0])
        else:
            self.flows[index] = flows = stage.layer.actors(self._stage_actors(stage), sources)
            if flows.saved is not None and index in self.sizes.rings:
                flows.replay = Source(self._ring(index, flows.saved))
            elif flows.saved is not None:  # no gradient needs the saved words
                words = saved_frames(self.network, index)
                self.graph.take(
                    self._parts(index).actor("drops words", words.words // words.lanes), flows.saved
                )

    def _edge(self, consumer: Consumer) -> Source:
        """Add the edge to a consumer. Return the stream at the consumer's input."""
        stages = self.network.stages
        source, target = stages[stages[consumer.stage].sources[consumer.port]], stages[consumer.stage]
        output = self.flows[target.sources[consumer.port]].output
        assert output is not None
        depth = self.sizes.skews.get((consumer.stage, consumer.port), 0)
        parts = Parts(self.graph, f"{source.name} → {target.name}")
        widths = source.parallelism.po, target.parallelism.pi
        link = self.sizes.links.get((consumer.stage, consumer.port))
        words, resized = source.layer.output.words, target.layer.takes_turns
        return _queued(parts, output, depth, words, *widths, link, resized=resized)

    def _input(self, index: int) -> Channel:
        """Add the actor that reads frames from memory, always in time. Return its channel."""
        stage, parts = self.network.stages[index], self._parts(index)
        transfers = stage.layer.output.words // stage.parallelism.po
        pace = max(1.0, stage.parallelism.po / BEAT_WORDS, self.period / transfers)
        depth = read_depth(stage.parallelism.po) * BEAT_WORDS // stage.parallelism.po
        actor, words = parts.actor("forward", transfers, pace), parts.channel("outputs", depth)
        self.graph.give(actor, words, delay=p.MEMORY_LATENCY + 24)
        if not any(self._is_label(consumer) for consumer in self.network.consumers[index]):
            self.images.append(words)
        return words

    def _is_label(self, consumer: Consumer) -> bool:
        return (
            isinstance(self.network.stages[consumer.stage].layer, SoftCrossLoss)
            and consumer.port == LABELS_PORT
        )

    def _output(self, index: int, source: Source) -> None:
        stage = self.network.stages[index]
        self.results = self._parts(index).actor("forward", stage.layer.input.words // stage.parallelism.pi)
        self.graph.take(self.results, source)

    def _ring(self, index: int, saved: Source) -> Channel:
        """Add a ring in memory: beats are written one by one, and read once the frame is complete."""
        parts, frames = self._parts(index), saved_frames(self.network, index)
        packed = parts.geared("saved words", saved, frames.words, frames.lanes, BEAT_WORDS)
        queue = parts.passed("the queue of saved words", Source(packed), frames.beats, WRITE_DEPTH)
        writes = parts.actor("writes", frames.beats)
        ring = parts.channel("the ring", self.sizes.rings[index])
        self.graph.take(writes, queue)
        self.graph.give(writes, ring, at_last(frames.beats), at_first(frames.beats), p.MEMORY_LATENCY + p.WRITE)
        reads = parts.actor("reads", frames.beats)
        beats = parts.channel("the queue of replayed words", read_depth(frames.lanes))
        self.graph.take(reads, ring, at_first(frames.beats), at_last(frames.beats), p.MEMORY_LATENCY + p.READ)
        self.graph.give(reads, beats, delay=p.MEMORY_LATENCY + p.READ)
        return parts.geared("replayed words", Source(beats), frames.words, BEAT_WORDS, frames.lanes)

    def _backward(self, index: int) -> None:
        stage = self.network.stages[index]
        if isinstance(stage.layer, Input | Output | SoftCrossLoss):
            return
        came = [
            source for consumer in self.network.consumers[index] for source in self._returned(index, consumer)
        ]
        flows = self.flows[index]
        if not stage.layer.trains or not came:
            self._dropped(index, came)
            if flows.admits is not None:  # a trained layer without a gradient
                self.graph.give(self._parts(index).actor("admits", 1), flows.admits)
            return
        stage.layer.actors_back(self._stage_actors(stage), flows, self._sum(index, came))
        if flows.finished:
            self._batches(index, flows)

    def _returned(self, index: int, consumer: Consumer) -> list[Source]:
        """Return the gradient stream from a consumer, or nothing if it sends none."""
        stages = self.network.stages
        given = self.flows[consumer.stage].gradients
        if consumer.port >= len(given):
            return []
        depth = self.sizes.gradient_skews.get((consumer.stage, consumer.port), 0)
        stage, sender = stages[index], stages[consumer.stage]
        parts = Parts(self.graph, f"{sender.name} → {stage.name}")
        widths = sender.parallelism.pi, stage.parallelism.po
        link = self.sizes.links.get((consumer.stage, consumer.port))
        return [_queued(parts, given[consumer.port], depth, stage.layer.output.words, *widths, link)]

    def _sum(self, index: int, came: list[Source]) -> Source:
        if len(came) == 1:
            return came[0]
        parts, stage = self._parts(index), self.network.stages[index]
        latency = ADDER * (len(came) - 1).bit_length()
        actor = parts.actor("fork's sum", stage.layer.output.words // stage.parallelism.po)
        channel = parts.channel("gradients", latency + 2)
        for source in came:
            self.graph.take(actor, source)
        self.graph.give(actor, channel, delay=latency + 1)
        return Source(channel)

    def _dropped(self, index: int, came: list[Source]) -> None:
        """Add actors that drop gradients, for a stage with no parameters in it or upstream."""
        stage = self.network.stages[index]
        for source in came:
            words = stage.layer.output.words // stage.parallelism.po
            self.graph.take(self._parts(index).actor("drops gradients", words), source)

    def _batches(self, index: int, flows: Flows) -> None:
        """Admit the next batch's frames after this batch's gradients have updated the parameters."""
        parts, stage = self._parts(index), self.network.stages[index]
        admits = parts.actor("admits", 1, self.pace)
        waits = Pattern(np.zeros(self.batch, np.int64), self.batch)
        for number, (actor, firings, late) in enumerate(flows.finished):
            finished = parts.channel(f"finished frames ({number})", 1 << 40)
            updates = FINISHED + max(stage.layer.parameters, self.updates.get(index, 0)) + RENEWED
            if stage.storage is Storage.DRAM:  # parameters are read, written and acknowledged
                updates += 2 * p.MEMORY_LATENCY + p.READ + p.WRITE
            self.ends.append((actor, late, updates))
            self.graph.give(actor, finished, at_last(firings), delay=late + updates + ADMITTED)
            self.graph.take(admits, finished, waits, waits)
        assert flows.admits is not None
        self.graph.give(admits, flows.admits, delay=0)


def _queued(
    parts: Parts,
    source: Source,
    depth: int,
    words: int,
    i: int,
    o: int,
    link: Link | None,
    *,
    resized: bool = False,
) -> Source:
    """Add one way of an edge: its link if it is cut, a FIFO of ``depth`` transfers, and a change of the width.

    After a link, transfers have the receiver's width. With ``resized``, the width changes before the FIFO.
    """
    if link:
        source, i = link.carry(parts, source, i, o), o
    if resized:
        source, i = parts.resized("words", source, words, i, o), o
    if depth:
        source = Source(parts.passed("the FIFO", source, words // i, depth))
    return parts.resized("words", source, words, i, o)
