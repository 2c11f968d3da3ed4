"""Model parallelism: bottleneck groups, split in k parts without common parameters (NADA, III and V)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from fanin.base.errors import InputError
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Layer
from fanin.planner.model.graph import Builder, Model
from fanin.planner.search.choices import limited_costs
from fanin.planner.search.instance import Instance
from fanin.planner.search.problem import limits_at
from fanin.planner.search.relax import period_bound

LARGE_SHARE = 0.25  # share of a device above which a layer leaves too little of the device for the throughput


@dataclass(frozen=True)
class Group:
    """Nodes of a bottleneck group, which can be split by channels."""

    expansion: int  #: convolution to many channels
    middle: tuple[int, ...]  #: channelwise layers
    projection: int  #: convolution to few channels

    @property
    def nodes(self) -> tuple[int, ...]:
        """All nodes of the group."""
        return (self.expansion, *self.middle, self.projection)


def bottlenecks(model: Model) -> list[Group]:
    """Return the chains of a convolution, channelwise layers (one of them depthwise), and a convolution."""
    consumers: dict[int, list[int]] = defaultdict(list)
    for edge in model.edges:
        consumers[edge.source].append(edge.target)
    groups = []
    for start, node in enumerate(model.nodes):
        if not _is_dense_convolution(node.layer) or start in model.pinned:
            continue
        chain = [start]
        while len(consumers[chain[-1]]) == 1:
            chain.append(consumers[chain[-1]][0])
            if not _is_channelwise(model.nodes[chain[-1]].layer):
                break
        middle = chain[1:-1]
        if _is_dense_convolution(model.nodes[chain[-1]].layer) and any(_is_depthwise(model, n) for n in middle):
            groups.append(Group(start, tuple(middle), chain[-1]))
    return groups


def _is_dense_convolution(layer: Layer) -> bool:
    return type(layer) is Conv and layer.groups == 1


def _is_channelwise(layer: Layer) -> bool:
    return layer.channelwise


def _is_depthwise(model: Model, node: int) -> bool:
    return isinstance(model.nodes[node].layer, DepthwiseConv)


def limiting_groups(instance: Instance) -> list[Group]:
    """Return the groups in which a layer takes more than ``LARGE_SHARE`` of any device.

    The throughput is the bound of :func:`period_bound`.
    """
    period = period_bound(instance)
    if period is None:
        return []
    return [
        group
        for group in bottlenecks(instance.model)
        if any(_share(instance, node, period) > LARGE_SHARE for node in group.nodes)
    ]


def _share(instance: Instance, node: int, period: int) -> float:
    """Return the share of a device's most used resource that a node takes, at least, on any part."""
    shares = []
    for part in instance.cluster.parts:
        limits = limits_at(instance, part, period)
        for option in instance.options(node, part, period, period):
            costs = limited_costs(option.choice.cost, part)
            shares.append(
                max(
                    cost / limit if limit else float(cost > 0)
                    for cost, limit in zip(costs, limits, strict=True)
                )
            )
    return min(shares, default=1.0)


def split(model: Model, groups: list[Group], factor: int) -> Model:
    """Return the model with each of ``groups`` split in ``factor`` parts.

    Raises InputError if ``factor`` does not divide a group's channels.
    """
    groups = _disjoint(groups)
    first = {group.expansion: group for group in groups}
    split_nodes = {node for group in groups for node in group.nodes}
    builder = Builder()
    new_index: dict[int, int] = {}
    for number, node in enumerate(model.nodes):
        if number in first:
            new_index[first[number].projection] = _split_group(builder, model, first[number], factor, new_index)
        elif number not in split_nodes:
            new_index[number] = builder.append(
                node.name, node.layer, [new_index[s] for s in node.sources], node.location
            )
    return builder.finish(model.name, model.name)


def _disjoint(groups: list[Group]) -> list[Group]:
    """Return the groups without those whose expansion is the projection of the previous group."""
    disjoint: list[Group] = []
    for group in sorted(groups, key=lambda group: group.expansion):
        if not disjoint or group.expansion != disjoint[-1].projection:
            disjoint.append(group)
    return disjoint


def _split_group(builder: Builder, model: Model, group: Group, factor: int, new_index: dict[int, int]) -> int:
    """Add the parts of a group, and the sums of their projections. Return the index of the last sum.

    ``new_index``: index in ``builder`` of each node of ``model``.
    """
    expansion = model.nodes[group.expansion]
    assert isinstance(expansion.layer, Conv)
    if expansion.layer.output_channels % factor:
        channels = expansion.layer.output_channels
        raise InputError(f"{model.name}: {expansion.name}: {factor} parts do not divide {channels} channels")
    source = new_index[expansion.sources[0]]
    parts = []
    for part in range(factor):
        layer: Layer = replace(expansion.layer, output_channels=expansion.layer.output_channels // factor)
        last = builder.append(_part(expansion.name, part, factor), layer, [source], expansion.location)
        for number in (*group.middle, group.projection):
            node = model.nodes[number]
            shape = builder.output(last)
            changes: dict[str, object] = {"inputs": (shape,)}
            if isinstance(node.layer, DepthwiseConv):
                changes |= {"output_channels": shape.c, "groups": shape.c}
            layer = replace(node.layer, **changes)  # type: ignore[arg-type]
            last = builder.append(_part(node.name, part, factor), layer, [last], node.location)
        parts.append(last)
    projection = model.nodes[group.projection]
    count = 0
    while len(parts) > 1:  # a balanced tree: the same number of hops to every part
        pairs = zip(parts[::2], parts[1::2], strict=False)
        summed = []
        for pair in pairs:
            count += 1
            shape = builder.output(pair[0])
            add = Add(inputs=(shape, shape), gradient=True)
            summed.append(builder.append(f"{projection.name}/sum{count}", add, pair, projection.location))
        parts = summed + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


def _part(name: str, part: int, factor: int) -> str:
    return f"{name}/{part + 1}of{factor}"
