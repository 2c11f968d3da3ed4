"""Instance of the placement problem: a model on a cluster, with a unit of time, loads and options.

A *choice* is a way to build a node (parallelism, storage) with its cost. An *option* is a choice on a part,
with the time that a frame takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from fanin.cnn.layers.logic import device_luts
from fanin.planner.cluster import Cluster, Part
from fanin.planner.model.graph import Model
from fanin.planner.search.choices import Choice, limited_costs, non_dominated, pareto_front

# Maximum ticks per second: periods of seconds, summed over a cluster, stay below 2^63.
MAX_TICKS = 10**15


@dataclass(frozen=True)
class Placement:
    """Placement of a model's nodes."""

    devices: tuple[int, ...]  #: device of each node
    choices: tuple[Choice, ...]  #: build of each node


@dataclass(frozen=True)
class Load:
    """Load of one device."""

    dsp: int
    luts: int
    ram_bits: int
    ram_blocks: tuple[int, ...]  #: blocks of each kind
    dram_read: int  #: bits per frame
    dram_write: int  #: bits per frame
    network: int  #: bits per frame and direction
    connections: int
    cycles: int  #: cycles per frame of the slowest layer


@dataclass(frozen=True)
class Option:
    """Choice of a node on a part, in a search for periods in a range.

    - ``ticks``: ticks per frame of the node, or the start of the range if that is more: faster is no better.
    - ``choice``: build of the node.
    """

    ticks: int
    choice: Choice


