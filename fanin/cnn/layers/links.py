"""What a graph adds to its layers: adders where it forks, queues of what waits for a layer on another branch.

``fanin.cnn.flow.sizes`` says how long the queues of a build are. Here each layer has the share of them that its
own delay causes, so that costs of layers can be added up; together these are no less than what a build has.
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
    """What a layer's place in the graph adds to it.

    ``sums``: gradients that are added to the first that comes back. ``waits``, ``returns``: of each map that
    waits on another branch while this layer delays its own, or at this layer while it pauses or takes another
    input, and of each such gradient, the words of a frame.
    """

    sums: int = 0
    waits: tuple[int, ...] = ()
    returns: tuple[int, ...] = ()

    def cost(self, layer: Layer, p: Parallelism, storage: Storage, family: Family) -> Cost:
        """What the layer takes of a device of that family, in its place."""
        return layer.cost(p, storage, family, sums=self.sums * p.po, queues=self.queues(layer, p))

    def queues(self, layer: Layer, p: Parallelism) -> tuple[Memory, ...]:
        """What waits for the layer, as queues of one word a transfer."""
        if not self.waits and not self.returns:
            return ()
        forward, backward = layer.lags(p)
        depths = [ceil(forward * words) for words in self.waits] + [
            ceil(backward * words) for words in self.returns
        ]
        return tuple(Memory(width=WORD_BITS, depth=depth) for depth in depths)


NO_LINKS = Links()


def links_of(layers: Sequence[Layer], sources: Sequence[Sequence[int]]) -> tuple[Links, ...]:
    """The links of each layer; ``sources`` of each, in topological order, are those of its inputs."""
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
    """Of each of the ``ends`` of branches, the layers on the others that are not on all of them."""
    reached = [_reach(before, end) for end in ends]
    common = frozenset.intersection(*reached)
    found = []
    for number, end in enumerate(ends):
        others = frozenset[int]().union(*(reach for other, reach in enumerate(reached) if other != number))
        found.append((end, others - common - (reached[number] if end in common else frozenset())))
    return found


def _reach(before: Sequence[Sequence[int]], end: int) -> frozenset[int]:
    """Everything that leads to ``end``, and itself."""
    found, todo = set(), [end]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += before[one]
    return frozenset(found)
