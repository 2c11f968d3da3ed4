"""Coarse graph of a large network, for faster prediction of times: one firing replaces a group of firings.

The firing has the time of the group's last firing, so latencies and intervals stay the same. The graph does not
see tokens that are taken within a group. Therefore each channel has room for one more frame, and a coarse graph
predicts times, not deadlocks. Images should enter at the network's pace, otherwise frames wait in the extra
room.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import numpy as np

from fanin.cnn.flow.graph import Actor, Counts, Graph, Pattern, Port

UNLIMITED_LEAD = 1 << 40  #: ``max_lead`` of a channel whose readers do not wait for each other
MAX_FIRINGS = 1 << 16  #: firings of all actors per frame, above which a graph is large
MIN_GROUPS = 64  #: groups of an actor's firings per frame; more if the largest map has over 128 rows


def is_large(graph: Graph) -> bool:
    """Return True if the graph has more firings than ``MAX_FIRINGS`` per frame."""
    return sum(actor.firings for actor in graph.actors) > MAX_FIRINGS


def coarse_if_large(graph: Graph, rows: int) -> Graph:
    """Return the graph, or a coarse one if it is large. ``rows``: rows of the largest map."""
    return coarsen(graph, max(MIN_GROUPS, rows // 2)) if is_large(graph) else graph


def coarsen(graph: Graph, groups: int) -> Graph:
    """Return the graph with at most ``groups`` firings of each actor per frame."""
    last_firings = [_last_firings(actor, groups) for actor in graph.actors]
    actors = [_coarse_actor(actor, last) for actor, last in zip(graph.actors, last_firings, strict=True)]
    ports = [
        _coarse_port(port, graph.actors[port.actor].firings, last_firings[port.actor]) for port in graph.ports
    ]
    frame_tokens = [0 for _ in graph.channels]
    for port in graph.ports:
        frame_tokens[port.channel] = _frame_tokens(port.done, graph.actors[port.actor].firings)
    channels = [
        replace(channel, capacity=channel.capacity + tokens, max_lead=UNLIMITED_LEAD)
        for channel, tokens in zip(graph.channels, frame_tokens, strict=True)
    ]
    return Graph(actors, channels, ports)


def _last_firings(actor: Actor, groups: int) -> Counts:
    """Return the index of the last firing of each group of a frame."""
    count = min(groups, actor.firings)
    return np.arange(1, count + 1) * actor.firings // count - 1


def _coarse_actor(actor: Actor, last_firings: Counts) -> Actor:
    """Return an actor that fires once per group, at the intervals between the groups' last firings."""
    elapsed = np.concatenate(([0], np.cumsum(actor.intervals)))
    frames, offsets = np.divmod(np.append(last_firings, last_firings[0] + actor.firings), len(actor.intervals))
    return replace(actor, firings=len(last_firings), intervals=np.diff(elapsed[offsets] + elapsed[-1] * frames))


def _frame_tokens(pattern: Pattern, firings: int) -> int:
    """Return the tokens of a frame of ``firings`` firings; of a period if the period is longer than a frame."""
    return pattern.step * firings // pattern.period if pattern.period <= firings else pattern.step


def _coarse_port(port: Port, firings: int, last_firings: Counts) -> Port:
    """Return a port whose patterns have one entry per group. ``firings``: the actor's, per frame."""

    def sampled(pattern: Pattern, firing_indices: Counts) -> Pattern:
        frames = lcm(pattern.period, firings) // firings  # until pattern and frame restart together
        sampled_firings = (firing_indices + firings * np.arange(frames)[:, None]).ravel()
        return Pattern(pattern.at(sampled_firings), pattern.step * (frames * firings // pattern.period))

    first_firings = np.concatenate(([0], last_firings[:-1] + 1))
    return replace(
        port,
        limit=sampled(port.limit, last_firings if port.reads else first_firings),
        done=sampled(port.done, last_firings),
    )
