"""A model on a cluster: its unit of time, the loads of a placement, and choices for a range of periods."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from fanin.cnn.layers.logic import device_luts
from fanin.planner.cluster import Cluster, Part
from fanin.planner.model.graph import Model
from fanin.planner.search.choices import Choice, constrained, front, non_dominated

# Most ticks per second: periods of seconds, summed over a cluster, stay below 2^63.
MAX_TICKS = 10**15


@dataclass(frozen=True)
class Placement:
    """Device and build of each node of the model."""

    devices: tuple[int, ...]
    choices: tuple[Choice, ...]


@dataclass(frozen=True)
class Load:
    """Load of one device. DRAM and network are in bits per frame, each way."""

    dsp: int
    luts: int
    ram_bits: int
    ram_blocks: tuple[int, ...]
    dram_read: int
    dram_write: int
    network: int
    connections: int
    cycles: int  #: per frame, of the slowest layer


@dataclass(frozen=True)
class Option:
    """A choice within a range of periods. ``ticks``: per frame, at least the range's start."""

    ticks: int
    choice: Choice


class Instance:
    """A model and a cluster, with a common unit of time (ticks)."""

    def __init__(self, model: Model, cluster: Cluster):
        self.model, self.cluster = model, cluster
        rates = {r for part in cluster.parts for r in (part.clock, part.dram, part.network) if r}
        # Whole ticks for every cycle and bit; if rates are too odd for that, rounding keeps bounds optimistic.
        self.ticks = min(math.lcm(*rates), MAX_TICKS)

    def __reduce__(self) -> tuple[type[Instance], tuple[Model, Cluster]]:
        return Instance, (
            self.model,
            self.cluster,
        )  # without the choices, which another process finds for itself

    def layer_ticks(self, choice: Choice, part: Part) -> int:
        """Return the ticks of a frame in one layer: its cycles, or its bits at the device's full DRAM rate."""
        bits = max(choice.cost.dram_read, choice.cost.dram_write)
        return max(choice.cost.cycles * self.ticks // part.clock, bits * self.per_bit(part.dram))

    def per_bit(self, rate: int) -> int:
        """Return the ticks of one bit; 0 if there is no such port, which nothing may use."""
        return self.ticks // rate if rate else 0

    def options(self, node: int, part: Part, low: int, high: int) -> tuple[Option, ...]:
        """Return a node's non-dominated choices on a part for periods from ``low`` to ``high``."""
        layer, context = self.model.nodes[node].layer, self.model.contexts[node]
        key = (layer, context, part, low, high)
        if key not in self._options:
            found = [Option(max(self.layer_ticks(c, part), low), c) for c in front(layer, part, context)]
            found = [option for option in found if option.ticks <= high]
            rows = [(option.ticks, *constrained(option.choice.cost, part)) for option in found]
            self._options[key] = tuple(found[i] for i in non_dominated(rows))
        return self._options[key]

    @cached_property
    def _options(self) -> dict[tuple[object, ...], tuple[Option, ...]]:
        return {}

    def loads(self, placement: Placement) -> tuple[Load, ...]:
        """Return the load of every device."""
        return tuple(self._load(n, placement) for n in range(len(self.cluster.devices)))

    def _load(self, device: int, placement: Placement) -> Load:
        part = self.cluster.devices[device].part
        costs = [c.cost for c, d in zip(placement.choices, placement.devices, strict=True) if d == device]
        cut = [
            edge.bits
            for edge in self.model.edges
            if (placement.devices[edge.source] == device) != (placement.devices[edge.target] == device)
        ]
        kinds = len(part.family.ram)
        return Load(
            dsp=sum(cost.dsp for cost in costs),
            luts=sum(cost.luts for cost in costs) + (device_luts(part.family, len(cut)) if costs else 0),
            ram_bits=sum(cost.ram_bits for cost in costs),
            ram_blocks=tuple(sum(cost.ram_blocks[k] for cost in costs) for k in range(kinds)),
            dram_read=sum(cost.dram_read for cost in costs),
            dram_write=sum(cost.dram_write for cost in costs),
            network=sum(cut),
            connections=len(cut),
            cycles=max((cost.cycles for cost in costs), default=0),
        )

    def period(self, placement: Placement) -> Fraction:
        """Return the exact seconds per frame: of the slowest layer, DRAM or network port."""
        return max(
            device_period(load, device.part)
            for load, device in zip(self.loads(placement), self.cluster.devices, strict=True)
        )

    def canonical(self, placement: Placement) -> Placement:
        """Return the placement with equal devices, except the host's, in the order of their first layers."""
        devices = self.cluster.devices
        name: dict[int, int] = {}
        free = [n for n in range(len(devices)) if n != self.cluster.host]
        for device in placement.devices:
            if device not in name and device != self.cluster.host:
                name[device] = next(n for n in free if devices[n].part == devices[device].part)
                free.remove(name[device])
        return Placement(tuple(name.get(d, d) for d in placement.devices), placement.choices)

    def in_ticks(self, period: Fraction) -> int:
        """Return the ticks of a period, rounded up."""
        return math.ceil(period * self.ticks)


def device_period(load: Load, part: Part) -> Fraction:
    """Return the seconds per frame on one device."""
    pairs = ((max(load.dram_read, load.dram_write), part.dram), (load.network, part.network))
    return max([Fraction(load.cycles, part.clock), *(Fraction(bits, rate) for bits, rate in pairs if bits)])


def paths_apart(model: Model) -> Iterable[tuple[Sequence[int], Sequence[int]]]:
    """Return for every join two paths to it from where they parted: edges of one, edges of the other.

    If hops are equal along each such pair, they are equal at every join. All inputs except labels count as one
    node.
    """
    parent: dict[int, tuple[int, int]] = {}  # by node: its first edge, and that edge's source
    ways: list[tuple[list[int], list[int]]] = []
    for number, edge in enumerate(model.edges):
        if edge.label:
            continue
        if edge.target not in parent:
            parent[edge.target] = (number, edge.source)
            continue
        ways.append(_from_parting(parent, (number, edge.source), parent[edge.target]))
    return ways


def _from_parting(
    parent: dict[int, tuple[int, int]], one: tuple[int, int], other: tuple[int, int]
) -> tuple[list[int], list[int]]:
    def way(step: tuple[int, int]) -> list[tuple[int, int]]:
        steps = [step]
        while steps[-1][1] in parent:
            steps.append(parent[steps[-1][1]])
        return steps

    first, second = way(one), way(other)
    shared = {edge for edge, _ in first} & {edge for edge, _ in second}
    return [e for e, _ in first if e not in shared], [e for e, _ in second if e not in shared]
