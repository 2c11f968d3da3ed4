"""Inner loop of the annealing, compiled by numba, thirty times as fast as Python.

All state is in the arrays of ``State``. A rejected step restores the state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

CONNECTION, HOP = 0.1, 0.2  # energy of an excess connection, and of an excess hop
CURVE = 5.0  # energy of an excess share: the share, plus CURVE times its square
MEAN_RUN, LONGEST_RUN = 4.0, 32  # mean and maximum number of layers that move together
COOLING = 100  # steps per temperature
REBUILDS, SHIFTS = 0.15, 0.75  # steps below REBUILDS change a build, those below SHIFTS shift a boundary

Ints = NDArray[np.int64]


class Fixed(NamedTuple):
    """Constants of an annealing. Indices: device d, part p, node n, option o, resource r."""

    part: Ints  #: [d]: part of the device
    limits: Ints  #: [d, r]: limit
    connection_cost: Ints  #: [d, r]: cost of a connection
    network: Ints  #: [d]: maximum bits per frame
    max_connections: Ints  #: [d]: maximum number of connections
    costs: Ints  #: [p, n, o, r]: cost
    option_count: Ints  #: [p, n]: number of options
    similar_option: Ints  #: [p, other p, n, o]: most similar option on the other part; −1 for none
    movable: Ints  #: nodes that may move
    is_pinned: NDArray[np.bool_]  #: [n]: true if the node may not move
    ends: Ints  #: rows (other node, bits, edge); those of node n start at ``first_end[n]``
    first_end: Ints  #: [n]
    joins: Ints  #: rows (join, sign); those of edge e start at ``first_join[e]``
    first_join: Ints  #: [e]


class State(NamedTuple):
    """Variables of an annealing, with the indices of ``Fixed``."""

    device: Ints  #: [n]: device of the node
    option: Ints  #: [n]: option of the node
    load: Ints  #: [d, r]: use of the resource by layers
    network: Ints  #: [d]: bits per frame
    connections: Ints  #: [d]: number of connections
    between: Ints  #: [d, d]: connections between two devices
    hop_difference: Ints  #: [join]: hops of one path to the join, minus hops of the other


@njit(cache=True)
def _add_load(f, s, node, device, sign):
    costs = f.costs[f.part[device], node, s.option[node]]
    for r in range(costs.shape[0]):
        s.load[device, r] += sign * costs[r]


@njit(cache=True)
def _set_cut(f, s, edge, sign):
    """Cut an edge (``sign`` 1) or make it internal (−1). Return the increase of the joins' hop differences."""
    increase = 0
    for row in range(f.first_join[edge], f.first_join[edge + 1]):
        join = f.joins[row, 0]
        difference = s.hop_difference[join]
        s.hop_difference[join] = difference + sign * f.joins[row, 1]
        increase += abs(s.hop_difference[join]) - abs(difference)
    return increase


@njit(cache=True)
def _connect(f, s, a, b, sign):
    """Add (``sign`` 1) or remove (−1) a connection between two devices.

    Return the increase of excess connections in triangles. Connections among three devices need different
    priorities, whose number limits them.
    """
    increase = 0
    s.connections[a] += sign
    s.connections[b] += sign
    s.between[a, b] += sign
    s.between[b, a] += sign
    for c in range(f.part.shape[0]):
        if c != a and c != b:
            maximum = max(f.max_connections[a], f.max_connections[b], f.max_connections[c])
            excess = s.between[a, b] + s.between[b, c] + s.between[a, c] - maximum
            increase += max(excess, 0) - max(excess - sign, 0)
    return increase


@njit(cache=True)
def _move(f, s, node, target, option):
    """Move a node to device ``target``. Return the increase of the energy of joins and triangles."""
    source, hop_increase, triangle_increase = s.device[node], 0, 0
    _add_load(f, s, node, source, -1)
    s.device[node], s.option[node] = target, option
    _add_load(f, s, node, target, 1)
    for row in range(f.first_end[node], f.first_end[node + 1]):
        end, bits, edge = s.device[f.ends[row, 0]], f.ends[row, 1], f.ends[row, 2]
        if end == target:  # the edge becomes internal
            s.network[source] -= bits
            s.network[target] -= bits
            triangle_increase += _connect(f, s, source, target, -1)
            hop_increase += _set_cut(f, s, edge, -1)
        elif end == source:  # the edge becomes cut
            s.network[source] += bits
            s.network[target] += bits
            triangle_increase += _connect(f, s, source, target, 1)
            hop_increase += _set_cut(f, s, edge, 1)
        else:
            s.network[source] -= bits
            s.network[target] += bits
            triangle_increase += _connect(f, s, source, end, -1) + _connect(f, s, target, end, 1)
    return HOP * hop_increase + CONNECTION * triangle_increase


@njit(cache=True)
def _excess_energy(share):
    """Return the energy of an excess share. It is convex: small excesses on many devices are better."""
    return share + CURVE * share * share


