"""Inner loop of the annealing, compiled by numba, which is thirty times as fast as Python.

All state is in arrays. ``on`` and ``way`` are per node, ``load`` is per device and resource, ``net`` and
``connections`` are per device. ``apart`` is per join: the difference of hops between its two paths. Every
rejected step restores the state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

CONNECTION, HOP = 0.1, 0.2  # energy of an excess connection and an excess hop; a whole device's worth is 1
CURVE = 5.0  # energy of an excess share by its square, in addition to the share itself
MEAN_RUN, LONGEST_RUN = 4.0, 32  # layers that move together
COOLING = 100  # steps per temperature
REBUILDS, SHIFTS = 0.15, 0.75  # cumulative shares of steps: change a layer's build, shift a boundary

Ints = NDArray[np.int64]


class Fixed(NamedTuple):
    """Constants of a search. Indices: device d, part p, node n, way w, resource r; rows of ends and joins."""

    part: Ints  #: [d]: part
    limits: Ints  #: [d, r]: limit
    taken: Ints  #: [d, r]: cost of a connection
    network: Ints  #: [d]: most bits per frame
    most: Ints  #: [d]: most connections
    costs: Ints  #: [p, n, w, r]: cost
    ways: Ints  #: [p, n]: number of ways
    like: Ints  #: [p, other p, n, w]: most similar way on the other part; -1 for none
    movable: Ints  #: nodes that may move
    stays: NDArray[np.bool_]  #: [n]: node may not move
    ends: Ints  #: rows (other node, bits, edge); those of node n start at ``first_end[n]``
    first_end: Ints
    joins: Ints  #: rows (join, sign); those of edge e start at ``first_join[e]``
    first_join: Ints


class State(NamedTuple):
    """Variables of a search."""

    on: Ints
    way: Ints
    load: Ints
    net: Ints
    connections: Ints
    between: Ints  #: [d, d]: connections between two devices
    apart: Ints


@njit(cache=True)
def _carry(f, s, node, device, sign):
    costs = f.costs[f.part[device], node, s.way[node]]
    for r in range(costs.shape[0]):
        s.load[device, r] += sign * costs[r]


@njit(cache=True)
def _bend(f, s, edge, sign):
    """Cut an edge (sign 1) or join it (-1); return the increase of the joins' differences in hops."""
    more = 0
    for row in range(f.first_join[edge], f.first_join[edge + 1]):
        join = f.joins[row, 0]
        before = s.apart[join]
        s.apart[join] = before + sign * f.joins[row, 1]
        more += abs(s.apart[join]) - abs(before)
    return more


@njit(cache=True)
def _connect(f, s, a, b, sign):
    """Add or remove a connection between two devices; return the increase of excess connections in triangles.

    Connections among three devices need different priorities; the number of priorities therefore limits them.
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
    """Move a node to another device; return the increase of the energy of joins and triangles."""
    here, apart, crowded = s.on[node], 0, 0
    _carry(f, s, node, here, -1)
    s.on[node], s.way[node] = there, way
    _carry(f, s, node, there, 1)
    for row in range(f.first_end[node], f.first_end[node + 1]):
        end, bits, edge = s.on[f.ends[row, 0]], f.ends[row, 1], f.ends[row, 2]
        if end == there:  # the edge becomes internal
            s.net[here] -= bits
            s.net[there] -= bits
            crowded += _connect(f, s, here, there, -1)
            apart += _bend(f, s, edge, -1)
        elif end == here:  # the edge becomes cut
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
    """Return the energy of an excess share; a little on many devices is better than much on one."""
    return share + CURVE * share * share


@njit(cache=True)
def _over(f, s, device):
    """Return a device's energy."""
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
    """Return the energy of the whole placement."""
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
    """Initialise loads, cuts and joins from ``on`` and ``way``."""
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
    """Collect adjacent nodes on the same device, with their ways on the new one; return their number."""
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
    """Anneal from temperature ``hot`` to ``cold``; return whether energy 0 was reached, which ends it."""
    np.random.seed(seed)
    nodes, ways, before = np.empty((3, LONGEST_RUN), np.int64)
    now, devices, temperature = energy(f, s), f.part.shape[0], hot
    for step in range(steps):
        if now < 1e-9:
            now = energy(f, s)  # recomputed, without the steps' rounding errors
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
