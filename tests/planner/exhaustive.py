"""The best placement by trying all of them, and random models and clusters that are small enough for that.

It shares nothing with the solver: of the planner only its descriptions of models and clusters, of the layers
their costs, for every parallelism. Periods are exact.
"""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product

from fanin.base.errors import InputError
from fanin.cnn.layers.family import family
from fanin.cnn.layers.logic import device_luts
from fanin.planner.cluster import Cluster, Device, Part, load_cluster
from fanin.planner.model import dsl

RULES = ("connections", "dram", "dsp", "hops", "host", "luts", "network", "ram")
NEVER = float("inf")


class Exhaustive:
    """All placements of a model on a cluster that keep ``rules``."""

    def __init__(self, model, cluster, rules=RULES):
        self.model, self.cluster, self.rules = model, cluster, frozenset(rules)
        self.devices = cluster.devices
        self.edges = [
            (source, target, _wire_bits(model.nodes[source].layer.output), _is_label(node, port))
            for target, node in enumerate(model.nodes)
            for port, source in enumerate(node.sources)
        ]
        self._rows, self._least = {}, {}

    def best(self):
        """The least period, in seconds; None where there is no placement."""
        best = None
        for on in self.placements():
            period = self.period(on, best)
            if period is not None and (best is None or period < best):
                best = period
        return best

    def optimal(self):
        """Per node its device, for all placements of the least period."""
        best = self.best()
        return [on for on in self.placements() if self.period(on, best) == best]

    def placements(self):
        """Those that keep the rules of the host, of hops and of connections."""
        host, nodes = self.cluster.host, range(len(self.model.nodes))
        pinned = pinned_nodes(self.model) if "host" in self.rules else ()
        for on in product(*([host] if n in pinned else range(len(self.devices)) for n in nodes)):
            if "hops" in self.rules and not has_hops(self.edges, on):
                continue
            if "connections" in self.rules and not self._connected(on):
                continue
            yield on

    def cut_bits(self, on):
        """Of all edges between devices."""
        return sum(bits for source, target, bits, _ in self.edges if on[source] != on[target])

    def period(self, on, enough=None):
        """The least period of a placement; None where none is possible, or none up to ``enough``."""
        periods = [Fraction(0)]
        for number, device in enumerate(self.devices):
            bits = sum(b for s, t, b, _ in self.edges if (on[s] == number) != (on[t] == number))
            if bits and "network" in self.rules:
                if not device.part.network:
                    return None
                periods.append(Fraction(bits, device.part.network))
        if enough is not None and max(periods) > enough:
            return None
        for number, device in enumerate(self.devices):
            here = frozenset(node for node, d in enumerate(on) if d == number)
            cut = sum((on[s] == number) != (on[t] == number) for s, t, _, _ in self.edges)
            periods.append(self.least(here, device.part, cut))
            if periods[-1] == NEVER or (enough is not None and periods[-1] > enough):
                return None
        return max(periods)

    def _connected(self, on):
        ends = [(on[source], on[target]) for source, target, _, _ in self.edges if on[source] != on[target]]
        limits = [device.part.connections for device in self.devices]
        touching = [sum(device in pair for pair in ends) for device in range(len(limits))]
        return all(a <= b for a, b in zip(touching, limits, strict=True)) and colours(ends, limits) is not None

    def least(self, nodes, part, connections=0):
        """The least period of one device with these nodes; NEVER where they do not fit."""
        if not nodes:
            return Fraction(0)
        if part.luts is not None:
            part = replace(part, luts=part.luts - device_luts(part.family, connections))
        if (nodes, part) not in self._least:
            self._least[nodes, part] = self._find_least(nodes, part)
        return self._least[nodes, part]

    def _find_least(self, nodes, part):
        """More cycles never need more DRAM, so that the least of the two's maximum lies where they meet."""
        rows = [self.rows(node, part) for node in sorted(nodes)]
        if not all(rows):
            return NEVER
        slowest = max(min(row[0] for row in ways) for ways in rows)
        cycles = sorted({row[0] for ways in rows for row in ways if row[0] >= slowest})

        def dram(index):
            return self._dram_seconds(rows, cycles[index], part)

        low, high = 0, len(cycles)  # at ``high`` and beyond, cycles are what counts
        while low < high:
            middle = (low + high) // 2
            if dram(middle) <= Fraction(cycles[middle], part.clock):
                high = middle
            else:
                low = middle + 1
        found = [Fraction(cycles[low], part.clock)] if low < len(cycles) else []
        return min(found + ([dram(low - 1)] if low else []))

    def _dram_seconds(self, rows, cycles, part):
        """Least time at the DRAM in which all these layers, each of so many cycles at most, fit the part."""
        limits = [NEVER if "dsp" not in self.rules else part.dsp]
        limits += [NEVER if "luts" not in self.rules else part.luts] if part.luts is not None else []
        ram = [] if part.ram_bits is None else [part.ram_bits]
        ram += part.ram_blocks or []
        limits += [NEVER if "ram" not in self.rules else there for there in ram]
        limits += 2 * [0 if "dram" in self.rules and not part.dram else NEVER]
        ways = [pareto({row[1:] for row in layer if row[0] <= cycles}) for layer in rows]
        spare = [0] * len(limits)  # what the layers that are still to come need at least
        for layer in ways:
            spare = [a + min(row[k] for row in layer) for k, a in enumerate(spare)]
        sums = [(0,) * len(limits)]
        for layer in ways:
            spare = [a - min(row[k] for row in layer) for k, a in enumerate(spare)]
            after = {tuple(map(sum, zip(a, b, strict=True))) for a in sums for b in layer}
            sums = pareto(
                row for row in after if all(a + b <= c for a, b, c in zip(row, spare, limits, strict=True))
            )
        if "dram" not in self.rules or not part.dram:
            return Fraction(0) if sums else NEVER
        return min((Fraction(max(row[-2:]), part.dram) for row in sums), default=NEVER)

    def rows(self, node, part):
        """Cycles, DSPs, LUTs, RAM, DRAM reads and writes of each way to build a layer that no other beats."""
        layer, links = self.model.nodes[node].layer, self.model.contexts[node]
        if (layer, links, part) not in self._rows:
            found = set()
            for parallelism, storage in layer.builds():
                cost = links.cost(layer, parallelism, storage, part.family)
                ram = () if part.ram_bits is None else (cost.ram_bits,)
                ram += () if part.ram_blocks is None else cost.ram_blocks
                luts = () if part.luts is None else (cost.luts,)
                found.add((cost.cycles, cost.dsp, *luts, *ram, cost.dram_read, cost.dram_write))
            self._rows[layer, links, part] = pareto(found)
        return self._rows[layer, links, part]


