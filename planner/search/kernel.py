"""Inner loop of the annealing, compiled by numba, thirty times as fast as Python.

The *energy* of a placement is its excess over all limits; a placement of energy 0 keeps all rules. A step is
random: it gives a node another option, moves a run of adjacent nodes to the device of a neighbouring node (the
boundary between two devices shifts), or moves the run to any device. A step that increases the energy is
accepted with the probability exp(−increase / temperature), else it is undone. The temperature falls.

All state is in the arrays of ``State``. A function that changes them returns the increase of the energy.
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
# kind of a step by a random number from 0 to 1: below REBUILDS another option, below SHIFTS a shifted boundary,
# else a move to any device
REBUILDS, SHIFTS = 0.15, 0.75

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
    ends: Ints  #: rows (other node, bits, edge), a row for each edge of node n, then of node n + 1
    first_end: Ints  #: [n]: first row of node n in ``ends``
    #: rows (join, sign), a row for each path to a join that contains edge e; sign: 1 for one path of the join,
    #: −1 for the other
    joins: Ints
    first_join: Ints  #: [e]: first row of edge e in ``joins``


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
def _add_load(fixed, state, node, device, sign):
    """Add (``sign`` 1) or remove (−1) the costs of a node to or from a device."""
    costs = fixed.costs[fixed.part[device], node, state.option[node]]
    for r in range(costs.shape[0]):
        state.load[device, r] += sign * costs[r]


@njit(cache=True)
def _set_cut(fixed, state, edge, sign):
    """Cut an edge (``sign`` 1) or make it internal (−1). Return the increase of the joins' hop differences."""
    increase = 0
    for row in range(fixed.first_join[edge], fixed.first_join[edge + 1]):
        join = fixed.joins[row, 0]
        difference = state.hop_difference[join]
        state.hop_difference[join] = difference + sign * fixed.joins[row, 1]
        increase += abs(state.hop_difference[join]) - abs(difference)
    return increase


@njit(cache=True)
def _connect(fixed, state, a, b, sign):
    """Add (``sign`` 1) or remove (−1) a connection between two devices.

    Return the increase of excess connections in triangles. Connections among three devices need different
    priorities, whose number limits them.
    """
    increase = 0
    state.connections[a] += sign
    state.connections[b] += sign
    state.between[a, b] += sign
    state.between[b, a] += sign
    for c in range(fixed.part.shape[0]):
        if c != a and c != b:
            maximum = max(fixed.max_connections[a], fixed.max_connections[b], fixed.max_connections[c])
            excess = state.between[a, b] + state.between[b, c] + state.between[a, c] - maximum
            increase += max(excess, 0) - max(excess - sign, 0)
    return increase


@njit(cache=True)
def _move(fixed, state, node, target, option):
    """Move a node to device ``target``. Return the increase of the energy of joins and triangles."""
    source, hop_increase, triangle_increase = state.device[node], 0, 0
    _add_load(fixed, state, node, source, -1)
    state.device[node], state.option[node] = target, option
    _add_load(fixed, state, node, target, 1)
    for row in range(fixed.first_end[node], fixed.first_end[node + 1]):
        end, bits, edge = state.device[fixed.ends[row, 0]], fixed.ends[row, 1], fixed.ends[row, 2]
        if end == target:  # the edge becomes internal
            state.network[source] -= bits
            state.network[target] -= bits
            triangle_increase += _connect(fixed, state, source, target, -1)
            hop_increase += _set_cut(fixed, state, edge, -1)
        elif end == source:  # the edge becomes cut
            state.network[source] += bits
            state.network[target] += bits
            triangle_increase += _connect(fixed, state, source, target, 1)
            hop_increase += _set_cut(fixed, state, edge, 1)
        else:
            state.network[source] -= bits
            state.network[target] += bits
            triangle_increase += _connect(fixed, state, source, end, -1)
            triangle_increase += _connect(fixed, state, target, end, 1)
    return HOP * hop_increase + CONNECTION * triangle_increase


@njit(cache=True)
def _excess_energy(share):
    """Return the energy of an excess share, a convex function: small excesses on many devices are better."""
    return share + CURVE * share * share


@njit(cache=True)
def _device_energy(fixed, state, device):
    """Return the energy of a device's excess use."""
    total = 0.0
    for r in range(fixed.limits.shape[1]):
        load = state.load[device, r] + state.connections[device] * fixed.connection_cost[device, r]
        if load > fixed.limits[device, r]:
            total += _excess_energy((load - fixed.limits[device, r]) / max(fixed.limits[device, r], 1))
    if state.network[device] > fixed.network[device]:
        total += _excess_energy((state.network[device] - fixed.network[device]) / max(fixed.network[device], 1))
    return total + CONNECTION * max(state.connections[device] - fixed.max_connections[device], 0)


