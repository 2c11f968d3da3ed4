"""First placement of a search: each device in turn takes as many of the next layers as fit at a period.

A pass over the devices succeeds or fails at one period. The period grows until a pass succeeds. Bisection then
shortens it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.planner.cluster import Part
from fanin.planner.search.choices import Choice, connection_cost, limited_costs
from fanin.planner.search.instance import Instance, Placement, divergent_paths
from fanin.planner.search.problem import limits_at

GROWTH, GROWTHS = 1.4, 40  # ratio of successive periods, and their number: up to a million times the first
HALVINGS = 6  # bisections between the last two periods, to half a per cent


def first_placement(instance: Instance, low: int) -> Placement | None:
    """Return a placement from one pass over the devices, at a short period of at least ``low``; None for none.

    Devices have consecutive segments of layers. All paths between two layers then cross the same number of
    devices, provided that no edge skips a device. If no period succeeds with as many layers as fit, devices may
    take fewer.
    """
    return _shortest_period_placement(instance, low, backtrack=False) or _shortest_period_placement(
        instance, low, backtrack=True
    )


def _shortest_period_placement(instance: Instance, low: int, *, backtrack: bool) -> Placement | None:
    """Return the placement of the shortest period at which a pass succeeds; None if none does."""
    best, low_period, high_period = None, low, low
    for _ in range(GROWTHS):
        best = _run_pass(instance, high_period, backtrack=backtrack)
        if best is not None:
            break
        low_period, high_period = high_period, int(high_period * GROWTH) + 1
    if best is None or high_period == low:
        return best
    for _ in range(HALVINGS):
        middle = (low_period + high_period) // 2
        candidate = _run_pass(instance, middle, backtrack=backtrack)
        if candidate is None:
            low_period = middle
        else:
            best, high_period = candidate, middle
    return best


def _order(instance: Instance) -> list[int]:
    """Return the nodes in topological order, with labels as late as possible."""
    model = instance.model
    label_targets: dict[int, int] = {}
    for edge in model.edges:
        if edge.label:
            label_targets.setdefault(edge.source, edge.target)
    order: list[int] = []
    for node, model_node in enumerate(model.nodes):
        if node in label_targets:
            continue
        if isinstance(model_node.layer, SoftCrossLoss):
            order += [label for label, target in label_targets.items() if target == node]
        order.append(node)
    return order


def _run_pass(instance: Instance, period: int, *, backtrack: bool) -> Placement | None:
    """Return the placement of a pass; None for failure.

    ``backtrack``: true if a device may take fewer layers than fit, if later layers fit nowhere otherwise.
    """
    return _Pass(instance, period, backtrack).placement(0, 0)


class _Segment(NamedTuple):
    """Consecutive layers that fit one device; on the host's device also the order's last layers."""

    end: int  #: position in the order of the first layer after the segment
    nodes: list[int]
    choices: list[Choice]  #: choice of each node


@dataclass
class _Pass:
    """Pass over the devices, the host's first, which assigns a segment of the layers' order to each.

    The last layers of the order (loss and output) are pinned to the host. The host's device takes them in
    addition to its segment, which is the first one.
    """

    instance: Instance
    period: int  #: ticks
    backtrack: bool  #: true if a device may take fewer layers than fit

    def __post_init__(self) -> None:
        model, cluster = self.instance.model, self.instance.cluster
        self.order = _order(self.instance)  # nodes
        self.tail = len(self.order)  # position in the order of the host's last layers
        while self.tail and self.order[self.tail - 1] in model.pinned:
            self.tail -= 1
        positions = {node: place for place, node in enumerate(self.order)}
        # positions of both ends of each edge
        self.spans = [(positions[e.source], positions[e.target]) for e in model.edges if not e.label]
        self.allowed = _boundary_check(self.spans, self.tail)
        self.devices = [cluster.host, *(n for n in range(len(cluster.devices)) if n != cluster.host)]
        self.assigned: list[tuple[int, _Segment]] = []  # (device, segment)
        self.failed: set[tuple[int, int]] = set()  # arguments of ``placement`` that have failed
        # by part, true for the host's device, and first position
        self.segment_cache: dict[tuple[Part, bool, int], list[_Segment]] = {}

    def placement(self, number: int, begin: int) -> Placement | None:
        """Return the placement with all remaining layers on the remaining devices; None if there is none.

        ``number``: position in ``devices`` of the first remaining device.
        ``begin``: position in ``order`` of the first remaining layer.
        """
        if number and begin == self.tail:
            return self._complete()
        if number == len(self.devices) or (number, begin) in self.failed:
            return None
        device = self.devices[number]
        segments = self._segments(device, begin)
        for segment in segments if self.backtrack else segments[:1]:
            self.assigned.append((device, segment))
            completed = self.placement(number + 1, segment.end)
            if completed is not None:
                return completed
            self.assigned.pop()
        # leave the device empty
        completed = self.placement(number + 1, begin) if number and (self.backtrack or not segments) else None
        if completed is None:
            self.failed.add((number, begin))
        return completed

    def _complete(self) -> Placement | None:
        """Return the placement of all segments; None if paths to a join differ in hops."""
        device_and_choice = {
            node: (device, choice)
            for device, segment in self.assigned
            for node, choice in zip(segment.nodes, segment.choices, strict=True)
        }
        devices, choices = zip(*(device_and_choice[node] for node in range(len(self.order))), strict=True)
        placement = Placement(devices, choices)
        return placement if _equal_hops(self.instance, placement) else None

    def _segments(self, device: int, begin: int) -> list[_Segment]:
        """Return the possible segments of a device from position ``begin`` on, the longest first."""
        model, cluster = self.instance.model, self.instance.cluster
        part, host = cluster.devices[device].part, device == cluster.host
        if (part, host, begin) in self.segment_cache:
            return self.segment_cache[part, host, begin]
        segments = self.segment_cache[part, host, begin] = []
        fixed = self.order[self.tail :] if host else []
        for end in range(min(begin + 1, self.tail), self.tail + 1):
            nodes = [*self.order[begin:end], *fixed]
            if not host and any(node in model.pinned for node in nodes):
                break
            if end < self.tail and not self.allowed(begin, end):
                continue
            cut_bits = _cut_bits(
                self.instance, self.spans, _is_inside(begin, end, self.tail if fixed else None)
            )
            chosen = _fitting_choices(self.instance, nodes, part, self.period, len(cut_bits))
            if chosen is None:
                break
            if _cuts_fit(self.instance, cut_bits, part, self.period):
                segments.insert(0, _Segment(end, nodes, chosen))
        return segments


def _equal_hops(instance: Instance, placement: Placement) -> bool:
    """Return True if all paths to each join have equal hops, which a pass does not ensure at the host."""
    devices, edges = placement.devices, instance.model.edges
    return all(
        len({sum(devices[edges[e].source] != devices[edges[e].target] for e in path) for path in pair}) == 1
        for pair in divergent_paths(instance.model)
    )


def _boundary_check(spans: Sequence[tuple[int, int]], tail: int) -> Callable[[int, int], bool]:
    """Return a predicate: True if a cut may follow the cut at ``last``, since no edge crosses both."""

    def allowed(last: int, cut: int) -> bool:
        return not any(begin < last and cut <= end < tail for begin, end in spans)

    return allowed


def _is_inside(begin: int, end: int, tail: int | None) -> Callable[[int], bool]:
    """Return a predicate: True if a position in the order is on the segment's device.

    ``tail``: start of the host's last layers if the device has them, else None.
    """
    return lambda place: begin <= place < end or (tail is not None and place >= tail)


def _cut_bits(
    instance: Instance, spans: Sequence[tuple[int, int]], is_inside: Callable[[int], bool]
) -> list[int]:
    """Return the bits of each edge between the segment's device and others."""
    edges = [e for e in instance.model.edges if not e.label]
    return [e.bits for e, (a, b) in zip(edges, spans, strict=True) if is_inside(a) != is_inside(b)]


