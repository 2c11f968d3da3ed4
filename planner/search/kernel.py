"""The annealing's inner loop, compiled by numba; in Python it would take thirty times as long.

All state is in arrays: ``on`` and ``way`` per node; ``load`` per device and resource, ``net`` and
``connections`` per device, ``apart`` per join (the hops of its one way less those of the other). Every step
restores what it does not keep.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

CONNECTION, HOP = 0.1, 0.2  # energy of one connection, and of one hop, too many; a whole device's worth is 1
CURVE = 5.0  # energy of a share too much, beside the share itself, by its square
MEAN_RUN, LONGEST_RUN = 4.0, 32  # layers that move at once
COOLING = 100  # steps of one temperature
REBUILDS, SHIFTS = 0.15, 0.75  # of the steps that build a layer anew, and, summed, that shift a boundary

Ints = NDArray[np.int64]


class Fixed(NamedTuple):
    """What a search does not change. Devices d, parts p, nodes n, ways w, resources r; rows of ends, joins."""

    part: Ints  #: of d
    limits: Ints  #: of d, r
    taken: Ints  #: of d, r: by a connection
    network: Ints  #: of d: bits a frame
    most: Ints  #: of d: connections
    costs: Ints  #: of p, n, w, r
    ways: Ints  #: of p, n: how many
    like: Ints  #: of p, other p, n, w: the way that is most like it on the other part, -1 where there is none
    movable: Ints  #: nodes
    stays: NDArray[np.bool_]  #: of n
    ends: Ints  #: rows of other node, bits, edge; those of node n from ``first_end[n]``
    first_end: Ints
    joins: Ints  #: rows of join, sign; those of edge e from ``first_join[e]``
    first_join: Ints


class State(NamedTuple):
    """What it changes."""

    on: Ints
    way: Ints
    load: Ints
    net: Ints
    connections: Ints
    between: Ints  #: of two devices
    apart: Ints


@njit(cache=True)
def _carry(f, s, node, device, sign):
    costs = f.costs[f.part[device], node, s.way[node]]
    for r in range(costs.shape[0]):
        s.load[device, r] += sign * costs[r]


@njit(cache=True)
def _bend(f, s, edge, sign):
    """Cut an edge or mend it; returns by how much more the joins are apart."""
    more = 0
    for row in range(f.first_join[edge], f.first_join[edge + 1]):
        join = f.joins[row, 0]
        before = s.apart[join]
        s.apart[join] = before + sign * f.joins[row, 1]
        more += abs(s.apart[join]) - abs(before)
    return more


@njit(cache=True)
def _connect(f, s, a, b, sign):
    """One connection more or less between two devices; returns by how many more a triangle has too many.

    Among three devices no two connections can have one priority: they have no more than there are priorities.
    """
    more = 0
    s.connections[a] += sign
    s.connections[b] += sign
    s.between[a, b] += sign
    s.between[b, a] += sign
    for c in range(f.part.shape[0]):
        if c != a and c != b:
            most = max(f.most[a], f.most[b], f.most[c])
            now = s.between[a, b] + s.between[b, c] + s.between[a, c] - most
            more += max(now, 0) - max(now - sign, 0)
    return more


@njit(cache=True)
def _move(f, s, node, there, way):
    """Put a node on another device; returns the energy of joins and triangles that this adds."""
    here, apart, crowded = s.on[node], 0, 0
    _carry(f, s, node, here, -1)
    s.on[node], s.way[node] = there, way
    _carry(f, s, node, there, 1)
    for row in range(f.first_end[node], f.first_end[node + 1]):
        end, bits, edge = s.on[f.ends[row, 0]], f.ends[row, 1], f.ends[row, 2]
        if end == there:  # mended
            s.net[here] -= bits
            s.net[there] -= bits
            crowded += _connect(f, s, here, there, -1)
            apart += _bend(f, s, edge, -1)
        elif end == here:  # cut
            s.net[here] += bits
            s.net[there] += bits
            crowded += _connect(f, s, here, there, 1)
            apart += _bend(f, s, edge, 1)
        else:
            s.net[here] -= bits
            s.net[there] += bits
            crowded += _connect(f, s, here, end, -1) + _connect(f, s, there, end, 1)
    return HOP * apart + CONNECTION * crowded


@njit(cache=True)
def _price(share):
    """Of a share too much: a little on many devices is nearer to a placement than much on one."""
    return share + CURVE * share * share


@njit(cache=True)
def _over(f, s, device):
    """A device's energy."""
    over = 0.0
    for r in range(f.limits.shape[1]):
        load = s.load[device, r] + s.connections[device] * f.taken[device, r]
        if load > f.limits[device, r]:
            over += _price((load - f.limits[device, r]) / max(f.limits[device, r], 1))
    if s.net[device] > f.network[device]:
        over += _price((s.net[device] - f.network[device]) / max(f.network[device], 1))
    return over + CONNECTION * max(s.connections[device] - f.most[device], 0)


