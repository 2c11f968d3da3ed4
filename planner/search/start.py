"""First placement: each device in turn takes as many of the next layers as fit at a period."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fanin.cnn.layers.soft_cross_loss import SoftCrossLoss
from fanin.planner.cluster import Part
from fanin.planner.search.choices import Choice, connection_takes, constrained
from fanin.planner.search.instance import Instance, Placement, paths_apart
from fanin.planner.search.problem import limits_at

GROWTH, GROWTHS = 1.4, 40  # factor between tried periods, and their number: up to a million times the first
HALVINGS = 6  # bisections between the last two periods: to half a per cent


def first_placement(instance: Instance, low: int) -> Placement | None:
    """Return a placement from one pass over the devices, at a short period of at least ``low``; None for none.

    With consecutive segments, all paths between two layers cross the same number of devices, provided that no
    edge skips a device. If taking as many layers as fit succeeds at no period, devices may take fewer.
    """
    return _shortest(instance, low, back=False) or _shortest(instance, low, back=True)


def _shortest(instance: Instance, low: int, *, back: bool) -> Placement | None:
    best, short, long = None, low, low
    for _ in range(GROWTHS):
        best = _in_order(instance, long, back=back)
        if best is not None:
            break
        short, long = long, int(long * GROWTH) + 1
    if best is None or long == low:
        return best
    for _ in range(HALVINGS):
        middle = (short + long) // 2
        found = _in_order(instance, middle, back=back)
        if found is None:
            short = middle
        else:
            best, long = found, middle
    return best


def _order(instance: Instance) -> list[int]:
    """Return the nodes in topological order, labels as late as possible."""
    model = instance.model
    late: dict[int, int] = {}
    for edge in model.edges:
        if edge.label:
            late.setdefault(edge.source, edge.target)
    order: list[int] = []
    for node, there in enumerate(model.nodes):
        if node in late:
            continue
        if isinstance(there.layer, SoftCrossLoss):
            order += [label for label, target in late.items() if target == node]
        order.append(node)
    return order


def _in_order(instance: Instance, period: int, *, back: bool) -> Placement | None:
    """Run one pass. ``back``: a device takes fewer layers if later ones find no place otherwise."""
    return _Pass(instance, period, back).placement(0, 0)


@dataclass
class _Pass:
    """A pass over the devices, the host's first, each with a segment of the order."""

    instance: Instance
    period: int
    back: bool

    def __post_init__(self) -> None:
        model, cluster = self.instance.model, self.instance.cluster
        self.order = _order(self.instance)
        self.tail = len(self.order)
        while self.tail and self.order[self.tail - 1] in model.pinned:
            self.tail -= 1
        at = {node: place for place, node in enumerate(self.order)}
        self.spans = [(at[e.source], at[e.target]) for e in model.edges if not e.label]
        self.allowed = _boundaries(self.spans, self.tail)
        self.devices = [cluster.host, *(n for n in range(len(cluster.devices)) if n != cluster.host)]
        self.taken: list[tuple[int, list[int], list[Choice]]] = []  # device, its nodes, their choices
        self.dead: set[tuple[int, int]] = set()  # arguments of ``placement`` that have failed
        self.known: dict[tuple[Part, bool, int], list[tuple[int, list[int], list[Choice]]]] = {}

    def placement(self, number: int, begin: int) -> Placement | None:
        """Complete ``taken`` with devices from ``number`` on and layers from ``begin`` on; None for failure."""
        if number and begin == self.tail:
            return self._found()
        if number == len(self.devices) or (number, begin) in self.dead:
            return None
        device = self.devices[number]
        segments = self._segments(device, begin)
        for end, nodes, chosen in segments if self.back else segments[:1]:
            self.taken.append((device, nodes, chosen))
            found = self.placement(number + 1, end)
            if found is not None:
                return found
            self.taken.pop()
        found = self.placement(number + 1, begin) if number and (self.back or not segments) else None
        if found is None:
            self.dead.add((number, begin))
        return found

    def _found(self) -> Placement | None:
        built = {
            node: (device, choice)
            for device, nodes, chosen in self.taken
            for node, choice in zip(nodes, chosen, strict=True)
        }
        devices, choices = zip(*(built[node] for node in range(len(self.order))), strict=True)
        found = Placement(devices, choices)
        return found if _equal_hops(self.instance, found) else None

    def _segments(self, device: int, begin: int) -> list[tuple[int, list[int], list[Choice]]]:
        """Return possible segments of a device, longest first: end in the order, nodes, and their choices."""
        model, cluster = self.instance.model, self.instance.cluster
        part, host = cluster.devices[device].part, device == cluster.host
        if (part, host, begin) in self.known:
            return self.known[part, host, begin]
        found = self.known[part, host, begin] = []
        fixed = self.order[self.tail :] if host else []
        for end in range(min(begin + 1, self.tail), self.tail + 1):
            nodes = [*self.order[begin:end], *fixed]
            if not host and any(node in model.pinned for node in nodes):
                break
            if end < self.tail and not self.allowed(begin, end):
                continue
            cut = _cut(self.instance, self.spans, _here(begin, end, self.tail if fixed else None))
            chosen = _fit(self.instance, nodes, part, self.period, len(cut))
            if chosen is None:
                break
            if _cuts_fit(self.instance, cut, part, self.period):
                found.insert(0, (end, nodes, chosen))
        return found


