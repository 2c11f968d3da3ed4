"""A first placement: every device takes the next layers, as many as it can at a period."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fanin.layers.ends import SoftCrossLoss
from fanin.planner.cluster import Part
from fanin.planner.search.choices import Choice, constrained
from fanin.planner.search.instance import Instance, Placement, paths_apart
from fanin.planner.search.problem import limits_at

GROWTH, GROWTHS = 1.4, 40  # from one period that is tried to the next, and how often: a million times the first
HALVINGS = 6  # then, between the last two: to half a per cent


def first_placement(instance: Instance, low: int) -> Placement | None:
    """A placement in one pass over the devices, at a short period not below ``low``; None where none is found.

    Cut so, every way between two layers crosses as many devices; but a way around a device has to be avoided.
    """
    best, short, long = None, low, low
    for _ in range(GROWTHS):
        best = _in_order(instance, long)
        if best is not None:
            break
        short, long = long, int(long * GROWTH) + 1
    if best is None or long == low:
        return best
    for _ in range(HALVINGS):
        middle = (short + long) // 2
        found = _in_order(instance, middle)
        if found is None:
            short = middle
        else:
            best, long = found, middle
    return best


def _order(instance: Instance) -> list[int]:
    """The nodes in topological order, labels as late as can be."""
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


def _in_order(instance: Instance, period: int) -> Placement | None:
    model, cluster = instance.model, instance.cluster
    order = _order(instance)
    at = {node: place for place, node in enumerate(order)}
    tail = len(order)
    while tail and order[tail - 1] in model.pinned:
        tail -= 1
    spans = [(at[e.source], at[e.target]) for e in model.edges if not e.label]
    allowed = _boundaries(spans, tail)
    ends = order[tail:]
    devices = [cluster.host, *(n for n in range(len(cluster.devices)) if n != cluster.host)]
    placed: dict[int, tuple[int, Choice]] = {}
    begin, last_cut = 0, -1
    for device in devices:
        part = cluster.devices[device].part
        fixed = ends if device == cluster.host else []
        best: tuple[int, list[Choice]] | None = None
        for end in range(min(begin + 1, tail), tail + 1):
            if end < tail and not allowed(last_cut, end):
                continue
            chosen = _fit(instance, [*order[begin:end], *fixed], part, period)
            if chosen is None:
                break
            if _cuts_fit(instance, spans, _here(begin, end, tail if fixed else None), part, period):
                best = end, chosen
        if best is None and device != cluster.host:
            continue
        if best is None:
            return None
        end, chosen = best
        if any(node in model.pinned and device != cluster.host for node in order[begin:end]):
            return None
        placed.update({n: (device, c) for n, c in zip([*order[begin:end], *fixed], chosen, strict=True)})
        begin, last_cut = end, end
        if begin == tail:
            break
    if begin < tail:
        return None
    found = Placement(*(tuple(placed[n][k] for n in range(len(order))) for k in (0, 1)))  # type: ignore[arg-type]
    return found if _equal_hops(instance, found) else None


def _equal_hops(instance: Instance, placement: Placement) -> bool:
    """Whether all ways to a join have as many; those to the last layers, back on the host's device, may not."""
    on, edges = placement.devices, instance.model.edges
    return all(
        len({sum(on[edges[e].source] != on[edges[e].target] for e in way) for way in pair}) == 1
        for pair in paths_apart(instance.model)
    )


def _boundaries(spans: Sequence[tuple[int, int]], tail: int) -> Callable[[int, int], bool]:
    """Whether a cut may follow one at ``last``: no edge may reach over both."""

    def allowed(last: int, cut: int) -> bool:
        return not any(begin < last and cut <= end < tail for begin, end in spans)

    return allowed


def _here(begin: int, end: int, tail: int | None) -> Callable[[int], bool]:
    """Whether a place in the order is on the device of that segment, which may have the tail, too."""
    return lambda place: begin <= place < end or (tail is not None and place >= tail)


def _cuts_fit(
    instance: Instance, spans: Sequence[tuple[int, int]], here: Callable[[int], bool], part: Part, period: int
) -> bool:
    edges = [e for e in instance.model.edges if not e.label]
    cut = [e.bits for e, (a, b) in zip(edges, spans, strict=True) if here(a) != here(b)]
    most = part.connections if part.network else 0
    return len(cut) <= most and sum(cut) * instance.per_bit(part.network) <= period


def _fit(instance: Instance, nodes: Sequence[int], part: Part, period: int) -> list[Choice] | None:
    """Choices for these nodes on one device; None where none are found. Greedy: cheap ones, then swaps."""
    limits = limits_at(instance, part, period)
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
