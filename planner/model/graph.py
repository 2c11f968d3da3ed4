"""Model of a CNN: a directed acyclic graph of layers in topological order, and its builder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from fanin.base.errors import InputError
from fanin.cnn.layers.input import Input
from fanin.cnn.layers.layer import Layer, Shape, check_limits
from fanin.cnn.layers.links import GraphContext, graph_contexts
from fanin.cnn.layers.output import Output
from fanin.cnn.layers.soft_cross_loss import LABELS_PORT, SoftCrossLoss
from fanin.wire.connection import MAC_WIDTH, RowFrames


def wire_bits(shape: Shape) -> int:
    """Return the bits of a map on the wire. Each row starts a frame (docs/systems/link.md, "A connection")."""
    return 8 * shape.h * sum(RowFrames(shape.w * shape.c, MAC_WIDTH).wire_bytes())


@dataclass(frozen=True)
class Node:
    """Layer in a graph."""

    name: str
    layer: Layer
    sources: tuple[int, ...] = ()  #: index of the node that feeds each input
    location: str = ""  #: file and line in the model's source, for messages


@dataclass(frozen=True)
class Edge:
    """Feature map from one node to another, whose gradient may flow back."""

    source: int  #: index of the node
    target: int  #: index of the node
    bits: int  #: bits per frame over a network, per direction
    label: bool = False  #: true for the labels of a loss, whose hops do not count


@dataclass(frozen=True)
class Model:
    """Checked model. Each node follows its sources."""

    name: str
    nodes: tuple[Node, ...]
    notes: tuple[str, ...] = ()  #: notes for users on how the file was read

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Edges to all inputs of all nodes, in the order of the nodes."""
        return tuple(
            Edge(
                source,
                target,
                wire_bits(self.nodes[source].layer.output),
                isinstance(node.layer, SoftCrossLoss) and port == LABELS_PORT,
            )
            for target, node in enumerate(self.nodes)
            for port, source in enumerate(node.sources)
        )

    @cached_property
    def contexts(self) -> tuple[GraphContext, ...]:
        """Adders and queues that each node's layer needs because of its position in the graph."""
        return graph_contexts([node.layer for node in self.nodes], [node.sources for node in self.nodes])

    @cached_property
    def pinned(self) -> frozenset[int]:
        """Nodes that must be on the host: inputs, their consumers, losses, outputs (NADA, section IV)."""
        ends = {
            i for i, node in enumerate(self.nodes) if isinstance(node.layer, (Input, SoftCrossLoss, Output))
        }
        consumers = {e.target for e in self.edges if isinstance(self.nodes[e.source].layer, Input)}
        return frozenset(ends | consumers)

    def as_published(self) -> Model:
        """Return the model whose layers save the words that NADA's layers save."""
        return replace(self, nodes=tuple(replace(node, layer=node.layer.as_published()) for node in self.nodes))

    @cached_property
    def by_name(self) -> dict[str, int]:
        """Index of each node by name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    @property
    def parameters(self) -> int:
        """Number of trained words of all layers."""
        return sum(node.layer.parameters for node in self.nodes)


def kind_of(make: Any) -> str:
    """Return the kind of layer of ``make``: a class, a partial of one, or a function with a ``kind``."""
    return str(getattr(make, "func", make).kind)


class Builder:
    """Builder of a model, node by node. ``finish`` checks the graph and returns the model.

    Errors are InputErrors that begin with ``location`` (file and line), then name the layer.
    """

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._names: set[str] = set()
        self._count: Counter[str] = Counter()

    def add(
        self,
        make: Callable[..., Layer],
        sources: Sequence[int] = (),
        *,
        name: str | None = None,
        location: str = "",
    ) -> int:
        """Add the layer ``make(inputs=…, gradient=…)`` after the nodes ``sources``. Return its index.

        ``make`` may raise ValueError. Without a name, the layer is named after its kind, with a number.
        """
        inputs = [self._nodes[source].layer for source in sources]
        arguments: dict[str, Any] = {"gradient": any(layer.trains for layer in inputs)}
        if sources:
            arguments["inputs"] = tuple(layer.output for layer in inputs)
        title = self._title(name, kind_of(make), location)
        try:
            layer = make(**arguments)
            check_limits(layer)
        except ValueError as error:
            raise InputError(f"{location}: {title}: {error}") from None
        return self.append(title, layer, sources, location)

    def append(self, name: str, layer: Layer, sources: Sequence[int], location: str) -> int:
        """Add an existing layer under a new name. Return its index."""
        self._names.add(name)
        self._nodes.append(Node(name, layer, tuple(sources), location))
        return len(self._nodes) - 1

    def layer(self, index: int) -> Layer:
        """Return a node's layer."""
        return self._nodes[index].layer

    def name(self, index: int) -> str:
        """Return a node's name."""
        return self._nodes[index].name

    def output(self, index: int) -> Shape:
        """Return the shape of a node's output."""
        return self.layer(index).output

    def _title(self, name: str | None, kind: str, location: str) -> str:
        if name is None:
            self._count[kind] += 1
            while f"{kind}{self._count[kind]}" in self._names:
                self._count[kind] += 1
            return f"{kind}{self._count[kind]}"
        if not isinstance(name, str) or not name or not name.isprintable():
            raise InputError(f"{location}: a layer's name must be a text of one line, not {name!r}")
        if name in self._names:
            raise InputError(f"{location}: two layers are called {name}")
        return name

    def finish(self, name: str, file: str) -> Model:
        """Return the model, after checks of the graph. ``file``: start of messages.

        Raises InputError if there is no output, a layer leads to none, the graph is not connected, or labels
        are misused.
        """
        model = Model(name, tuple(self._nodes))
        if not any(isinstance(node.layer, Output) for node in model.nodes):
            raise InputError(f"{file}: the model has no output: add_output(name, source)")
        _check_connected(model, file)
        _check_labels(model, file)
        return model


def _check_connected(model: Model, file: str) -> None:
    """Raise InputError if a layer leads to no output, or if the graph is not connected."""
    useful = {i for i, node in enumerate(model.nodes) if isinstance(node.layer, Output)}
    for index in range(len(model.nodes) - 1, -1, -1):
        if index in useful:
            useful.update(model.nodes[index].sources)
    for index, node in enumerate(model.nodes):
        if index not in useful:
            raise InputError(f"{node.location or file}: {node.name} leads to no output")
    parents = list(range(len(model.nodes)))  # union-find over undirected edges

    def root(index: int) -> int:
        while parents[index] != index:
            index = parents[index]
        return index

    for edge in model.edges:
        parents[root(edge.target)] = root(edge.source)
    for index, node in enumerate(model.nodes):
        if root(index) != root(0):
            raise InputError(
                f"{node.location or file}: {node.name} is not connected with {model.nodes[0].name}"
            )


def _check_labels(model: Model, file: str) -> None:
    """Raise InputError unless labels are inputs that only their loss uses."""
    other_consumers = {edge.source: edge.target for edge in model.edges if not edge.label}
    for edge in model.edges:
        source, loss = model.nodes[edge.source], model.nodes[edge.target]
        if edge.label and not isinstance(source.layer, Input):
            raise InputError(
                f"{loss.location or file}: {loss.name}: its labels must be an input, not {source.name}"
            )
        if edge.label and edge.source in other_consumers:
            other = model.nodes[other_consumers[edge.source]]
            raise InputError(
                f"{other.location or file}: {other.name}: {source.name} is labels, for {loss.name} alone"
            )