@njit(cache=True)
def _device_energy(f, s, device):
    """Return the energy of a device's excess use."""
    total = 0.0
    for r in range(f.limits.shape[1]):
        load = s.load[device, r] + s.connections[device] * f.connection_cost[device, r]
        if load > f.limits[device, r]:
            total += _excess_energy((load - f.limits[device, r]) / max(f.limits[device, r], 1))
    if s.network[device] > f.network[device]:
        total += _excess_energy((s.network[device] - f.network[device]) / max(f.network[device], 1))
    return total + CONNECTION * max(s.connections[device] - f.max_connections[device], 0)


@njit(cache=True)
def energy(f, s):
    """Return the energy of the whole placement."""
    total = 0.0
    for device in range(f.part.shape[0]):
        total += _device_energy(f, s, device)
    for a in range(f.part.shape[0]):
        for b in range(a):
            for c in range(b):
                triangle = s.between[a, b] + s.between[b, c] + s.between[a, c]
                total += CONNECTION * max(
                    triangle - max(f.max_connections[a], f.max_connections[b], f.max_connections[c]), 0
                )
    return total + HOP * np.abs(s.hop_difference).sum()


@njit(cache=True)
def begin(f, s):
    """Initialise the other arrays of ``s`` from ``s.device`` and ``s.option``."""
    for node in range(s.device.shape[0]):
        _add_load(f, s, node, s.device[node], 1)
        for row in range(f.first_end[node], f.first_end[node + 1]):
            neighbour, bits, edge = f.ends[row]
            if neighbour < node and s.device[neighbour] != s.device[node]:
                s.network[s.device[node]] += bits
                s.network[s.device[neighbour]] += bits
                _connect(f, s, s.device[node], s.device[neighbour], 1)
                _set_cut(f, s, edge, 1)


@njit(cache=True)
def _rebuild(f, s, node, option):
    device = s.device[node]
    energy_before = _device_energy(f, s, device)
    _add_load(f, s, node, device, -1)
    s.option[node] = option
    _add_load(f, s, node, device, 1)
    return _device_energy(f, s, device) - energy_before


@njit(cache=True)
def _shift(f, s, nodes, count, target, options):
    source = s.device[nodes[0]]
    energy_before = _device_energy(f, s, source) + _device_energy(f, s, target)
    increase = 0.0
    for k in range(count):
        increase += _move(f, s, nodes[k], target, options[k])
    return _device_energy(f, s, source) + _device_energy(f, s, target) - energy_before + increase


@njit(cache=True)
def _collect_run(f, s, node, target, stride, nodes, options, old_options):
    """Collect a run of adjacent nodes of a device, and their options on device ``target``. Return its length.

    ``nodes``, ``options``, ``old_options``: arrays that are filled.
    """
    source, count = s.device[node], 0
    length = min(int(-MEAN_RUN * np.log(1.0 - np.random.random())) + 1, LONGEST_RUN)
    while (
        count < length and 0 <= node < s.device.shape[0] and s.device[node] == source and not f.is_pinned[node]
    ):
        option = f.similar_option[f.part[source], f.part[target], node, s.option[node]]
        if option < 0:
            break
        nodes[count], options[count], old_options[count] = node, option, s.option[node]
        count += 1
        node += stride
    return count


@njit(cache=True)
def anneal(f, s, seed, steps, hot, cold):
    """Anneal from temperature ``hot`` to ``cold``. Return True as soon as energy 0 is reached, else False."""
    np.random.seed(seed)
    nodes, options, old_options = np.empty((3, LONGEST_RUN), np.int64)
    current, devices, temperature = energy(f, s), f.part.shape[0], hot
    for step in range(steps):
        if current < 1e-9:
            current = energy(f, s)  # recomputed, without the steps' rounding errors
            if current == 0.0:
                return True
        if step % COOLING == 0:
            temperature = hot * (cold / hot) ** (step / steps)
        kind = np.random.random()
        node = f.movable[np.random.randint(f.movable.shape[0])]
        source = s.device[node]
        if kind < REBUILDS:
            if f.option_count[f.part[source], node] < 2:
                continue
            old_option = s.option[node]
            change = _rebuild(f, s, node, np.random.randint(f.option_count[f.part[source], node]))
            if change <= 0 or np.random.random() < np.exp(-change / temperature):
                current += change
            else:
                _rebuild(f, s, node, old_option)
            continue
        target, stride = np.random.randint(devices), 1 - 2 * np.random.randint(2)
        if kind < SHIFTS:
            neighbour = f.ends[np.random.randint(f.first_end[node], f.first_end[node + 1]), 0]
            target, stride = s.device[neighbour], -1 if neighbour > node else 1
        if target == source:
            continue
        count = _collect_run(f, s, node, target, stride, nodes, options, old_options)
        if not count:
            continue
        change = _shift(f, s, nodes, count, target, options)
        if change <= 0 or np.random.random() < np.exp(-change / temperature):
            current += change
        else:
            _shift(f, s, nodes, count, source, old_options)
    return energy(f, s) == 0.0