@njit(cache=True)
def energy(f, s):
    """Of the whole placement."""
    total = 0.0
    for device in range(f.part.shape[0]):
        total += _over(f, s, device)
    for a in range(f.part.shape[0]):
        for b in range(a):
            for c in range(b):
                crowd = s.between[a, b] + s.between[b, c] + s.between[a, c]
                total += CONNECTION * max(crowd - max(f.most[a], f.most[b], f.most[c]), 0)
    return total + HOP * np.abs(s.apart).sum()


@njit(cache=True)
def begin(f, s):
    """Fill loads, cuts and joins from ``on`` and ``way``."""
    for node in range(s.on.shape[0]):
        _carry(f, s, node, s.on[node], 1)
        for row in range(f.first_end[node], f.first_end[node + 1]):
            other, bits, edge = f.ends[row]
            if other < node and s.on[other] != s.on[node]:
                s.net[s.on[node]] += bits
                s.net[s.on[other]] += bits
                _connect(f, s, s.on[node], s.on[other], 1)
                _bend(f, s, edge, 1)


@njit(cache=True)
def _rebuild(f, s, node, way):
    device = s.on[node]
    before = _over(f, s, device)
    _carry(f, s, node, device, -1)
    s.way[node] = way
    _carry(f, s, node, device, 1)
    return _over(f, s, device) - before


@njit(cache=True)
def _shift(f, s, nodes, count, there, ways):
    here = s.on[nodes[0]]
    before = _over(f, s, here) + _over(f, s, there)
    more = 0.0
    for k in range(count):
        more += _move(f, s, nodes[k], there, ways[k])
    return _over(f, s, here) + _over(f, s, there) - before + more


@njit(cache=True)
def _run(f, s, node, there, stride, nodes, ways, before):
    """Neighbours in the model's order that lie together, and how they would be built there; their number."""
    here, count = s.on[node], 0
    length = min(int(-MEAN_RUN * np.log(1.0 - np.random.random())) + 1, LONGEST_RUN)
    while count < length and 0 <= node < s.on.shape[0] and s.on[node] == here and not f.stays[node]:
        way = f.like[f.part[here], f.part[there], node, s.way[node]]
        if way < 0:
            break
        nodes[count], ways[count], before[count] = node, way, s.way[node]
        count += 1
        node += stride
    return count


@njit(cache=True)
def anneal(f, s, seed, steps, hot, cold):
    """Cool down from ``hot`` to ``cold``; whether energy 0 was met, at which it ends."""
    np.random.seed(seed)
    nodes, ways, before = np.empty((3, LONGEST_RUN), np.int64)
    now, devices, temperature = energy(f, s), f.part.shape[0], hot
    for step in range(steps):
        if now < 1e-9:
            now = energy(f, s)  # without the rounding of the steps
            if now == 0.0:
                return True
        if step % COOLING == 0:
            temperature = hot * (cold / hot) ** (step / steps)
        kind = np.random.random()
        node = f.movable[np.random.randint(f.movable.shape[0])]
        here = s.on[node]
        if kind < REBUILDS:
            if f.ways[f.part[here], node] < 2:
                continue
            old = s.way[node]
            change = _rebuild(f, s, node, np.random.randint(f.ways[f.part[here], node]))
            if change <= 0 or np.random.random() < np.exp(-change / temperature):
                now += change
            else:
                _rebuild(f, s, node, old)
            continue
        there, stride = np.random.randint(devices), 1 - 2 * np.random.randint(2)
        if kind < SHIFTS:
            other = f.ends[np.random.randint(f.first_end[node], f.first_end[node + 1]), 0]
            there, stride = s.on[other], -1 if other > node else 1
        if there == here:
            continue
        count = _run(f, s, node, there, stride, nodes, ways, before)
        if not count:
            continue
        change = _shift(f, s, nodes, count, there, ways)
        if change <= 0 or np.random.random() < np.exp(-change / temperature):
            now += change
        else:
            _shift(f, s, nodes, count, here, before)
    return energy(f, s) == 0.0
