"""CP-SAT problem of a placement. docs/systems/planner.md states each constraint as mathematics."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from ortools.sat.python import cp_model

from fanin.planner.cluster import Device, Part
from fanin.planner.search.choices import Choice, connection_cost, limited_costs
from fanin.planner.search.instance import Instance, Option, Placement, divergent_paths

Var = cp_model.IntVar
Linear = cp_model.LinearExprT


# Rules that a placement can break, in addition to its period.
RULES = frozenset(("dsp", "luts", "ram", "dram", "network", "connections", "hops", "host"))


@dataclass(frozen=True)
class Neighbourhood:
    """Part of a placement that may change: layers on some devices are redistributed among these devices."""

    base: Placement
    devices: frozenset[int]  #: devices whose layers may move, and whose period is minimised
    period: int  #: ticks that the other devices may take


@dataclass
class Problem:
    """CP-SAT model of the placements with a period within [low, high] ticks. The caller adds the objective."""

    instance: Instance
    low: int
    high: int
    neighbourhood: Neighbourhood | None = None  #: part of a placement that may change; None for all
    priorities: bool = False  #: true to choose priorities, too
    rules: frozenset[str] = RULES  #: rules to apply; subsets show which rules conflict
    count_devices: bool = False  #: true to count devices with layers; needs ``low`` = ``high``

    def __post_init__(self) -> None:
        self.cp = cp_model.CpModel()
        self.period = self.cp.new_int_var(self.low, self.high, "period")
        # by node and device: options, each with a variable that is 1 if the node has the option on the device
        self.option_variables: dict[tuple[int, int], list[tuple[Option, Var]]] = {}
        self.on: dict[tuple[int, int], Var] = {}  # node is on device
        self.cut: dict[int, Var] = {}  # edge crosses the network
        self.touches: dict[tuple[int, int], Var] = {}  # cut edge starts or ends on device
        self.device_used: dict[int, Var] = {}  # device has layers, if ``count_devices``
        self._constrain_nodes()
        self._constrain_cuts()
        if "hops" in self.rules:
            self._join_equal_hops()
        if self.count_devices:
            self._constrain_used_devices()
        for number, device in enumerate(self.devices):
            self._constrain_device(number, device)
        if "connections" in self.rules:
            # For every two devices, at most one connection can have a given priority.
            max_connections = max(device.part.connections for device in self.devices)
            self.cp.add(sum(self.cut.values()) <= max_connections * (len(self.devices) // 2))
        if self.priorities:
            self._choose_priorities()
        self._order_equal_devices()

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of the cluster."""
        return self.instance.cluster.devices

    def _allowed(self, node: int) -> frozenset[int]:
        """Return the devices on which a node may be."""
        host = self.instance.cluster.host
        if node in self.instance.model.pinned and "host" in self.rules:
            return frozenset([host])
        if self.neighbourhood is None:
            return frozenset(range(len(self.devices)))
        device = self.neighbourhood.base.devices[node]
        return frozenset([device]) if self._is_fixed(device) else self.neighbourhood.devices

    def _options(self, node: int, device: int) -> tuple[Option, ...]:
        """Return a node's options on a device: the current one if the device's layers are fixed."""
        if self._is_fixed(device):
            assert self.neighbourhood is not None
            return (Option(self.low, self.neighbourhood.base.choices[node]),)
        return self.instance.options(node, self.devices[device].part, self.low, self.high)

    def _is_fixed(self, device: int) -> bool:
        return self.neighbourhood is not None and device not in self.neighbourhood.devices

    def _constrain_nodes(self) -> None:
        """Constrain each node to one option on one device, within the period."""
        for node in range(len(self.instance.model.nodes)):
            placements: list[Var] = []
            extra_ticks = []
            for device in sorted(self._allowed(node)):
                options = self._options(node, device)
                if not options:
                    continue
                variables = [self.cp.new_bool_var(f"n{node}d{device}o{i}") for i in range(len(options))]
                self.option_variables[node, device] = list(zip(options, variables, strict=True))
                self.on[node, device] = on = variables[0]
                if len(variables) > 1:
                    self.on[node, device] = on = self.cp.new_bool_var(f"n{node}d{device}")
                    self.cp.add_exactly_one([*variables, ~on])
                placements.append(on)
                extra_ticks += [
                    (option.ticks - self.low) * variable
                    for option, variable in self.option_variables[node, device]
                ]
            self.cp.add_exactly_one(placements)
            self.cp.add(sum(extra_ticks) <= self.period - self.low)

    def _constrain_cuts(self) -> None:
        """Constrain edges: an edge is cut if its ends are on different devices, which it then touches."""
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
                # touch = first xor second; the edge is not cut if both ends are on the device
                first, second = ends
                self.cp.add_bool_or(~first, ~second, ~cut)
                self.cp.add_bool_or(~first, second, touch)
                self.cp.add_bool_or(first, ~second, touch)
                self.cp.add_bool_or(~first, ~second, ~touch)
                self.cp.add_bool_or(first, second, ~touch)
            self.cp.add(sum(touched) == 2 * cut)

    def _join_equal_hops(self) -> None:
        """Constrain joins to equal hops: both paths to a join have equally many cut edges."""
        for path, other_path in divergent_paths(self.instance.model):
            self.cp.add(sum(self.cut[e] for e in path) == sum(self.cut[e] for e in other_path))

    def _constrain_used_devices(self) -> None:
        """Constrain ``device_used`` to 1 for devices with layers, else 0."""
        for device in range(len(self.devices)):
            self.device_used[device] = self.cp.new_bool_var(f"d{device}")
            on_device = [on for (_, d), on in self.on.items() if d == device]
            if on_device:
                self.cp.add_max_equality(self.device_used[device], on_device)
            else:
                self.cp.add(self.device_used[device] == 0)

    def _constrain_device(self, number: int, device: Device) -> None:
        """Constrain a device's DSPs, LUTs, RAM, DRAM, network and connections."""
        part = device.part
        period: Linear = (
            self.neighbourhood.period if self.neighbourhood and self._is_fixed(number) else self.period
        )
        usable: Linear = 1
        if self.count_devices:  # an unused device has no resources and no time
            usable, period = self.device_used[number], self.high * self.device_used[number]
        costs_by_option = [
            (limited_costs(option.choice.cost, part), variable)
            for (_, other), options in self.option_variables.items()
            if other == number
            for option, variable in options
        ]
        touches = {edge: touch for (edge, other), touch in self.touches.items() if other == number}
        for column, (rule, limit) in enumerate(limits_of(part)):
            cost_each = connection_cost(part)[column]
            layers_load = sum(costs[column] * variable for costs, variable in costs_by_option)
            load = layers_load + cost_each * sum(touches.values())
            if rule in self.rules and limit is not None:
                self.cp.add(load <= limit * usable)
            elif rule in self.rules:  # bits to or from DRAM, limited by the period
                self.cp.add(self.instance.per_bit(part.dram) * load <= period)
        if "connections" in self.rules:
            self.cp.add(sum(touches.values()) <= part.connections * usable)
        per_bit = self.instance.per_bit(part.network)
        edges = self.instance.model.edges
        if "network" in self.rules and part.network:
            self.cp.add(sum(per_bit * edges[e].bits * touch for e, touch in touches.items()) <= period)
        elif "network" in self.rules:
            self.cp.add(sum(touches.values()) == 0)

    def _choose_priorities(self) -> None:
        """Constrain priorities: each cut edge has one, below the limits of both devices and unique at both."""
        count = max(device.part.connections for device in self.devices)
        priority_of = {e: [self.cp.new_bool_var(f"e{e}p{p}") for p in range(count)] for e in self.cut}
        for edge, cut in self.cut.items():
            self.cp.add(sum(priority_of[edge]) == cut)
        for number, device in enumerate(self.devices):
            for priority in range(count):
                users = []
                for (edge, other), touch in self.touches.items():
                    if other == number and priority >= device.part.connections:
                        self.cp.add_implication(priority_of[edge][priority], ~touch)
                    elif other == number:
                        uses = self.cp.new_bool_var(f"e{edge}d{number}p{priority}")
                        self.cp.add_bool_or(~priority_of[edge][priority], ~touch, uses)
                        users.append(uses)
                self.cp.add_at_most_one(users)

    def _order_equal_devices(self) -> None:
        """Constrain equal devices, except the host's, to the order of their first layers.

        This removes placements that differ only in the devices' names.
        """
        if self.neighbourhood:
            return  # the layers that stay distinguish the devices
        for earlier, later in interchangeable(self.instance):
            # true if the earlier device has one of the nodes so far; None before its first possible node
            has_layers: Var | None = None
            for node in range(len(self.instance.model.nodes)):
                if (node, later) in self.on:
                    if has_layers is None:
                        self.cp.add(self.on[node, later] == 0)
                    else:
                        self.cp.add_implication(self.on[node, later], has_layers)
                if (node, earlier) in self.on:
                    has_layers_now = self.cp.new_bool_var(f"d{earlier}n{node}")
                    previous = [] if has_layers is None else [has_layers]
                    self.cp.add_bool_or(*previous, self.on[node, earlier], ~has_layers_now)
                    for cause in (*previous, self.on[node, earlier]):
                        self.cp.add_implication(cause, has_layers_now)
                    has_layers = has_layers_now

    def hint(self, placement: Placement) -> None:
        """Give the solver a placement as a hint."""
        for (node, device), options in self.option_variables.items():
            is_placed = placement.devices[node] == device
            chosen = (
                self._cheaper_option(placement.choices[node], options, self.devices[device].part)
                if is_placed
                else None
            )
            for number, (_, variable) in enumerate(options):
                self.cp.add_hint(variable, number == chosen)
            if len(options) > 1:
                self.cp.add_hint(self.on[node, device], is_placed)
        for number, edge in enumerate(self.instance.model.edges):
            is_cut = placement.devices[edge.source] != placement.devices[edge.target]
            self.cp.add_hint(self.cut[number], is_cut)

    def _cheaper_option(self, choice: Choice, options: list[tuple[Option, Var]], part: Part) -> int:
        """Return the index of an option that costs at most as much as ``choice`` in all respects; else 0."""
        ticks, limits = max(self.instance.layer_ticks(choice, part), self.low), limited_costs(choice.cost, part)
        return next(
            (
                number
                for number, (option, _) in enumerate(options)
                if option.ticks <= ticks
                and all(a <= b for a, b in zip(limited_costs(option.choice.cost, part), limits, strict=True))
            ),
            0,
        )

    def placement(self, solver: cp_model.CpSolver) -> Placement:
        """Return the placement that the solver found."""
        assigned = {
            node: (device, option.choice)
            for (node, device), options in self.option_variables.items()
            for option, variable in options
            if solver.boolean_value(variable)
        }
        nodes = range(len(self.instance.model.nodes))
        return Placement(tuple(assigned[n][0] for n in nodes), tuple(assigned[n][1] for n in nodes))


def limits_of(part: Part) -> tuple[tuple[str, int | None], ...]:
    """Return (rule, limit) for each column of ``limited_costs``; None if the limit depends on the period."""
    ram = (part.ram_bits,) if part.ram_bits is not None else ()
    dram = None if part.dram else 0
    return (
        ("dsp", part.dsp),
        *(("luts", limit) for limit in (part.available_luts,) if limit is not None),
        *(("ram", r) for r in (*ram, *(part.ram_blocks or ()))),
        ("dram", dram),
        ("dram", dram),
    )


def limits_at(instance: Instance, part: Part, period: int) -> list[int]:
    """Return the limits at a period in ticks, in the order of ``limited_costs``."""
    bits = part.dram * period // instance.ticks
    return [bits if limit is None else limit for _, limit in limits_of(part)]


def interchangeable(instance: Instance) -> list[tuple[int, int]]:
    """Return the consecutive pairs of each group of equal devices, without the host's."""
    cluster = instance.cluster
    pairs = []
    for part in cluster.parts:
        group = [n for n, d in enumerate(cluster.devices) if d.part == part and n != cluster.host]
        pairs += list(itertools.pairwise(group))
    return pairs
