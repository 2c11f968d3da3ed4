"""When words leave the stages of a network: what FIFOs at joins and rings of saved maps have to hold.

Every stage is a deterministic process on streams, so whether a node stops depends on the sizes of its FIFOs
alone, never on timing. Branches that meet differ in delay: what comes first has to be held. The model gives
each position (row, column) of each map the cycle in which it has left its stage, while a frame enters every
``period`` cycles; a FIFO that holds what such a schedule leaves in it neither stops the node nor slows it.
See docs/systems/cluster.md, "What FIFOs hold".
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

SPARE = 16  #: transfers by which a FIFO is larger than the schedule asks for
SPARE_FRAMES = 2  #: of a ring: one being written and one being read


@dataclass(frozen=True)
class Flow:
    """``network`` with a frame every ``period`` cycles; that of its slowest stage where none is given.

    ``links``: the edges that are cut. Transfers of these are as wide as where they arrive.
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
        """When each position of a stage's output has left, cycles after the frame began to enter."""
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
        """When a stage has taken the gradient of each position of its output; None where none comes.

        What hands it on to several takes it no faster than one every so many cycles of the period: they take it
        together, and have no more room than that for.
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
        """Transfers that the FIFO in front of a stage holds, of each input of one that has several.

        And of one that pauses, where what comes before cannot wait for that. A layer that takes turns has a
        position more of each input, which waits for the others' turns. ``lanes`` says how wide a transfer is.
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
        """The same on the way back: of the gradients that the consumers of a stage give it.

        A consumer that takes turns always has a FIFO for a position there: so it gives all parts of a gradient
        without waiting for those who take them, each at its own pace.
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
        """Frames that the ring of each saving stage holds: those between its save and its replay."""
        found = {}
        for index, stage in enumerate(self.network.stages):
            came_back = self.backward[index]
            if stage.layer.saved and came_back is not None:
                first = min(float(came[0]) for came in self._input_times(index, self.forward))
                found[index] = ceil((float(came_back[-1]) - first) / self.period) + SPARE_FRAMES
        return found

    def _behind_pause(self, index: int, times: list[Cycles], *, forward: bool) -> list[Cycles]:
        """When what has come to a stage is taken: a frame's first word waits for the pause behind the last."""
        pause = self._pause(index, forward=forward)
        if not pause:
            return times
        stage = self.network.stages[index]
        each = max(ceil_div(stage.layer.output.c, stage.parallelism.po), REUSE)
        waits = [np.append(max(came[0], came[-1] + pause - self.period), came[1:]) for came in times]
        return [paced(came, each) for came in waits]

    def _pause(self, index: int, *, forward: bool) -> float:
        """Cycles that words wait for while a stage's state changes, less those that their source can spare."""
        stage = self.network.stages[index]
        if not stage.layer.pauses:
            return 0
        busiest = max(self._cycles_beside(index, forward=forward))
        return max(stage.layer.pause(stage.parallelism) + busiest - self.period, 0)

    def _cycles_beside(self, index: int, *, forward: bool) -> Iterator[int]:
        """Cycles a frame of the layers that give a stage its words, or gradients, whoever passes them on."""
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
        """When the positions of each input of a stage have come to it; ``given``: when stages gave theirs."""
        sources = self.network.stages[index].sources
        return [self._arrivals((index, port), given[source]) for port, source in enumerate(sources)]

    def _arrivals(self, edge: Edge, given: Cycles) -> Cycles:
        """When what is given to an edge has come to its end, or from there to its source."""
        return self.links[edge].arrivals(given) if edge in self.links else given

    def lanes(self, edge: Edge, *, forward: bool) -> int:
        """Words of a transfer where they wait: as they are given, or where a link ends as they are taken.

        At a layer that takes turns they are as wide as there: its turn is no longer than its own words take.
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
        """Positions that were given and not taken, at most, frame after frame."""
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