def _equal_hops(instance: Instance, placement: Placement) -> bool:
    """Return whether all paths to each join have equal hops; paths back to the host's last layers may
    differ.
    """
    on, edges = placement.devices, instance.model.edges
    return all(
        len({sum(on[edges[e].source] != on[edges[e].target] for e in way) for way in pair}) == 1
        for pair in paths_apart(instance.model)
    )


def _boundaries(spans: Sequence[tuple[int, int]], tail: int) -> Callable[[int, int], bool]:
    """Return a check whether a cut may follow one at ``last``: no edge may cross both."""

    def allowed(last: int, cut: int) -> bool:
        return not any(begin < last and cut <= end < tail for begin, end in spans)

    return allowed


def _here(begin: int, end: int, tail: int | None) -> Callable[[int], bool]:
    """Return a check whether a place in the order is on the segment's device, which may also have the tail."""
    return lambda place: begin <= place < end or (tail is not None and place >= tail)


def _cut(instance: Instance, spans: Sequence[tuple[int, int]], here: Callable[[int], bool]) -> list[int]:
    """Return the bits of each edge to or from other devices."""
    edges = [e for e in instance.model.edges if not e.label]
    return [e.bits for e, (a, b) in zip(edges, spans, strict=True) if here(a) != here(b)]


def _cuts_fit(instance: Instance, cut: Sequence[int], part: Part, period: int) -> bool:
    most = part.connections if part.network else 0
    return len(cut) <= most and sum(cut) * instance.per_bit(part.network) <= period


def _fit(
    instance: Instance, nodes: Sequence[int], part: Part, period: int, connections: int
) -> list[Choice] | None:
    """Return choices for these nodes on one device by a greedy search with swaps; None if none are found."""
    each = connection_takes(part)
    limits = [
        limit - connections * taken
        for limit, taken in zip(limits_at(instance, part, period), each, strict=True)
    ]
    scale = [max(limit, 1) for limit in limits]
    ways = [
        [(constrained(o.choice.cost, part), o.choice) for o in instance.options(n, part, period, period)]
        for n in nodes
    ]
    if not all(ways):
        return None

    def share(costs: Sequence[int]) -> float:
        return sum(cost / limit for cost, limit in zip(costs, scale, strict=True))

    shares = [[share(costs) for costs, _ in w] for w in ways]
    taken = [row.index(min(row)) for row in shares]
    total = [sum(w[i][0][k] for w, i in zip(ways, taken, strict=True)) for k in range(len(limits))]

    def excess(costs: Sequence[int]) -> float:
        return sum(max(cost - limit, 0) / full for cost, limit, full in zip(costs, limits, scale, strict=True))

    while (over := excess(total)) > 0:
        best = None
        for place, (w, i) in enumerate(zip(ways, taken, strict=True)):
            for j in range(len(w)):
                after = [t - a + b for t, a, b in zip(total, w[i][0], w[j][0], strict=True)]
                gain = over - excess(after)
                if gain > 1e-12:
                    price = max(share(after) - share(total), 1e-9) / gain
                    if best is None or price < best[0]:
                        best = price, place, j, after
        if best is None:
            return None
        _, place, j, total = best
        taken[place] = j
    return [w[i][1] for w, i in zip(ways, taken, strict=True)]
