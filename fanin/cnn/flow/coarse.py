"""A graph with fewer firings, for times of large networks: each stands for several, and is the last of them.

Times are those of the last firing of a group, so that neither latencies nor paces grow. What is taken within a
group is not seen, so that channels get room for a frame more: a coarse graph says when, not whether. Images
should come at the network's pace, else frames wait in that room.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm

import numpy as np

from fanin.cnn.flow.graph import Actor, Counts, Graph, Pattern, Port

UNBOUND = 1 << 40  #: how far a reader may be ahead of others
MOST_FIRINGS = 1 << 16  #: of a frame that are executed one by one; else a frame's rows are in pairs, or
LEAST_GROUPS = 64  #: more finely divided, where no map is large


def is_large(graph: Graph) -> bool:
    """Whether its times are found in a coarse one."""
    return sum(actor.firings for actor in graph.actors) > MOST_FIRINGS


def bounded(graph: Graph, rows: int) -> Graph:
    """The same, or a coarse one where it is large; ``rows``: of the largest map."""
    return coarse(graph, max(LEAST_GROUPS, rows // 2)) if is_large(graph) else graph


def coarse(graph: Graph, groups: int) -> Graph:
    """The same with at most so many firings of an actor a frame."""
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
    """The last firing of each group of a frame."""
    count = min(groups, actor.firings)
    return np.arange(1, count + 1) * actor.firings // count - 1


def _actor(actor: Actor, ends: Counts) -> Actor:
    """A group follows the one before after the cycles from its last firing to this one's."""
    elapsed = np.concatenate(([0], np.cumsum(actor.intervals)))
    frames, rest = np.divmod(np.append(ends, ends[0] + actor.firings), len(actor.intervals))
    return replace(actor, firings=len(ends), intervals=np.diff(elapsed[rest] + elapsed[-1] * frames))


def _step(pattern: Pattern, firings: int) -> int:
    """Tokens of so many firings, where a pattern is no longer; else of a period."""
    return pattern.step * firings // pattern.period if pattern.period <= firings else pattern.step


def _port(port: Port, firings: int, ends: Counts) -> Port:
    def chosen(pattern: Pattern, at: Counts) -> Pattern:
        frames = lcm(pattern.period, firings) // firings  # until pattern and frame come again together
        places = (at + firings * np.arange(frames)[:, None]).ravel()
        return Pattern(pattern.at(places), pattern.step * (frames * firings // pattern.period))

    begins = np.concatenate(([0], ends[:-1] + 1))
    return replace(port, limit=chosen(port.limit, ends if port.reads else begins), done=chosen(port.done, ends))