@njit(cache=True)
def energy(fixed, state):
    """Return the energy of the whole placement."""
    total = 0.0
    for device in range(fixed.part.shape[0]):
        total += _device_energy(fixed, state, device)
    for a in range(fixed.part.shape[0]):
        for b in range(a):
            for c in range(b):
                triangle = state.between[a, b] + state.between[b, c] + state.between[a, c]
                total += CONNECTION * max(
                    triangle
                    - max(fixed.max_connections[a], fixed.max_connections[b], fixed.max_connections[c]),
                    0,
                )
    return total + HOP * np.abs(state.hop_difference).sum()


@njit(cache=True)
def begin(fixed, state):
    """Initialise the other arrays of ``state`` from ``state.device`` and ``state.option``."""
    for node in range(state.device.shape[0]):
        _add_load(fixed, state, node, state.device[node], 1)
        for row in range(fixed.first_end[node], fixed.first_end[node + 1]):
            neighbour, bits, edge = fixed.ends[row]
            if neighbour < node and state.device[neighbour] != state.device[node]:
                state.network[state.device[node]] += bits
                state.network[state.device[neighbour]] += bits
                _connect(fixed, state, state.device[node], state.device[neighbour], 1)
                _set_cut(fixed, state, edge, 1)


@njit(cache=True)
def _rebuild(fixed, state, node, option):
    """Give a node another option on its device. Return the increase of the energy."""
    device = state.device[node]
    energy_before = _device_energy(fixed, state, device)
    _add_load(fixed, state, node, device, -1)
    state.option[node] = option
    _add_load(fixed, state, node, device, 1)
    return _device_energy(fixed, state, device) - energy_before


@njit(cache=True)
def _shift(fixed, state, nodes, count, target, options):
    """Move the first ``count`` of ``nodes`` to device ``target``. Return the increase of the energy."""
    source = state.device[nodes[0]]
    energy_before = _device_energy(fixed, state, source) + _device_energy(fixed, state, target)
    increase = 0.0
    for k in range(count):
        increase += _move(fixed, state, nodes[k], target, options[k])
    energy_after = _device_energy(fixed, state, source) + _device_energy(fixed, state, target)
    return energy_after - energy_before + increase


@njit(cache=True)
def _collect_run(fixed, state, node, target, stride, nodes, options, old_options):
    """Collect a run of adjacent nodes of a device, and their options on device ``target``. Return its length.

    ``nodes``, ``options``, ``old_options``: arrays that are filled.
    """
    source, count = state.device[node], 0
    length = min(int(-MEAN_RUN * np.log(1.0 - np.random.random())) + 1, LONGEST_RUN)
    while (
        count < length
        and 0 <= node < state.device.shape[0]
        and state.device[node] == source
        and not fixed.is_pinned[node]
    ):
        option = fixed.similar_option[fixed.part[source], fixed.part[target], node, state.option[node]]
        if option < 0:
            break
        nodes[count], options[count], old_options[count] = node, option, state.option[node]
        count += 1
        node += stride
    return count


@njit(cache=True)
def anneal(fixed, state, seed, steps, hot, cold):
    """Anneal from temperature ``hot`` to ``cold``. Return True as soon as energy 0 is reached, else False."""
    np.random.seed(seed)
    nodes, options, old_options = np.empty((3, LONGEST_RUN), np.int64)
    current, devices, temperature = energy(fixed, state), fixed.part.shape[0], hot
    for step in range(steps):
        if current < 1e-9:
            current = energy(fixed, state)  # recomputed, without the steps' rounding errors
            if current == 0.0:
                return True
        if step % COOLING == 0:
            temperature = hot * (cold / hot) ** (step / steps)
        kind = np.random.random()
        node = fixed.movable[np.random.randint(fixed.movable.shape[0])]
        source = state.device[node]
        if kind < REBUILDS:
            option_count = fixed.option_count[fixed.part[source], node]
            if option_count < 2:
                continue
            old_option = state.option[node]
            change = _rebuild(fixed, state, node, np.random.randint(option_count))
            if change <= 0 or np.random.random() < np.exp(-change / temperature):
                current += change
            else:
                _rebuild(fixed, state, node, old_option)
            continue
        target, stride = np.random.randint(devices), 1 - 2 * np.random.randint(2)
        if kind < SHIFTS:
            neighbour = fixed.ends[np.random.randint(fixed.first_end[node], fixed.first_end[node + 1]), 0]
            target, stride = state.device[neighbour], -1 if neighbour > node else 1
        if target == source:
            continue
        count = _collect_run(fixed, state, node, target, stride, nodes, options, old_options)
        if not count:
            continue
        change = _shift(fixed, state, nodes, count, target, options)
        if change <= 0 or np.random.random() < np.exp(-change / temperature):
            current += change
        else:
            _shift(fixed, state, nodes, count, source, old_options)
    return energy(fixed, state) == 0.0
