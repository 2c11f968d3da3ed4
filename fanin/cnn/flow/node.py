"""Dataflow graph of a build: actors of stages, FIFOs between stages, rings of saved maps, and batches.

The graph consists of:

- each stage's own actors, which its layer adds (``fanin/cnn/layers/KIND.py``)
- for each edge and direction, the FIFO, the change of width and the link to another device
- for each stage that saves maps, the ring in memory that delays them until the backward pass
- for each trained stage, an actor that admits a batch's frames after the previous batch's update
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fanin.cnn.facts import Consumer, Network, Stage
from fanin.cnn.flow.graph import UNLIMITED, Actor, Channel, Graph, Pattern, Source, at_first, at_last
from fanin.cnn.flow.link import Edge, Link, Losses
from fanin.cnn.flow.parts import MEMORY_LATENCY, READ_LATENCY, WRITE_LATENCY, Parts
from fanin.cnn.flow.sizes import Flow
from fanin.cnn.flow.stages import Flows, StageActors
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.latencies import ADDER, MULTIPLIER
from fanin.cnn.layers.layer import Storage, ceil_div
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.port import BEAT_WORDS, WRITE_DEPTH, read_depth
from fanin.cnn.layers.soft_cross_loss import LABELS_PORT, SoftCrossLoss
from fanin.cnn.memory import saved_frames

ADMIT_LATENCY = 3  #: cycles from an update's end until a frame may start
FINISH_LATENCY = 2  #: cycles from a frame's last gradient until the update may start
UPDATE_LATENCY = MULTIPLIER + ADDER + 3  #: cycles of an update in addition to one cycle per parameter


@dataclass(frozen=True)
class Sizes:
    """Sizes of a build's buffers."""

    rings: Mapping[int, int]  #: frames of each ring of saved maps, by stage
    skews: Mapping[Edge, int]  #: transfers of each forward FIFO, by edge
    gradient_skews: Mapping[Edge, int]  #: transfers of each backward FIFO, by edge
    links: Mapping[Edge, Link] = field(default_factory=dict)  #: link of each edge between devices

    @staticmethod
    def of(flow: Flow) -> Sizes:
        """Return the sizes with which ``flow`` streams frames without a pause."""
        return Sizes(flow.rings, flow.skews, flow.gradient_skews, flow.links)

    def with_losses(self, drop: float, period: float, seed: int) -> Sizes:
        """Return the sizes with links that lose frames.

        ``drop``: probability that a link loses a frame in one direction.
        ``period``: cycles from map to map, without losses.
        """
        links = {}
        for number, (edge, link) in enumerate(self.links.items()):
            interval = period / (link.rows * link.frames.frames)
            links[edge] = replace(link, losses=Losses(drop, interval, (seed, number)))
        return replace(self, links=links)


