"""Model parallelism: bottleneck groups in k parts that share no parameters (NADA, sections III and V)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from fanin.base.errors import InputError
from fanin.cnn.layers.add import Add
from fanin.cnn.layers.conv import Conv
from fanin.cnn.layers.dwconv import DepthwiseConv
from fanin.cnn.layers.layer import Layer
from fanin.planner.model.graph import Builder, Model
from fanin.planner.search.choices import constrained
from fanin.planner.search.instance import Instance
from fanin.planner.search.problem import limits_at
from fanin.planner.search.relax import least_period

LARGE = 0.25  # share of a device above which a layer leaves too little of the device for the throughput


@dataclass(frozen=True)
class Group:
    """Nodes of a bottleneck: expansion, layers on separate channels, projection."""

    expansion: int
    middle: tuple[int, ...]
    projection: int

    @property
    def nodes(self) -> tuple[int, ...]:
        """All nodes of the group."""
        return (self.expansion, *self.middle, self.projection)


def bottlenecks(model: Model) -> list[Group]:
    """Return chains of a convolution, layers on separate channels (one of them depthwise), and a
    convolution.
    """
    behind: dict[int, list[int]] = defaultdict(list)
    for edge in model.edges:
        behind[edge.source].append(edge.target)
    groups = []
    for start, node in enumerate(model.nodes):
        if not _mixes(node.layer) or start in model.pinned:
            continue
        chain = [start]
        while len(behind[chain[-1]]) == 1:
            chain.append(behind[chain[-1]][0])
            if not _keeps_apart(model.nodes[chain[-1]].layer):
                break
        middle = chain[1:-1]
        if _mixes(model.nodes[chain[-1]].layer) and any(_depthwise(model, n) for n in middle):
            groups.append(Group(start, tuple(middle), chain[-1]))
    return groups


def _mixes(layer: Layer) -> bool:
    return type(layer) is Conv and layer.groups == 1


def _keeps_apart(layer: Layer) -> bool:
    return layer.channelwise


def _depthwise(model: Model, node: int) -> bool:
    return isinstance(model.nodes[node].layer, DepthwiseConv)


def limiting(instance: Instance) -> list[Group]:
    """Return groups with a layer above ``LARGE`` of every device, at the throughput of all devices pooled."""
    period = least_period(instance)
    if period is None:
        return []
    return [
        group
        for group in bottlenecks(instance.model)
        if any(_share(instance, node, period) > LARGE for node in group.nodes)
    ]


def _share(instance: Instance, node: int, period: int) -> float:
    """Return the least share of a device that a node takes, of the resource that it uses most."""
    shares = []
    for part in instance.cluster.parts:
        limits = limits_at(instance, part, period)
        for option in instance.options(node, part, period, period):
            costs = constrained(option.choice.cost, part)
            shares.append(
                max(
                    cost / limit if limit else float(cost > 0)
                    for cost, limit in zip(costs, limits, strict=True)
                )
            )
    return min(shares, default=1.0)


def split(model: Model, groups: list[Group], ways: int) -> Model:
    """Return the model with these groups in ``ways`` parts. Raises InputError if that divides no channels."""
    groups = _apart(groups)
    first = {group.expansion: group for group in groups}
    inside = {node for group in groups for node in group.nodes}
    builder = Builder()
    at: dict[int, int] = {}
    for number, node in enumerate(model.nodes):
        if number in first:
            at[first[number].projection] = _split_group(builder, model, first[number], ways, at)
        elif number not in inside:
            at[number] = builder.append(node.name, node.layer, [at[s] for s in node.sources], node.where)
    return builder.finish(model.name, model.name)


def _apart(groups: list[Group]) -> list[Group]:
    """Drop groups whose expansion is the projection of the group before."""
    kept: list[Group] = []
    for group in sorted(groups, key=lambda group: group.expansion):
        if not kept or group.expansion != kept[-1].projection:
            kept.append(group)
    return kept


def _split_group(builder: Builder, model: Model, group: Group, ways: int, at: dict[int, int]) -> int:
    """Add the parts of a group, and the sums of their projections; return the index of the last sum."""
    expansion = model.nodes[group.expansion]
    assert isinstance(expansion.layer, Conv)
    if expansion.layer.output_channels % ways:
        channels = expansion.layer.output_channels
        raise InputError(f"{model.name}: {expansion.name}: {ways} parts do not divide {channels} channels")
    source = at[expansion.sources[0]]
    parts = []
    for part in range(ways):
        layer: Layer = replace(expansion.layer, output_channels=expansion.layer.output_channels // ways)
        last = builder.append(_part(expansion.name, part, ways), layer, [source], expansion.where)
        for number in (*group.middle, group.projection):
            node = model.nodes[number]
            shape = builder.output(last)
            changes: dict[str, object] = {"inputs": (shape,)}
            if isinstance(node.layer, DepthwiseConv):
                changes |= {"output_channels": shape.c, "groups": shape.c}
            layer = replace(node.layer, **changes)  # type: ignore[arg-type]
            last = builder.append(_part(node.name, part, ways), layer, [last], node.where)
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
            summed.append(builder.append(f"{projection.name}/sum{count}", add, pair, projection.where))
        parts = summed + parts[len(parts) - len(parts) % 2 :]
    return parts[0]


def _part(name: str, part: int, ways: int) -> str:
    return f"{name}/{part + 1}of{ways}"