def _cuts_fit(instance: Instance, cut_bits: Sequence[int], part: Part, period: int) -> bool:
    """Return True if a device can have a connection for each of ``cut_bits`` within the period."""
    max_connections = part.connections if part.network else 0
    return len(cut_bits) <= max_connections and sum(cut_bits) * instance.per_bit(part.network) <= period


def _fitting_choices(
    instance: Instance, nodes: Sequence[int], part: Part, period: int, connections: int
) -> list[Choice] | None:
    """Return choices with which ``nodes`` fit one device; None for failure.

    The search is greedy. It starts from each node's option with the smallest share of the limits. While a limit
    is exceeded, it swaps the option that reduces the excess at the lowest price: increase of the shares per
    reduction of the excess.
    """
    limits = [
        limit - connections * cost
        for limit, cost in zip(limits_at(instance, part, period), connection_cost(part), strict=True)
    ]
    scale = [max(limit, 1) for limit in limits]
    options = [
        [(limited_costs(o.choice.cost, part), o.choice) for o in instance.options(n, part, period, period)]
        for n in nodes
    ]
    if not all(options):
        return None

    def share(costs: Sequence[int]) -> float:
        return sum(cost / limit for cost, limit in zip(costs, scale, strict=True))

    shares = [[share(costs) for costs, _ in node_options] for node_options in options]
    chosen = [row.index(min(row)) for row in shares]  # index of each node's option
    total = [
        sum(node_options[index][0][resource] for node_options, index in zip(options, chosen, strict=True))
        for resource in range(len(limits))
    ]

    def excess(costs: Sequence[int]) -> float:
        return sum(max(cost - limit, 0) / full for cost, limit, full in zip(costs, limits, scale, strict=True))

    while (current_excess := excess(total)) > 0:
        best = None
        for position, (node_options, index) in enumerate(zip(options, chosen, strict=True)):
            old_costs, _ = node_options[index]
            for new_index, (new_costs, _) in enumerate(node_options):
                new_total = [t - old + new for t, old, new in zip(total, old_costs, new_costs, strict=True)]
                gain = current_excess - excess(new_total)
                if gain > 1e-12:
                    price = max(share(new_total) - share(total), 1e-9) / gain
                    if best is None or price < best[0]:
                        best = price, position, new_index, new_total
        if best is None:
            return None
        _, position, new_index, total = best
        chosen[position] = new_index
    return [node_options[index][1] for node_options, index in zip(options, chosen, strict=True)]