@dataclass
class NodeGraph:
    """Dataflow graph of a network with buffers of given sizes.

    The graph is built when the object is created.
    """

    network: Network
    sizes: Sizes
    batch: int  #: frames between two updates; rounded up to whole groups of all stages
    period: float = 0  #: minimum cycles from image to image
    updates: Mapping[int, float] = field(default_factory=dict)  #: minimum cycles of an update, by stage
    pace: float = 0  #: minimum cycles per frame in trained layers, for limits outside the graph such as memory
    graph: Graph = field(default_factory=Graph)
    flows: dict[int, Flows] = field(default_factory=dict)  #: streams of each stage
    images: list[Channel] = field(default_factory=list)  #: channels of images
    results: Actor | None = None  #: actor that takes the loss's results
    #: engines of the trained layers' gradients, each with two delays in cycles: from a frame's last firing
    #: until the frame's gradient is in the velocities, and from then until the parameters are updated
    gradient_ends: list[tuple[Actor, float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        group = max(stage.parallelism.frames for stage in self.network.stages)
        self.batch = group * ceil_div(self.batch, group)
        for index in range(len(self.network.stages)):
            self._add_forward(index)
        for index in reversed(range(len(self.network.stages))):
            self._add_backward(index)

    def _parts(self, index: int) -> Parts:
        return Parts(self.graph, self.network.stages[index].name)

    def _stage_actors(self, stage: Stage) -> StageActors:
        return StageActors(self.graph, stage.name, stage.layer, stage.parallelism, stage.storage)

    def _add_forward(self, index: int) -> None:
        """Add a stage's forward actors, after the edges that lead to it."""
        stage = self.network.stages[index]
        sources = [self._add_forward_edge(Consumer(index, port)) for port in range(len(stage.sources))]
        if isinstance(stage.layer, Input):
            self.flows[index] = Flows(Source(self._add_input(index)))
        elif isinstance(stage.layer, Output):
            self.flows[index] = Flows()
            self._add_output(index, sources[0])
        else:
            self.flows[index] = flows = stage.layer.actors(self._stage_actors(stage), sources)
            if flows.save is not None and index in self.sizes.rings:
                flows.replay = Source(self._add_ring(index, flows.save))
            elif flows.save is not None:  # no gradient needs the saved words
                words = saved_frames(self.network, index)
                transfers = ceil_div(words.words, words.lanes)
                self.graph.take(self._parts(index).actor("drops words", transfers), flows.save)

    def _add_forward_edge(self, consumer: Consumer) -> Source:
        """Add the forward direction of an edge. Return the stream at the consumer's input."""
        stages = self.network.stages
        source, target = stages[stages[consumer.stage].sources[consumer.port]], stages[consumer.stage]
        output = self.flows[target.sources[consumer.port]].output
        assert output is not None
        depth = self.sizes.skews.get((consumer.stage, consumer.port), 0)
        parts = Parts(self.graph, f"{source.name} → {target.name}")
        widths = source.parallelism.po, target.parallelism.pi
        link = self.sizes.links.get((consumer.stage, consumer.port))
        words, resize_first = source.layer.output.words, target.layer.takes_turns
        return _add_edge(parts, output, depth, words, *widths, link, resize_first=resize_first)

    def _add_input(self, index: int) -> Channel:
        """Add the actor that reads frames from memory, at the network's pace. Return its channel."""
        stage, parts = self.network.stages[index], self._parts(index)
        transfers = stage.layer.output.words // stage.parallelism.po
        pace = max(1.0, stage.parallelism.po / BEAT_WORDS, self.period / transfers)
        depth = read_depth(stage.parallelism.po) * BEAT_WORDS // stage.parallelism.po
        actor, words = parts.actor("forward", transfers, pace), parts.channel("outputs", depth)
        self.graph.give(actor, words, delay=MEMORY_LATENCY + 24)
        if not any(self._is_label(consumer) for consumer in self.network.consumers[index]):
            self.images.append(words)
        return words

    def _is_label(self, consumer: Consumer) -> bool:
        return (
            isinstance(self.network.stages[consumer.stage].layer, SoftCrossLoss)
            and consumer.port == LABELS_PORT
        )

    def _add_output(self, index: int, source: Source) -> None:
        stage = self.network.stages[index]
        self.results = self._parts(index).actor("forward", stage.layer.input.words // stage.parallelism.pi)
        self.graph.take(self.results, source)

    def _add_ring(self, index: int, save: Source) -> Channel:
        """Add a stage's ring of saved maps in memory. Return the stream of replayed words.

        ``save``: stream of words to save. Beats are written one by one, and read once their frame is complete.
        """
        parts, frames = self._parts(index), saved_frames(self.network, index)
        packed = parts.gearbox("saved words", save, frames.words, frames.lanes, BEAT_WORDS)
        queue = parts.copy("the queue of saved words", Source(packed), frames.beats, WRITE_DEPTH)
        writes = parts.actor("writes", frames.beats)
        ring = parts.channel("the ring", self.sizes.rings[index])
        self.graph.take(writes, queue)
        self.graph.give(
            writes, ring, at_last(frames.beats), at_first(frames.beats), MEMORY_LATENCY + WRITE_LATENCY
        )
        reads = parts.actor("reads", frames.beats)
        beats = parts.channel("the queue of replayed words", read_depth(frames.lanes))
        self.graph.take(
            reads, ring, at_first(frames.beats), at_last(frames.beats), MEMORY_LATENCY + READ_LATENCY
        )
        self.graph.give(reads, beats, delay=MEMORY_LATENCY + READ_LATENCY)
        return parts.gearbox("replayed words", Source(beats), frames.words, BEAT_WORDS, frames.lanes)

    def _add_backward(self, index: int) -> None:
        """Add a stage's backward actors, after the edges of its gradients; of a trained stage, also batches."""
        stage = self.network.stages[index]
        if isinstance(stage.layer, Input | Output | SoftCrossLoss):
            return
        gradients = [
            source
            for consumer in self.network.consumers[index]
            for source in self._returned_gradients(index, consumer)
        ]
        flows = self.flows[index]
        if not stage.layer.trains or not gradients:
            self._add_drop(index, gradients)
            if flows.admissions is not None:  # a trained layer without a gradient
                self.graph.give(self._parts(index).actor("admits", 1), flows.admissions)
            return
        stage.layer.actors_back(self._stage_actors(stage), flows, self._add_sum(index, gradients))
        if flows.gradient_actors:
            self._add_batches(index, flows)

    def _returned_gradients(self, index: int, consumer: Consumer) -> list[Source]:
        """Add the backward direction of an edge.

        Return the consumer's gradient stream; none if it sends none.
        """
        stages = self.network.stages
        input_gradients = self.flows[consumer.stage].input_gradients
        if consumer.port >= len(input_gradients):
            return []
        depth = self.sizes.gradient_skews.get((consumer.stage, consumer.port), 0)
        stage, sender = stages[index], stages[consumer.stage]
        parts = Parts(self.graph, f"{sender.name} → {stage.name}")
        widths = sender.parallelism.pi, stage.parallelism.po
        link = self.sizes.links.get((consumer.stage, consumer.port))
        return [
            _add_edge(parts, input_gradients[consumer.port], depth, stage.layer.output.words, *widths, link)
        ]

    def _add_sum(self, index: int, gradients: list[Source]) -> Source:
        """Add the sum of a fork's gradients, and return it; a single gradient needs none."""
        if len(gradients) == 1:
            return gradients[0]
        parts, stage = self._parts(index), self.network.stages[index]
        latency = ADDER * (len(gradients) - 1).bit_length()
        actor = parts.actor("fork's sum", stage.layer.output.words // stage.parallelism.po)
        channel = parts.channel("gradients", latency + 2)
        for source in gradients:
            self.graph.take(actor, source)
        self.graph.give(actor, channel, delay=latency + 1)
        return Source(channel)

    def _add_drop(self, index: int, gradients: list[Source]) -> None:
        """Add actors that drop gradients, for a stage without parameters in it or upstream."""
        stage = self.network.stages[index]
        for source in gradients:
            words = stage.layer.output.words // stage.parallelism.po
            self.graph.take(self._parts(index).actor("drops gradients", words), source)

    def _add_batches(self, index: int, flows: Flows) -> None:
        """Add the actor that admits a batch's frames once the previous batch has updated the parameters."""
        parts, stage = self._parts(index), self.network.stages[index]
        gate = parts.actor("admits", 1, self.pace)
        # Every frame of batch k needs the k · batch finished frames of the earlier batches, none of its own.
        batch_barrier = Pattern(np.zeros(self.batch, np.int64), self.batch)
        for number, (actor, firings, latency) in enumerate(flows.gradient_actors):
            finished = parts.channel(f"finished frames ({number})", UNLIMITED)
            update_latency = (
                FINISH_LATENCY + max(stage.layer.parameters, self.updates.get(index, 0)) + UPDATE_LATENCY
            )
            if stage.storage is Storage.DRAM:  # parameters are read, written and acknowledged
                update_latency += 2 * MEMORY_LATENCY + READ_LATENCY + WRITE_LATENCY
            self.gradient_ends.append((actor, latency, update_latency))
            self.graph.give(actor, finished, at_last(firings), delay=latency + update_latency + ADMIT_LATENCY)
            self.graph.take(gate, finished, batch_barrier, batch_barrier)
        assert flows.admissions is not None
        self.graph.give(gate, flows.admissions, delay=0)


def _add_edge(
    parts: Parts,
    source: Source,
    depth: int,
    words: int,
    width_in: int,
    width_out: int,
    link: Link | None,
    *,
    resize_first: bool = False,
) -> Source:
    """Add one direction of an edge, and return the received stream.

    An edge consists of a link if it leads to another device, a FIFO, and a change of width.

    ``depth``: transfers of the FIFO; 0 for none.
    ``words``: words of a frame.
    ``width_in``, ``width_out``: words of a transfer at the sender and at the receiver.
    ``resize_first``: true if the width changes before the FIFO. After a link, it always does.
    """
    if link:
        source, width_in = link.carry(parts, source, width_in, width_out), width_out
    if resize_first:
        source, width_in = parts.resize("words", source, words, width_in, width_out), width_out
    if depth:
        source = Source(parts.copy("the FIFO", source, words // width_in, depth))
    return parts.resize("words", source, words, width_in, width_out)