def pareto(rows):
    """The rows that no other one undercuts."""
    kept = []
    for row in sorted(rows):
        if not any(all(a <= b for a, b in zip(other, row, strict=True)) for other in kept):
            kept.append(row)
    return kept


def _wire_bits(shape):
    """Row by row, in frames of up to 22 beats of 16 words, behind a beat of headers and 24 bytes around."""
    beats = -(-shape.w * shape.c // 16)
    return 8 * shape.h * (64 * beats + (64 + 24) * -(-beats // 22))


def _is_label(node, port):
    return node.layer.kind == "soft_cross_loss" and port == 1


def pinned_nodes(model):
    """Inputs and what they feed, losses and outputs."""
    inputs = {n for n, node in enumerate(model.nodes) if node.layer.kind == "input"}
    return {
        n
        for n, node in enumerate(model.nodes)
        if node.layer.kind in ("input", "soft_cross_loss", "output") or inputs & set(node.sources)
    }


def has_hops(edges, on):
    """Whether every node has one number of hops from the inputs. ``edges``: source, target, bits, label."""
    hops = {}
    for source, target, _, label in edges:  # in the order of their targets
        there = hops.get(source, 0) + (on[source] != on[target])
        if not label and hops.setdefault(target, there) != there:
            return False
    return True


def colours(ends, limits):
    """A priority per connection, below both ends' limits, none twice at a device; None where there are none."""
    chosen = []

    def go():
        if len(chosen) == len(ends):
            return True
        pair = set(ends[len(chosen)])
        taken = {p for p, other in zip(chosen, ends, strict=False) if pair & set(other)}
        for priority in range(min(limits[device] for device in pair)):
            if priority not in taken:
                chosen.append(priority)
                if go():
                    return True
                chosen.pop()
        return False

    return list(chosen) if go() else None


def smallest_conflicts(model, cluster):
    """All sets of rules that no placement keeps, of which there are none with fewer rules."""
    for count in range(1, len(RULES) + 1):
        found = [
            rules for rules in combinations(RULES, count) if Exhaustive(model, cluster, rules).best() is None
        ]
        if found:
            return found
    return []


def random_case(seed, layers=8):
    """A model of at most so many layers (inputs, loss and outputs apart), and a cluster tight for it."""
    order = random.Random(seed)
    model = random_model(order, layers)
    return model, random_cluster(order, model)


def random_model(order, layers=8):
    """A directed acyclic graph of small layers, all connected."""
    while True:
        try:
            return _random_model(order, layers)
        except InputError:  # in two parts
            continue


def _random_model(order, layers):
    count = order.randint(min(3, layers), layers)
    with dsl.new_model() as builder:
        size, channels = order.choice((1, 2, 4, 6)), order.choice((1, 2, 3, 4))
        made = [dsl.add_input("image", [size, size, channels])]
        if order.random() < 0.15:
            made.append(dsl.add_input("mask", [size, size, channels]))
        loose = list(made)  # what no layer uses yet
        while count:
            count -= 1
            sources = loose if order.random() < 0.6 else made
            source = sources[-1] if order.random() < 0.5 else order.choice(sources)
            alike = [other for other in made if other.shape == source.shape and other is not source]
            preferred = [other for other in alike if other in loose] or alike
            if preferred and order.random() < 0.45:
                other = order.choice(preferred)
                result, used = dsl.add(source, other), [source, other]
            else:
                result, used = _random_layer(order, source), [source]
            loose = [tensor for tensor in loose if tensor not in used] + [result]
            made.append(result)
            if count and len(loose) > 3:
                break
        if order.random() < 0.25 and loose[-1].shape.words <= 16:
            last = loose.pop()
            logits = last if last.shape.h == last.shape.w == 1 else dsl.dense(order.choice((2, 3, 4)), last)
            loose.append(dsl.soft_cross_loss(logits, dsl.add_input("labels", [logits.shape.c])))
        for number, tensor in enumerate(loose):
            dsl.add_output(f"output{number}", tensor)
        return builder.finish("random", "random.py")


def _random_layer(order, source):
    kind = order.choice(("conv",) * 5 + ("dwconv", "bias", "relu", "relu6", "norm", "pool", "dense", "im2col"))
    side = min(source.shape.h, source.shape.w)
    if kind == "conv":
        kernel, same = order.choice((1, 3)), order.random() < 0.6
        stride = 1 if same else order.choice((1, 2))
        return dsl.conv(source.shape.c if same else order.choice((2, 3, 4, 8)), kernel, stride, source)
    if kind == "dwconv":
        return dsl.dwconv(order.choice((1, 3)), 1, source)
    if kind == "pool" and side > 1:
        return order.choice((dsl.global_avg_pool, lambda s: dsl.avg_pool(2, 1 if side == 2 else 2, s)))(source)
    if kind == "dense" and source.shape.words <= 64:
        return dsl.dense(order.choice((2, 3, 4)), source)
    if kind == "im2col" and source.shape.words <= 64:
        return dsl.im2col(min(side, 2), 1, source)
    named = {"bias": dsl.bias, "relu": dsl.relu, "relu6": dsl.relu6, "norm": dsl.online_norm}
    return named.get(kind, dsl.bias)(source)


def random_cluster(order, model):
    """Up to three devices, of which some have too little of something, some of nothing."""
    count = order.choice((1, 2, 2, 3, 3, 3, 3))
    tight = [_random_part(order, model, count)]
    if order.random() < 0.4:
        tight.append(_random_part(order, model, count))
    host = order.randrange(count)
    parts = [tight[0], *(order.choice(tight) for _ in range(count - 1))]
    return Cluster("random", tuple(Device(f"fpga{n}", part) for n, part in enumerate(parts)), host)


def _random_part(order, model, count):
    found = family(order.choice(("arria10", "ultrascale", "ecp5")))
    costs = [
        [links.cost(node.layer, p, s, found) for p in node.layer.parallelisms() for s in node.layer.storages]
        for node, links in zip(model.nodes, model.contexts, strict=True)
    ]

    everything, pinned = range(len(costs)), pinned_nodes(model)

    def least(of, nodes):
        return sum(min(of(cost) for cost in costs[node]) for node in nodes)

    def some(of, order=order):
        """Between too little and plenty, for one device."""
        needed = max(least(of, everything) / count, least(of, pinned), *(least(of, [n]) for n in everything))
        return int(needed * order.choice((0.95, 1.05, 1.1, 1.2, 1.4, 1.7, 2, 3, 5, 20))) + 1

    clock = order.choice((50, 100, 125, 200)) * 10**6
    slow = (
        max(min(c.cycles for c in ways) for ways in costs),
        max(max(c.cycles for c in ways) for ways in costs),
    )
    period = (slow[0] * slow[1]) ** 0.5 / clock
    saved = least(lambda cost: cost.dram_write, everything)
    sent = 32 * sum(node.layer.output.words for node in model.nodes) / len(model.nodes)
    bits = some(lambda cost: cost.ram_bits)
    blocks = tuple(some(lambda cost, k=k: cost.ram_blocks[k]) for k in range(len(found.ram)))
    counted = order.random()
    return Part(
        family=found,
        dsp=some(lambda cost: cost.dsp),
        luts=None
        if found.name == "arria10"
        else device_luts(found, 2) + some(lambda cost: cost.luts, random.Random(bits)),
        ram_bits=bits if counted < 0.7 else None,
        ram_blocks=blocks if counted > 0.5 else None,
        dram_bytes=None,
        dram=0 if order.random() < 0.08 else _rate(order, saved / count / period),
        network=0 if order.random() < 0.05 else _rate(order, sent / period),
        clock=clock,
        connections=order.choice((1, 2, 2, 3, 3, 4, 4, 8)),
    )


def _rate(order, usual):
    """A round number around what is usual."""
    rate = max(usual * order.choice((0.1, 0.3, 1, 1, 3, 10)) * order.uniform(0.8, 1.25), 1e6)
    unit = 10 ** (len(str(int(rate))) - 1)
    return round(rate / unit) * unit


def two_ways(*, connections, dsp=14):
    """Two convolutions side by side that gain by a device each; three devices, 4 connections at the host's."""
    with dsl.new_model() as builder:
        source = dsl.relu(dsl.add_input("in", [4, 4, 4]))
        for number in range(2):
            dsl.add_output(f"out{number}", dsl.conv(4, 3, 1, source))
        model = builder.finish("ways", "ways.py")
    part = load_cluster("arria10x1").devices[0].part
    parts = [replace(part, dsp=dsp, connections=4), *2 * [replace(part, dsp=60, connections=connections)]]
    return model, Cluster("three", tuple(Device(f"fpga{n}", p) for n, p in enumerate(parts)))
