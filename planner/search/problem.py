"""The placement as a CP-SAT problem. docs/systems/planner.md states every constraint as mathematics."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ortools.sat.python import cp_model

from fanin.planner.cluster import Device, Part
from fanin.planner.search.choices import Choice, connection_takes, constrained
from fanin.planner.search.instance import Instance, Option, Placement, paths_apart

Var = cp_model.IntVar
Linear = cp_model.LinearExprT


# Rules that a placement can break, in addition to its period.
RULES = frozenset(("dsp", "luts", "ram", "dram", "network", "connections", "hops", "host"))


@dataclass(frozen=True)
class Neighbourhood:
    """Part of a placement that may change: layers on ``devices`` are redistributed among these, all others
    stay.

    ``period``: ticks that the other devices may take; only the period of ``devices`` is minimised.
    """

    base: Placement
    devices: frozenset[int]
    period: int


@dataclass
class Problem:
    """Minimise the period, in ticks, within [low, high].

    - ``near``: restrict the search to this neighbourhood.
    - ``priorities``: choose priorities, too.
    - ``rules``: rules to apply; a subset finds out which rules conflict.
    - ``counted``: count devices with layers, for a single period only.
    """

    instance: Instance
    low: int
    high: int
    near: Neighbourhood | None = None
    priorities: bool = False
    rules: frozenset[str] = RULES
    counted: bool = False

    def __post_init__(self) -> None:
        self.cp = cp_model.CpModel()
        self.period = self.cp.new_int_var(self.low, self.high, "period")
        self.built: dict[tuple[int, int], list[tuple[Option, Var]]] = {}  # options by node and device
        self.on: dict[tuple[int, int], Var] = {}  # node is on device
        self.cut: dict[int, Var] = {}  # edge crosses the network
        self.touches: dict[tuple[int, int], Var] = {}  # cut edge starts or ends on device
        self.used: dict[int, Var] = {}  # device has layers, if ``counted``
        self._place()
        self._cut_edges()
        if "hops" in self.rules:
            self._join_equal_hops()
        if self.counted:
            self._count()
        for number, device in enumerate(self.devices):
            self._limit(number, device)
        if "connections" in self.rules:
            # For every two devices, at most one connection can have a given priority.
            most = max(device.part.connections for device in self.devices)
            self.cp.add(sum(self.cut.values()) <= most * (len(self.devices) // 2))
        if self.priorities:
            self._choose_priorities()
        self._order_equal_devices()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the cluster."""
        return self.instance.cluster.devices

    def _allowed(self, node: int) -> frozenset[int]:
        host = self.instance.cluster.host
        if node in self.instance.model.pinned and "host" in self.rules:
            return frozenset([host])
        if self.near is None:
            return frozenset(range(len(self.devices)))
        here = self.near.base.devices[node]
        return frozenset([here]) if self._stays(here) else self.near.devices

    def _options(self, node: int, device: int) -> tuple[Option, ...]:
        if self._stays(device):
            assert self.near is not None
            return (Option(self.low, self.near.base.choices[node]),)
        return self.instance.options(node, self.devices[device].part, self.low, self.high)

    def _stays(self, device: int) -> bool:
        return self.near is not None and device not in self.near.devices

    def _place(self) -> None:
        """Constrain every node to one option on one device, within the period."""
        for node in range(len(self.instance.model.nodes)):
            everywhere: list[Var] = []
            late = []
            for device in sorted(self._allowed(node)):
                options = self._options(node, device)
                if not options:
                    continue
                ways = [self.cp.new_bool_var(f"n{node}d{device}o{i}") for i in range(len(options))]
                self.built[node, device] = list(zip(options, ways, strict=True))
                self.on[node, device] = on = ways[0]
                if len(ways) > 1:
                    self.on[node, device] = on = self.cp.new_bool_var(f"n{node}d{device}")
                    self.cp.add_exactly_one([*ways, ~on])
                everywhere.append(on)
                late += [(option.ticks - self.low) * way for option, way in self.built[node, device]]
            self.cp.add_exactly_one(everywhere)
            self.cp.add(sum(late) <= self.period - self.low)

    def _cut_edges(self) -> None:
        """Constrain cut edges: an edge is cut if its ends are on different devices, which it then touches."""
        for number, edge in enumerate(self.instance.model.edges):
            cut = self.cut[number] = self.cp.new_bool_var(f"e{number}")
            touched = []
            for device in range(len(self.devices)):
                ends = [self.on[end, device] for end in (edge.source, edge.target) if (end, device) in self.on]
                if not ends:
                    continue
                touch = self.touches[number, device] = self.cp.new_bool_var(f"e{number}d{device}")
                touched.append(touch)
                if len(ends) == 1:
                    self.cp.add(touch == ends[0])
                    continue
                one, other = ends
                self.cp.add_bool_or(~one, ~other, ~cut)
                self.cp.add_bool_or(~one, other, touch)
                self.cp.add_bool_or(one, ~other, touch)
                self.cp.add_bool_or(~one, ~other, ~touch)
                self.cp.add_bool_or(one, other, ~touch)
            self.cp.add(sum(touched) == 2 * cut)

    def _join_equal_hops(self) -> None:
        """Constrain joins to equal hops, h(b) = h(a) + cut(a, b): both paths to a join have as many cut
        edges.
        """
        for one, other in paths_apart(self.instance.model):
            self.cp.add(sum(self.cut[e] for e in one) == sum(self.cut[e] for e in other))

    def _count(self) -> None:
        for device in range(len(self.devices)):
            self.used[device] = self.cp.new_bool_var(f"d{device}")
            here = [on for (_, d), on in self.on.items() if d == device]
            self.cp.add_max_equality(self.used[device], here) if here else self.cp.add(self.used[device] == 0)

    def _limit(self, number: int, device: Device) -> None:
        """Constrain a device's DSPs, LUTs, RAM, DRAM, network and connections."""
        part = device.part
        period: Linear = self.near.period if self.near and self._stays(number) else self.period
        there: Linear = 1
        if self.counted:
            there, period = self.used[number], self.high * self.used[number]
        built = [
            (constrained(option.choice.cost, part), way)
            for (_, where), ways in self.built.items()
            if where == number
            for option, way in ways
        ]
        touches = {edge: touch for (edge, where), touch in self.touches.items() if where == number}
        for column, (rule, limit) in enumerate(limits_of(part)):
            each = connection_takes(part)[column]
            load = sum(costs[column] * way for costs, way in built) + each * sum(touches.values())
            if rule in self.rules and limit is not None:
                self.cp.add(load <= limit * there)
            elif rule in self.rules:
                self.cp.add(self.instance.per_bit(part.dram) * load <= period)
        if "connections" in self.rules:
            self.cp.add(sum(touches.values()) <= part.connections * there)
        per_bit = self.instance.per_bit(part.network)
        edges = self.instance.model.edges
        if "network" in self.rules and part.network:
            self.cp.add(sum(per_bit * edges[e].bits * touch for e, touch in touches.items()) <= period)
        elif "network" in self.rules:
            self.cp.add(sum(touches.values()) == 0)

    def _choose_priorities(self) -> None:
        """Constrain priorities: each cut edge has one, below P and unique at both ends."""
        count = max(device.part.connections for device in self.devices)
        ways = {e: [self.cp.new_bool_var(f"e{e}p{p}") for p in range(count)] for e in self.cut}
        for edge, cut in self.cut.items():
            self.cp.add(sum(ways[edge]) == cut)
        for number, device in enumerate(self.devices):
            for priority in range(count):
                taken = []
                for (edge, where), touch in self.touches.items():
                    if where == number and priority >= device.part.connections:
                        self.cp.add_implication(ways[edge][priority], ~touch)
                    elif where == number:
                        both = self.cp.new_bool_var(f"e{edge}d{number}p{priority}")
                        self.cp.add_bool_or(~ways[edge][priority], ~touch, both)
                        taken.append(both)
                self.cp.add_at_most_one(taken)

    def _order_equal_devices(self) -> None:
        """Order the first layers of equal devices, except the host's, to remove plans that differ only in the
        devices' names.
        """
        if self.near:
            return  # the layers that stay distinguish the devices
        for earlier, later in interchangeable(self.instance):
            begun: Var | None = None  # whether the earlier device has a layer yet
            for node in range(len(self.instance.model.nodes)):
                if (node, later) in self.on:
                    if begun is None:
                        self.cp.add(self.on[node, later] == 0)
                    else:
                        self.cp.add_implication(self.on[node, later], begun)
                if (node, earlier) in self.on:
                    now = self.cp.new_bool_var(f"d{earlier}n{node}")
                    before = [] if begun is None else [begun]
                    self.cp.add_bool_or(*before, self.on[node, earlier], ~now)
                    for cause in (*before, self.on[node, earlier]):
                        self.cp.add_implication(cause, now)
                    begun = now

    def hint(self, placement: Placement) -> None:
        """Give the solver a placement as a hint."""
        for (node, device), ways in self.built.items():
            here = placement.devices[node] == device
            taken = self._as_good(placement.choices[node], ways, self.devices[device].part) if here else None
            for number, (_, way) in enumerate(ways):
                self.cp.add_hint(way, number == taken)
            if len(ways) > 1:
                self.cp.add_hint(self.on[node, device], here)
        for number, edge in enumerate(self.instance.model.edges):
            apart = placement.devices[edge.source] != placement.devices[edge.target]
            self.cp.add_hint(self.cut[number], apart)

    def _as_good(self, choice: Choice, ways: list[tuple[Option, Var]], part: Part) -> int:
        """Return the index of an option that costs at most as much as ``choice`` in everything; 0 for none."""
        ticks, limits = max(self.instance.layer_ticks(choice, part), self.low), constrained(choice.cost, part)
        return next(
            (
                number
                for number, (option, _) in enumerate(ways)
                if option.ticks <= ticks
                and all(a <= b for a, b in zip(constrained(option.choice.cost, part), limits, strict=True))
            ),
            0,
        )

    def placement(self, solver: cp_model.CpSolver) -> Placement:
        """Return the placement that the solver found."""
        found = {
            node: (device, option.choice)
            for (node, device), ways in self.built.items()
            for option, way in ways
            if solver.boolean_value(way)
        }
        nodes = range(len(self.instance.model.nodes))
        return Placement(tuple(found[n][0] for n in nodes), tuple(found[n][1] for n in nodes))


def limits_of(part: Part) -> tuple[tuple[str, int | None], ...]:
    """Return (rule, limit) for every column of ``constrained``; None for a limit that depends on the period."""
    ram = (part.ram_bits,) if part.ram_bits is not None else ()
    dram = None if part.dram else 0
    return (
        ("dsp", part.dsp),
        *(("luts", limit) for limit in (part.luts_left,) if limit is not None),
        *(("ram", r) for r in (*ram, *(part.ram_blocks or ()))),
        ("dram", dram),
        ("dram", dram),
    )


def limits_at(instance: Instance, part: Part, period: int) -> list[int]:
    """Return the limits at a period in ticks, in the order of ``constrained``."""
    bits = part.dram * period // instance.ticks
    return [bits if limit is None else limit for _, limit in limits_of(part)]


def interchangeable(instance: Instance) -> list[tuple[int, int]]:
    """Return neighbouring pairs in every group of equal devices, without the host's."""
    cluster = instance.cluster
    pairs = []
    for part in cluster.parts:
        group = [n for n, d in enumerate(cluster.devices) if d.part == part and n != cluster.host]
        pairs += list(itertools.pairwise(group))
    return pairs
