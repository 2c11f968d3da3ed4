"""Cost of a layer's position in the graph: adders at forks, and queues of words that wait for another branch.

``fanin.cnn.flow.sizes`` computes the exact queues of a build. This module assigns to each layer the part that
its own delay causes, so that costs of layers add up. The total is at least that of a build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from fanin.cnn.layers.family import WORD_BITS, Family, Memory
from fanin.cnn.layers.layer import Cost, Layer, Parallelism, Storage
from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss


@dataclass(frozen=True)
class GraphContext:
    """Adders and queues that a layer needs because of its position in the graph.

    A map waits in a queue on a parallel branch while this layer delays its own branch. A map also waits at this
    layer's input while the layer pauses or takes another input.

    ``sums``: gradients that a fork adds to the first one: its consumers minus one.
    ``waiting_maps``: words of a frame of each map that waits.
    ``waiting_gradients``: words of a frame of each gradient that waits.
    """

    sums: int = 0
    waiting_maps: tuple[int, ...] = ()
    waiting_gradients: tuple[int, ...] = ()

    def cost(self, layer: Layer, parallelism: Parallelism, storage: Storage, family: Family) -> Cost:
        """Return the cost on a device of ``family``, including adders and queues of this context."""
        return layer.cost(
            parallelism,
            storage,
            family,
            sums=self.sums * parallelism.po,
            queues=self.queues(layer, parallelism),
        )

    def queues(self, layer: Layer, parallelism: Parallelism) -> tuple[Memory, ...]:
        """Return the queues, each one word wide and as deep as the layer's lag."""
        if not self.waiting_maps and not self.waiting_gradients:
            return ()
        forward_lag, backward_lag = layer.lags(parallelism)
        depths = [ceil(forward_lag * words) for words in self.waiting_maps] + [
            ceil(backward_lag * words) for words in self.waiting_gradients
        ]
        return tuple(Memory(width=WORD_BITS, depth=depth) for depth in depths)


NO_CONTEXT = GraphContext()


def graph_contexts(layers: Sequence[Layer], sources: Sequence[Sequence[int]]) -> tuple[GraphContext, ...]:
    """Return the context of each layer, in topological order. ``sources``: source of each input, by layer."""
    consumers: list[list[int]] = [[] for _ in layers]
    for index, input_sources in enumerate(sources):
        for port, source in enumerate(input_sources):
            if not (isinstance(layers[index], SoftCrossLoss) and port):  # labels wait in memory
                consumers[source].append(index)
    waiting_maps: list[list[int]] = [[] for _ in layers]
    waiting_gradients: list[list[int]] = [[] for _ in layers]
    for index, layer in enumerate(layers):
        if layer.joins:
            for source, branch_layers in _other_branches(sources, sources[index]):
                for branch_layer in branch_layers:
                    waiting_maps[branch_layer].append(layers[source].output.words)
        if layer.pauses or layer.takes_turns:
            input_words = [shape.words for shape in layer.inputs]
            waiting_maps[index] += input_words
            waiting_gradients[index] += input_words if layer.gradient else []
        if len(consumers[index]) > 1 and layer.trains:
            for _, branch_layers in _other_branches(consumers, consumers[index]):
                for branch_layer in branch_layers:
                    waiting_gradients[branch_layer].append(layer.output.words)
    return tuple(
        GraphContext(
            (len(layer_consumers) - 1) * (len(layer_consumers) > 1 and layer.trains),
            tuple(maps),
            tuple(gradients),
        )
        for layer, layer_consumers, maps, gradients in zip(
            layers, consumers, waiting_maps, waiting_gradients, strict=True
        )
    )


def _other_branches(upstream: Sequence[Sequence[int]], ends: Sequence[int]) -> list[tuple[int, frozenset[int]]]:
    """Return, for each of ``ends``, the end and the layers of the other branches, for which its map waits.

    The branches fork at a layer from which all ends can be reached. A layer is on another branch if it leads to
    another end, but not to all ends.
    """
    reaches = [_ancestors(upstream, end) for end in ends]
    common = frozenset.intersection(*reaches)
    branches = []
    for number, end in enumerate(ends):
        other_reaches = reaches[:number] + reaches[number + 1 :]
        branches.append((end, frozenset[int]().union(*other_reaches) - common))
    return branches


def _ancestors(upstream: Sequence[Sequence[int]], end: int) -> frozenset[int]:
    """Return ``end`` and all layers that lead to it."""
    ancestors, todo = set(), [end]
    while todo:
        layer = todo.pop()
        if layer not in ancestors:
            ancestors.add(layer)
            todo += upstream[layer]
    return frozenset(ancestors)