class Instance:
    """Model and cluster with a common unit of time, the tick.

    - ``model``, ``cluster``: what is placed, and where.
    - ``ticks``: ticks per second.
    """

    def __init__(self, model: Model, cluster: Cluster):
        self.model, self.cluster = model, cluster
        rates = {r for part in cluster.parts for r in (part.clock, part.dram, part.network) if r}
        # The least common multiple makes a cycle of every clock and a bit of every port whole numbers of ticks.
        # If it exceeds MAX_TICKS, times are rounded down, so that bounds on periods stay valid.
        self.ticks = min(math.lcm(*rates), MAX_TICKS)
        self._options: dict[tuple[object, ...], tuple[Option, ...]] = {}  # results of ``options``

    def __reduce__(self) -> tuple[type[Instance], tuple[Model, Cluster]]:
        # Without the cached options, which another process computes for itself.
        return Instance, (self.model, self.cluster)

    def layer_ticks(self, choice: Choice, part: Part) -> int:
        """Return the ticks of a frame in one layer: its cycles, or its bits at the device's full DRAM rate."""
        bits = max(choice.cost.dram_read, choice.cost.dram_write)
        return max(choice.cost.cycles * self.ticks // part.clock, bits * self.per_bit(part.dram))

    def per_bit(self, rate: int) -> int:
        """Return the ticks of one bit at ``rate`` bits per second; 0 for a rate of 0, a port that is absent."""
        return self.ticks // rate if rate else 0

    def options(self, node: int, part: Part, low: int, high: int) -> tuple[Option, ...]:
        """Return a node's options on a part for periods from ``low`` to ``high`` ticks.

        Dominated options are left out: another option takes at most as many ticks, and as much of each
        resource.
        """
        layer, context = self.model.nodes[node].layer, self.model.contexts[node]
        key = (layer, context, part, low, high)
        if key not in self._options:
            options = [
                Option(max(self.layer_ticks(c, part), low), c) for c in pareto_front(layer, part, context)
            ]
            options = [option for option in options if option.ticks <= high]
            rows = [(option.ticks, *limited_costs(option.choice.cost, part)) for option in options]
            self._options[key] = tuple(options[i] for i in non_dominated(rows))
        return self._options[key]

    def loads(self, placement: Placement) -> tuple[Load, ...]:
        """Return the load of each device."""
        return tuple(self._load(n, placement) for n in range(len(self.cluster.devices)))

    def _load(self, device: int, placement: Placement) -> Load:
        part = self.cluster.devices[device].part
        costs = [c.cost for c, d in zip(placement.choices, placement.devices, strict=True) if d == device]
        cut_bits = [
            edge.bits
            for edge in self.model.edges
            if (placement.devices[edge.source] == device) != (placement.devices[edge.target] == device)
        ]
        kinds = len(part.family.ram)
        return Load(
            dsp=sum(cost.dsp for cost in costs),
            luts=sum(cost.luts for cost in costs) + (device_luts(part.family, len(cut_bits)) if costs else 0),
            ram_bits=sum(cost.ram_bits for cost in costs),
            ram_blocks=tuple(sum(cost.ram_blocks[k] for cost in costs) for k in range(kinds)),
            dram_read=sum(cost.dram_read for cost in costs),
            dram_write=sum(cost.dram_write for cost in costs),
            network=sum(cut_bits),
            connections=len(cut_bits),
            cycles=max((cost.cycles for cost in costs), default=0),
        )

    def period(self, placement: Placement) -> Fraction:
        """Return the exact seconds per frame of the slowest layer, DRAM or network port."""
        return max(
            device_period(load, device.part)
            for load, device in zip(self.loads(placement), self.cluster.devices, strict=True)
        )

    def canonical(self, placement: Placement) -> Placement:
        """Return the placement with equal devices renumbered in the order of their first layers.

        The host's device keeps its number.
        """
        devices = self.cluster.devices
        new_number: dict[int, int] = {}
        free = [n for n in range(len(devices)) if n != self.cluster.host]
        for device in placement.devices:
            if device not in new_number and device != self.cluster.host:
                new_number[device] = next(n for n in free if devices[n].part == devices[device].part)
                free.remove(new_number[device])
        return Placement(tuple(new_number.get(d, d) for d in placement.devices), placement.choices)

    def in_ticks(self, period: Fraction) -> int:
        """Return the ticks of a period, rounded up."""
        return math.ceil(period * self.ticks)


def device_period(load: Load, part: Part) -> Fraction:
    """Return the seconds per frame on one device: of its slowest layer, its DRAM or its network port.

    ``part`` must have the ports that ``load`` uses.
    """
    pairs = ((max(load.dram_read, load.dram_write), part.dram), (load.network, part.network))
    return max([Fraction(load.cycles, part.clock), *(Fraction(bits, rate) for bits, rate in pairs if bits)])


def divergent_paths(model: Model) -> Iterable[tuple[Sequence[int], Sequence[int]]]:
    """Return pairs of paths from a common node to a join, as lists of edge numbers, the last edge first.

    A *join* is a node with several incoming edges. For each of them but the first there is a pair: the path
    through this edge, and the path through the first edge, both without their common beginning. If both paths
    of every pair pass equally many links, so do all paths to each join. Inputs count as one node, which all
    paths start from; edges of labels are left out.
    """
    parent: dict[int, tuple[int, int]] = {}  # by node: its first incoming edge, and that edge's source
    pairs: list[tuple[list[int], list[int]]] = []
    for number, edge in enumerate(model.edges):
        if edge.label:
            continue
        if edge.target not in parent:
            parent[edge.target] = (number, edge.source)
            continue
        pairs.append(_divergent_parts(parent, (number, edge.source), parent[edge.target]))
    return pairs


def _divergent_parts(
    parent: dict[int, tuple[int, int]], first_step: tuple[int, int], second_step: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """Return the edges of two paths to a join, from the last node that both paths contain.

    ``parent``: first edge into each node, and the edge's source.
    ``first_step``, ``second_step``: last edge of each path, and its source.
    """

    def path_back(last_step: tuple[int, int]) -> list[tuple[int, int]]:
        steps = [last_step]
        while steps[-1][1] in parent:
            steps.append(parent[steps[-1][1]])
        return steps

    first, second = path_back(first_step), path_back(second_step)
    shared = {edge for edge, _ in first} & {edge for edge, _ in second}
    return [e for e, _ in first if e not in shared], [e for e, _ in second if e not in shared]
