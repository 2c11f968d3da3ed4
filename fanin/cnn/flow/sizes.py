"""Sizes of FIFOs at joins and of rings of saved maps, from the times at which words leave stages.

Every stage is a deterministic process on streams. Whether a node deadlocks therefore depends on the sizes
of its FIFOs alone, never on timing. Branches that meet differ in delay, so the earlier words must be held.

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

SPARE = 16  #: transfers of a FIFO in addition to the schedule's backlog
SPARE_FRAMES = 2  #: more frames of a ring: one being written and one being read


@dataclass(frozen=True)
class Flow:
    """Flow model of a network.

    ``least_period``: least cycles from frame to frame; the slowest stage may need more.
    ``links``: link of each cut edge. Transfers after a link have the receiver's width.
    """

    network: Network
    least_period: int = 0
    links: Mapping[Edge, Link] = field(default_factory=dict)

    @cached_property
    def period(self) -> int:
        """Cycles from frame to frame."""
        return max(self.least_period, *(s.layer.cycles(s.parallelism, s.storage) for s in self.network.stages))

    @cached_property
    def forward(self) -> tuple[Cycles, ...]:
        """Cycles from the start of a frame's input until each position of each stage's output has left."""
        times: list[Cycles] = []
        for index, stage in enumerate(self.network.stages):
            if isinstance(stage.layer, Input):
                positions = stage.layer.shape.h * stage.layer.shape.w
                times.append(np.linspace(0, self.period, positions + 1)[1:])
            else:
                inputs = self._input_times(index, times)
                inputs = self._behind_pause(index, inputs, forward=True)
                times.append(stage.layer.output_times(stage.parallelism, inputs))
        return tuple(times)

    @cached_property
    def backward(self) -> tuple[Cycles | None, ...]:
        """Cycles until each stage has taken the gradient of each position of its output; None without gradient.

        A stage with several inputs takes at most one position every period / positions cycles. Its sources take
        the gradient together, and have room only for this pace.
        """
        found: list[list[Cycles]] = [[] for _ in self.network.stages]
        taken: list[Cycles | None] = [None for _ in self.network.stages]
        for index in reversed(range(len(self.network.stages))):
            stage, layer = self.network.stages[index], self.network.stages[index].layer
            if isinstance(layer, SoftCrossLoss):
                found[stage.sources[0]].append(self.forward[index])
            if not found[index]:
                continue
            (came,) = self._behind_pause(index, [latest(found[index])], forward=False)
            taken[index] = came = paced(came, self.period / len(came)) if len(stage.sources) > 1 else came
            if layer.gradient:
                for port, source in enumerate(stage.sources):
                    found[source].append(
                        self._arrivals((index, port), layer.gradient_times(stage.parallelism, came, port))
                    )
        return tuple(taken)

    @cached_property
    def skews(self) -> dict[Edge, int]:
        """Transfers of the FIFO before each input of a stage that joins branches or pauses.

        A pause counts only if upstream layers cannot wait for it. A layer that takes turns holds one more
        position of each input, which waits for the others' turns. ``lanes`` gives the width of a transfer.
        Labels wait in memory, not in a FIFO.
        """
        found = {}
        for index, stage in enumerate(self.network.stages):
            if not stage.layer.joins and not self._pause(index, forward=True):
                continue
            times = self._input_times(index, self.forward)
            (taken,) = self._behind_pause(index, [latest(times)], forward=True)
            for port, shape in enumerate(stage.layer.inputs):
                each = ceil_div(shape.c, self.lanes((index, port), forward=True))
                held = self._held(times[port], taken) + stage.layer.takes_turns
                found[index, port] = held * each + SPARE
        return found

    @cached_property
    def gradient_skews(self) -> dict[Edge, int]:
        """Transfers of the FIFO for the gradient that each consumer of a stage sends back.

        A consumer that takes turns always has room for one position. It therefore sends all parts of a gradient
        without waiting for their receivers, which take them at different paces.
        """
        found = {}
        for source, consumers in enumerate(self.network.consumers):
            taken = self.backward[source]
            if taken is None or not self.network.stages[source].layer.trains:
                continue
            waits = len(consumers) > 1 or self._pause(source, forward=False) > 0
            for consumer in consumers:
                layer, edge = self.network.stages[consumer.stage].layer, (consumer.stage, consumer.port)
                given = self._given(consumer.stage, consumer.port)
                if given is not None and (waits or layer.takes_turns):
                    each = ceil_div(layer.inputs[consumer.port].c, self.lanes(edge, forward=False))
                    held = self._held(self._arrivals(edge, given), taken) if waits else 0
                    found[edge] = (held + layer.takes_turns) * each + SPARE
        return found

    @cached_property
    def rings(self) -> dict[int, int]:
        """Frames in the ring of each saving stage: frames between save and replay."""
        found = {}
        for index, stage in enumerate(self.network.stages):
            came_back = self.backward[index]
            if stage.layer.saved and came_back is not None:
                first = min(float(came[0]) for came in self._input_times(index, self.forward))
                found[index] = ceil((float(came_back[-1]) - first) / self.period) + SPARE_FRAMES
        return found

    def _behind_pause(self, index: int, times: list[Cycles], *, forward: bool) -> list[Cycles]:
        """Return when a stage takes its input: a frame's first word waits for the previous frame's pause."""
        pause = self._pause(index, forward=forward)
        if not pause:
            return times
        stage = self.network.stages[index]
        each = max(ceil_div(stage.layer.output.c, stage.parallelism.po), REUSE)
        waits = [np.append(max(came[0], came[-1] + pause - self.period), came[1:]) for came in times]
        return [paced(came, each) for came in waits]

    def _pause(self, index: int, *, forward: bool) -> float:
        """Return the cycles for which words wait while a stage's state changes, minus their source's slack."""
        stage = self.network.stages[index]
        if not stage.layer.pauses:
            return 0
        busiest = max(self._cycles_beside(index, forward=forward))
        return max(stage.layer.pause(stage.parallelism) + busiest - self.period, 0)

    def _cycles_beside(self, index: int, *, forward: bool) -> Iterator[int]:
        """Yield the cycles a frame of the layers that feed a stage, through layers that only hand words on."""
        stages, places = self.network.stages, [index]
        seen: set[int] = set()
        for place in places:
            consumers = (one.stage for one in self.network.consumers[place])
            for other in stages[place].sources if forward else consumers:
                if other in seen:
                    continue
                seen.add(other)
                stage = stages[other]
                yield stage.layer.cycles(stage.parallelism, stage.storage)
                if stage.layer.hands_on:
                    places.append(other)

    def _input_times(self, index: int, given: Sequence[Cycles]) -> list[Cycles]:
        """Return when each input's positions arrive at a stage. ``given``: when each stage gives its output."""
        sources = self.network.stages[index].sources
        return [self._arrivals((index, port), given[source]) for port, source in enumerate(sources)]

    def _arrivals(self, edge: Edge, given: Cycles) -> Cycles:
        """Return when positions arrive at the other end of an edge, in either direction."""
        return self.links[edge].arrivals(given) if edge in self.links else given

    def lanes(self, edge: Edge, *, forward: bool) -> int:
        """Return the words of a transfer in an edge's FIFO: the sender's width, after a link the receiver's.

        Before a layer that takes turns, transfers have that layer's width, so that turns are not prolonged.
        """
        index, port = edge
        stages = self.network.stages
        given, taken = stages[stages[index].sources[port]].parallelism.po, stages[index].parallelism.pi
        if forward and stages[index].layer.takes_turns:
            return taken
        return given if forward != (edge in self.links) else taken

    def _given(self, index: int, port: int) -> Cycles | None:
        stage = self.network.stages[index]
        if isinstance(stage.layer, SoftCrossLoss):
            return self.forward[index] if port == 0 else None
        came = self.backward[index]
        if came is None or not stage.layer.gradient:
            return None
        return stage.layer.gradient_times(stage.parallelism, came, port)

    def _held(self, given: Cycles, taken: Cycles) -> int:
        """Return the highest number of positions given and not yet taken, over consecutive frames."""
        moments = np.sort(given)
        most = 0
        for frame in range(ceil(float(taken[-1]) / self.period) + 1):
            at = moments + frame * self.period
            total = sum(
                np.searchsorted(given, at - f * self.period, side="right")
                - np.searchsorted(taken, at - f * self.period, side="right")
                for f in range(frame + 1)
            )
            most = max(most, int(np.max(total)))
        return most
