"""Coarse graph for times of large networks: one firing replaces the last of a group of firings.

Times are those of a group's last firing, so latencies and paces do not grow. Tokens taken within a group are
invisible, so each channel gets room for one more frame. A coarse graph therefore predicts times, not
deadlocks. Images should enter at the network's pace, otherwise frames wait in the extra room.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import numpy as np

from fanin.cnn.flow.graph import Actor, Counts, Graph, Pattern, Port

UNBOUND = 1 << 40  #: tokens by which a reader may lead others
MOST_FIRINGS = 1 << 16  #: largest number of a frame's firings that is executed one by one
LEAST_GROUPS = 64  #: least number of groups of a frame; more if the largest map has over 128 rows


def is_large(graph: Graph) -> bool:
    """Return True if times need a coarse graph."""
    return sum(actor.firings for actor in graph.actors) > MOST_FIRINGS


def bounded(graph: Graph, rows: int) -> Graph:
    """Return the graph, or a coarse one if it is large. ``rows``: rows of the largest map."""
    return coarse(graph, max(LEAST_GROUPS, rows // 2)) if is_large(graph) else graph


def coarse(graph: Graph, groups: int) -> Graph:
    """Return the graph with at most ``groups`` firings of an actor a frame."""
    ends = [_ends(actor, groups) for actor in graph.actors]
    actors = [_actor(actor, end) for actor, end in zip(graph.actors, ends, strict=True)]
    ports = [_port(port, graph.actors[port.actor].firings, ends[port.actor]) for port in graph.ports]
    frame = [0 for _ in graph.channels]
    for port in graph.ports:
        frame[port.channel] = _step(port.done, graph.actors[port.actor].firings)
    channels = [
        replace(channel, capacity=channel.capacity + tokens, ahead=UNBOUND)
        for channel, tokens in zip(graph.channels, frame, strict=True)
    ]
    return Graph(actors, channels, ports)


def _ends(actor: Actor, groups: int) -> Counts:
    """Return the last firing of each group of a frame."""
    count = min(groups, actor.firings)
    return np.arange(1, count + 1) * actor.firings // count - 1


def _actor(actor: Actor, ends: Counts) -> Actor:
    """Return an actor that fires once a group, at intervals between the groups' last firings."""
    elapsed = np.concatenate(([0], np.cumsum(actor.intervals)))
    frames, rest = np.divmod(np.append(ends, ends[0] + actor.firings), len(actor.intervals))
    return replace(actor, firings=len(ends), intervals=np.diff(elapsed[rest] + elapsed[-1] * frames))


def _step(pattern: Pattern, firings: int) -> int:
    """Return the tokens of ``firings`` firings; of a period if the pattern is longer."""
    return pattern.step * firings // pattern.period if pattern.period <= firings else pattern.step


def _port(port: Port, firings: int, ends: Counts) -> Port:
    def chosen(pattern: Pattern, at: Counts) -> Pattern:
        frames = lcm(pattern.period, firings) // firings  # until pattern and frame restart together
        places = (at + firings * np.arange(frames)[:, None]).ravel()
        return Pattern(pattern.at(places), pattern.step * (frames * firings // pattern.period))

    begins = np.concatenate(([0], ends[:-1] + 1))
    return replace(port, limit=chosen(port.limit, ends if port.reads else begins), done=chosen(port.done, ends))
