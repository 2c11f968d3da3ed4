"""Cost of a layer's place in the graph: adders at forks, and queues of words that wait for another branch.

``fanin.cnn.flow.sizes`` computes the queues of a build. Here each layer has the share that its own delay
causes, so that costs of layers add up. The total is at least that of a build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from fanin.cnn.layers.family import WORD_BITS, Family, Memory
from fanin.cnn.layers.layer import Cost, Layer, Parallelism, Storage
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss


@dataclass(frozen=True)
class Links:
    """Additions to a layer for its place in the graph.

    A map waits on another branch while this layer delays its own. It also waits at this layer while the layer
    pauses or takes another input.

    ``sums``: gradients added to the first one.
    ``waits``: words of a frame of each waiting map.
    ``returns``: words of a frame of each waiting gradient.
    """

    sums: int = 0
    waits: tuple[int, ...] = ()
    returns: tuple[int, ...] = ()

    def cost(self, layer: Layer, p: Parallelism, storage: Storage, family: Family) -> Cost:
        """Return the cost of a layer in its place, on a device of a family."""
        return layer.cost(p, storage, family, sums=self.sums * p.po, queues=self.queues(layer, p))

    def queues(self, layer: Layer, p: Parallelism) -> tuple[Memory, ...]:
        """Return the queues of words that wait for the layer, one word a transfer."""
        if not self.waits and not self.returns:
            return ()
        forward, backward = layer.lags(p)
        depths = [ceil(forward * words) for words in self.waits] + [
            ceil(backward * words) for words in self.returns
        ]
        return tuple(Memory(width=WORD_BITS, depth=depth) for depth in depths)


NO_LINKS = Links()


def links_of(layers: Sequence[Layer], sources: Sequence[Sequence[int]]) -> tuple[Links, ...]:
    """Return the links of each layer, in topological order. ``sources``: source of each layer's inputs."""
    consumers: list[list[int]] = [[] for _ in layers]
    for index, fed in enumerate(sources):
        for port, source in enumerate(fed):
            if not (isinstance(layers[index], SoftCrossLoss) and port):  # labels wait in memory
                consumers[source].append(index)
    waits: list[list[int]] = [[] for _ in layers]
    returns: list[list[int]] = [[] for _ in layers]
    for index, layer in enumerate(layers):
        if layer.joins:
            for source, others in _apart(sources, sources[index]):
                for other in others:
                    waits[other].append(layers[source].output.words)
        if layer.pauses or layer.takes_turns:
            own = [shape.words for shape in layer.inputs]
            waits[index] += own
            returns[index] += own if layer.gradient else []
        if len(consumers[index]) > 1 and layer.trains:
            for _, others in _apart(consumers, consumers[index]):
                for other in others:
                    returns[other].append(layer.output.words)
    return tuple(
        Links((len(after) - 1) * (len(after) > 1 and layer.trains), tuple(wait), tuple(back))
        for layer, after, wait, back in zip(layers, consumers, waits, returns, strict=True)
    )


def _apart(before: Sequence[Sequence[int]], ends: Sequence[int]) -> list[tuple[int, frozenset[int]]]:
    """Return each end of a branch with the layers on other branches, without layers common to all."""
    reached = [_reach(before, end) for end in ends]
    common = frozenset.intersection(*reached)
    found = []
    for number, end in enumerate(ends):
        others = frozenset[int]().union(*(reach for other, reach in enumerate(reached) if other != number))
        found.append((end, others - common - (reached[number] if end in common else frozenset())))
    return found


def _reach(before: Sequence[Sequence[int]], end: int) -> frozenset[int]:
    """Return ``end`` and all layers that lead to it."""
    found, todo = set(), [end]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += before[one]
    return frozenset(found)
