"""Sizes of FIFOs at joins and of rings of saved maps, from the cycles in which words leave stages.

Every stage is a deterministic process on streams. Whether a node deadlocks therefore depends on the sizes
of its FIFOs alone, never on timing. Branches that join differ in delay, so a FIFO must hold the earlier words.
The *skew* of an edge is the size of its FIFO in transfers.

A frame enters every ``period`` cycles. The model computes the cycle in which each position (row, column) of
each map leaves its stage. A FIFO as large as the backlog of this schedule neither stops nor slows the node.
See docs/systems/cluster.md, "Contents of FIFOs".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil

import numpy as np

from fanin.cnn.facts import Network
from fanin.cnn.flow.link import Edge, Link
from fanin.cnn.flow.times import Cycles, latest, paced
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import REUSE, ceil_div
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss

SPARE_TRANSFERS = 16  #: transfers of a FIFO in addition to the schedule's backlog
SPARE_FRAMES = 2  #: frames of a ring in addition to the backlog: one being written and one being read


@dataclass(frozen=True)
class Flow:
    """Flow model of a network: cycles in which positions leave stages, and the buffer sizes that follow."""

    network: Network
    least_period: int = 0  #: minimum cycles from frame to frame; the slowest stage may need more
    links: Mapping[Edge, Link] = field(default_factory=dict)  #: link of each edge between devices

    @cached_property
    def period(self) -> int:
        """Cycles from frame to frame."""
        return max(self.least_period, *(s.layer.cycles(s.parallelism, s.storage) for s in self.network.stages))

    @cached_property
    def forward(self) -> tuple[Cycles, ...]:
        """Cycles from a frame's first input word until each output position has left, by stage."""
        times: list[Cycles] = []
        for index, stage in enumerate(self.network.stages):
            if isinstance(stage.layer, Input):
                positions = stage.layer.shape.h * stage.layer.shape.w
                times.append(np.linspace(0, self.period, positions + 1)[1:])
            else:
                inputs = self._input_times(index, times)
                inputs = self._taken_times(index, inputs, forward=True)
                departures = stage.layer.output_times(stage.parallelism, inputs)
                times.append(departures + self._group_wait(index))
        return tuple(times)

    @cached_property
    def backward(self) -> tuple[Cycles | None, ...]:
        """Cycles until a stage has taken the gradient of each position of its output, by stage.

        None for a stage without gradient. A stage with several inputs takes at most one position every
        period / positions cycles, since its sources have room only for this pace.
        """
        arrivals: list[list[Cycles]] = [[] for _ in self.network.stages]
        stage_times: list[Cycles | None] = [None for _ in self.network.stages]
        for index in reversed(range(len(self.network.stages))):
            stage, layer = self.network.stages[index], self.network.stages[index].layer
            if isinstance(layer, SoftCrossLoss):
                arrivals[stage.sources[0]].append(self.forward[index])
            if not arrivals[index]:
                continue
            (times,) = self._taken_times(index, [latest(arrivals[index])], forward=False)
            stage_times[index] = times = (
                paced(times, self.period / len(times)) if len(stage.sources) > 1 else times
            )
            if layer.gradient:
                for port, source in enumerate(stage.sources):
                    sent = layer.gradient_times(stage.parallelism, times, port) + self._group_wait(index)
                    arrivals[source].append(self._arrivals((index, port), sent))
        return tuple(stage_times)

    @cached_property
    def skews(self) -> dict[Edge, int]:
        """Transfers of the FIFO before each input of a stage that joins branches or pauses.

        - A pause counts only if upstream layers cannot wait for it.
        - A layer that takes turns holds one more position of each input, until the other inputs had their
          turns.
        - ``lanes`` gives the width of a transfer.
        - Labels wait in memory, not in a FIFO.
        """
        skews = {}
        for index, stage in enumerate(self.network.stages):
            if not stage.layer.joins and not self._pause(index, forward=True):
                continue
            times = self._input_times(index, self.forward)
            (taken,) = self._taken_times(index, [latest(times)], forward=True)
            for port, shape in enumerate(stage.layer.inputs):
                position_transfers = ceil_div(shape.c, self.lanes((index, port), forward=True))
                backlog = self._max_backlog(times[port], taken) + stage.layer.takes_turns
                skews[index, port] = backlog * position_transfers + SPARE_TRANSFERS
        return skews

    @cached_property
    def gradient_skews(self) -> dict[Edge, int]:
        """Transfers of the FIFO for the gradient that a consumer sends back, by edge.

        A consumer that takes turns always has a FIFO for at least one position. It therefore sends all parts of
        a gradient without waiting for the receivers, which take the parts at different paces.
        """
        skews = {}
        for source, consumers in enumerate(self.network.consumers):
            taken = self.backward[source]
            if taken is None or not self.network.stages[source].layer.trains:
                continue
            is_buffered = len(consumers) > 1 or self._pause(source, forward=False) > 0
            for consumer in consumers:
                layer, edge = self.network.stages[consumer.stage].layer, (consumer.stage, consumer.port)
                sent = self._gradient_times(consumer.stage, consumer.port)
                if sent is not None and (is_buffered or layer.takes_turns):
                    position_transfers = ceil_div(
                        layer.inputs[consumer.port].c, self.lanes(edge, forward=False)
                    )
                    backlog = self._max_backlog(self._arrivals(edge, sent), taken) if is_buffered else 0
                    skews[edge] = (backlog + layer.takes_turns) * position_transfers + SPARE_TRANSFERS
        return skews

    @cached_property
    def rings(self) -> dict[int, int]:
        """Frames in the ring of each stage that saves words: those between save and replay."""
        rings = {}
        for index, stage in enumerate(self.network.stages):
            gradients = self.backward[index]
            if stage.layer.saved_words and gradients is not None:
                first = min(float(arrivals[0]) for arrivals in self._input_times(index, self.forward))
                rings[index] = ceil((float(gradients[-1]) - first) / self.period) + SPARE_FRAMES
        return rings

    def _taken_times(self, index: int, times: list[Cycles], *, forward: bool) -> list[Cycles]:
        """Return the cycles in which a stage takes positions that arrive at ``times``.

        A frame's first word waits for the end of the pause after the previous frame.
        """
        pause = self._pause(index, forward=forward)
        if not pause:
            return times
        stage = self.network.stages[index]
        position_cycles = max(ceil_div(stage.layer.output.c, stage.parallelism.po), REUSE)
        delayed = [
            np.append(max(arrivals[0], arrivals[-1] + pause - self.period), arrivals[1:]) for arrivals in times
        ]
        return [paced(arrivals, position_cycles) for arrivals in delayed]

    def _group_wait(self, index: int) -> int:
        """Return the cycles for which a group's first frame waits for its last one."""
        return (self.network.stages[index].parallelism.frames - 1) * self.period

    def _pause(self, index: int, *, forward: bool) -> float:
        """Return the cycles for which words wait while a stage updates its state, minus the source's slack."""
        stage = self.network.stages[index]
        if not stage.layer.pauses:
            return 0
        busiest = max(self._neighbour_cycles(index, forward=forward))
        return max(stage.layer.pause(stage.parallelism) + busiest - self.period, 0)

    def _neighbour_cycles(self, index: int, *, forward: bool) -> Iterator[int]:
        """Yield the cycles per frame of the layers that feed a stage.

        Layers that pass words through are yielded, and so are the layers that feed those.
        ``forward``: false for the layers that send the stage its gradient.
        """
        stages, queue = self.network.stages, [index]
        visited: set[int] = set()
        for current in queue:
            consumers = (consumer.stage for consumer in self.network.consumers[current])
            for neighbour in stages[current].sources if forward else consumers:
                if neighbour in visited:
                    continue
                visited.add(neighbour)
                stage = stages[neighbour]
                yield stage.layer.cycles(stage.parallelism, stage.storage)
                if stage.layer.passes_through:
                    queue.append(neighbour)

    def _input_times(self, index: int, output_times: Sequence[Cycles]) -> list[Cycles]:
        """Return the cycles in which positions arrive at each input of a stage. ``output_times``: by stage."""
        sources = self.network.stages[index].sources
        return [self._arrivals((index, port), output_times[source]) for port, source in enumerate(sources)]

    def _arrivals(self, edge: Edge, departures: Cycles) -> Cycles:
        """Return the cycles in which positions arrive at the other end of an edge, in either direction."""
        return self.links[edge].arrivals(departures) if edge in self.links else departures

    def lanes(self, edge: Edge, *, forward: bool) -> int:
        """Return the words of a transfer in an edge's FIFO.

        The width is the sender's; after a link, or before a layer that takes turns, the receiver's.
        """
        index, port = edge
        stages = self.network.stages
        sender, receiver = stages[stages[index].sources[port]].parallelism.po, stages[index].parallelism.pi
        if forward and stages[index].layer.takes_turns:
            return receiver
        return sender if forward != (edge in self.links) else receiver

    def _gradient_times(self, index: int, port: int) -> Cycles | None:
        stage = self.network.stages[index]
        if isinstance(stage.layer, SoftCrossLoss):
            return self.forward[index] if port == 0 else None
        gradients = self.backward[index]
        if gradients is None or not stage.layer.gradient:
            return None
        return stage.layer.gradient_times(stage.parallelism, gradients, port) + self._group_wait(index)

    def _max_backlog(self, arrivals: Cycles, departures: Cycles) -> int:
        """Return the maximum number of positions in a FIFO, over consecutive frames."""
        sorted_arrivals = np.sort(arrivals)
        highest = 0
        for frame in range(ceil(float(departures[-1]) / self.period) + 1):
            moments = sorted_arrivals + frame * self.period
            backlog = sum(
                np.searchsorted(arrivals, moments - f * self.period, side="right")
                - np.searchsorted(departures, moments - f * self.period, side="right")
                for f in range(frame + 1)
            )
            highest = max(highest, int(np.max(backlog)))
        return highest
