"""Execution of a graph: number of firings of each actor, and their times.

Counts alone determine every actor's firings, so the order of attempts does not matter. Actors fire until
none can.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from numba import njit

from fanin.cnn.flow.graph import Counts, Graph, Pattern, Port

Times = npt.NDArray[np.float64]

# Columns of the kernel's tables: of actors, then of channels, then of ports. LAST_… is exclusive.
TOTAL, FIRST_PORT, LAST_PORT, FIRST_INTERVAL, INTERVALS, FIRST_TIME = range(6)
CAPACITY, AHEAD, WRITER, FIRST_READER, LAST_READER = range(5)
CHANNEL, OWNER, READS, BEFORE, LIMIT = range(5)  # LIMIT and DONE are patterns of three columns:
OFFSET, PERIOD, STEP = range(3)
DONE = LIMIT + 3


class Tables:
    """Arrays of a graph for the compiled kernel, which knows no objects.

    - ``actors``: a row per actor: firings in all, its range in ``ports``, first and number of its
      ``intervals``, and its first place in ``Execution.all_times``.
    - ``channels``: a row per channel: capacity in tokens, lead in tokens that a reader may have over the
      others, the writing port, its range in ``readers``.
    - ``ports``: a row per port, sorted by actor: channel, actor, 1 for a reader, tokens before the first
      firing, and the patterns of limit and done: place in ``counts``, period in firings, tokens of a period.
    - ``counts``: tokens of all patterns, cumulative within each period.
    - ``readers``: reading ports, channel by channel.
    - ``intervals``: least cycles from each firing to the next, repeated; actor by actor.
    - ``delay``: by port, cycles from a firing until its tokens are given or freed.
    - ``graph_ports``: ports of the graph in the order of ``ports``.
    """

    def __init__(self, graph: Graph, frames: int):
        ports = sorted(range(len(graph.ports)), key=lambda port: graph.ports[port].actor)
        self.graph_ports = [graph.ports[index] for index in ports]
        owners = [port.actor for port in self.graph_ports]
        first = np.searchsorted(owners, np.arange(len(graph.actors) + 1))
        total = np.array([actor.firings * frames for actor in graph.actors])
        intervals = np.array([len(actor.intervals) for actor in graph.actors])
        self.intervals = np.concatenate([actor.intervals for actor in graph.actors])
        self.actors = np.stack(
            [
                total,
                first[:-1],
                first[1:],
                np.cumsum(intervals) - intervals,
                intervals,
                np.cumsum(total) - total,
            ],
            1,
        )
        readers: list[list[int]] = [[] for _ in graph.channels]
        writer = [-1 for _ in graph.channels]
        for index, port in enumerate(self.graph_ports):
            if port.reads:
                readers[port.channel].append(index)
            else:
                writer[port.channel] = index
        counts = np.array(list(map(len, readers)))
        kinds = [(channel.capacity, channel.ahead) for channel in graph.channels]
        last = np.cumsum(counts)
        self.channels = np.column_stack([np.array(kinds), writer, last - counts, last])
        self.readers = np.array([index for each in readers for index in each])
        self.delay = np.array([port.delay for port in self.graph_ports], float)
        self.ports, self.counts = self._patterns()

    def _patterns(self) -> tuple[Counts, Counts]:
        """Return the table of ports, and the concatenated counts of their patterns, each array once."""
        offsets: dict[int, int] = {}
        counts: list[Counts] = []
        end = 0

        def columns(pattern: Pattern) -> list[int]:
            nonlocal end
            if id(pattern.counts) not in offsets:
                offsets[id(pattern.counts)] = end
                counts.append(pattern.counts)
                end += pattern.period
            return [offsets[id(pattern.counts)], pattern.period, pattern.step]

        rows = [
            [port.channel, port.actor, int(port.reads), port.before, *columns(port.limit), *columns(port.done)]
            for port in self.graph_ports
        ]
        return np.array(rows), np.concatenate(counts)


@dataclass(frozen=True)
class Wait:
    """Cause for which an actor cannot fire: ``port`` waits for actor ``on``."""

    actor: int
    port: Port
    on: int


@dataclass(frozen=True, eq=False)
class Execution:
    """Result of an execution.

    ``fired``: firings of each actor.
    ``all_times``: cycle of each firing, actor by actor; empty unless timed.
    """

    graph: Graph
    tables: Tables
    fired: Counts
    done: Counts  #: tokens that each port of the tables has given or passed
    all_times: Times

    @property
    def ended(self) -> bool:
        """True if every actor has fired for all frames."""
        return bool(np.all(self.fired == self.tables.actors[:, TOTAL]))

    def times(self, actor: int) -> Times:
        """Return the cycles of an actor's firings."""
        first = self.tables.actors[actor, FIRST_TIME]
        return self.all_times[first : first + self.fired[actor]]

    @cached_property
    def waits(self) -> dict[int, Wait]:
        """Wait of each actor that has not fired for all frames."""
        stopped = np.flatnonzero(self.fired != self.tables.actors[:, TOTAL])
        return {int(actor): self._wait(int(actor)) for actor in stopped}

    def _wait(self, actor: int) -> Wait:
        tables, done = self.tables, self.done
        arrays = tables.actors, tables.channels, tables.ports, tables.counts, tables.readers
        index = _what_waits(*arrays, done, actor, self.fired[actor])
        port = tables.graph_ports[index]
        *_, writer, first, last = tables.channels[port.channel]
        limit = _at(tables.ports, tables.counts, index, LIMIT, self.fired[actor])
        lacks = port.reads and limit > done[writer]
        slowest = min(tables.readers[first:last], key=lambda reader: done[reader])
        return Wait(actor, port, int(tables.ports[writer if lacks else slowest, OWNER]))


def execute(graph: Graph, frames: int, *, timed: bool) -> Execution:
    """Fire the actors for ``frames`` frames, or until none can fire."""
    tables = Tables(graph, frames)
    times = np.zeros(tables.actors[:, TOTAL].sum() if timed else 0)
    arrays = tables.actors, tables.channels, tables.ports, tables.counts, tables.readers
    fired, done = _run(*arrays, tables.intervals, tables.delay, times, timed)
    return Execution(graph, tables, fired, done, times)


@njit(cache=True)
def _at(ports, counts, port, pattern, firing):
    """Return the tokens that a port's ``pattern`` (LIMIT or DONE) has counted up to and with a firing."""
    period = ports[port, pattern + PERIOD]
    if period == 1:
        return counts[ports[port, pattern + OFFSET]] + ports[port, pattern + STEP] * firing
    again = firing // period
    place = ports[port, pattern + OFFSET] + firing - again * period
    return counts[place] + ports[port, pattern + STEP] * again


@njit(cache=True)
def _what_waits(actors, channels, ports, counts, readers, done, actor, firing):
    """Return the first port for which an actor cannot fire; -1 if it can fire."""
    for port in range(actors[actor, FIRST_PORT], actors[actor, LAST_PORT]):
        channel = ports[port, CHANNEL]
        limit = _at(ports, counts, port, LIMIT, firing)
        if ports[port, READS]:
            if limit > done[channels[channel, WRITER]]:
                return port
            limit -= channels[channel, AHEAD]
        else:
            limit -= channels[channel, CAPACITY]
        for r in range(channels[channel, FIRST_READER], channels[channel, LAST_READER]):
            if readers[r] != port and limit > done[readers[r]]:
                return port
    return -1


@njit(cache=True)
def _seen(actors, ports, counts, delay, times, seen, place, port, wanted):
    """Return when a port had given or freed ``wanted`` tokens. ``seen[place]``: firing to search from."""
    firing = seen[place]
    while _at(ports, counts, port, DONE, firing) < wanted:
        firing += 1
    seen[place] = firing
    return times[actors[ports[port, OWNER], FIRST_TIME] + firing] + delay[port]


@njit(cache=True)
def _when(actors, channels, ports, counts, readers, delay, times, seen, actor, firing, time):
    """Return the earliest cycle from ``time`` on with tokens and room for a firing.

    The lead among readers (AHEAD) decides whether an actor may fire, in ``_what_waits``, but not when.
    """
    for port in range(actors[actor, FIRST_PORT], actors[actor, LAST_PORT]):
        channel = ports[port, CHANNEL]
        wanted = _at(ports, counts, port, LIMIT, firing)
        if ports[port, READS]:
            writer = channels[channel, WRITER]
            if wanted > 0:
                time = max(time, _seen(actors, ports, counts, delay, times, seen[0], port, writer, wanted))
            continue
        wanted -= channels[channel, CAPACITY]
        for r in range(channels[channel, FIRST_READER], channels[channel, LAST_READER]):
            reader = readers[r]
            if wanted > ports[reader, BEFORE]:
                time = max(time, _seen(actors, ports, counts, delay, times, seen[1], reader, reader, wanted))
    return time


@njit(cache=True)
def _run(actors, channels, ports, counts, readers, intervals, delay, times, timed):
    """Return the firings of each actor and the tokens done by each port; fill ``times`` if ``timed``.

    The queue holds actors that may have become able to fire. An actor fires as often as it can, then queues the
    other actors at its channels: the writer, at index FIRST_READER − 1 of the loop, and all readers.
    """
    fired, done = np.zeros(len(actors), np.int64), ports[:, BEFORE].copy()
    seen = np.zeros((2, len(ports)), np.int64)
    queue, queued = np.arange(len(actors)), np.ones(len(actors), np.bool_)
    head, waiting = 0, len(actors)
    while waiting:
        actor = queue[head]
        head, waiting = (head + 1) % len(actors), waiting - 1
        queued[actor] = False
        first, last, begun = actors[actor, FIRST_PORT], actors[actor, LAST_PORT], fired[actor]
        while fired[actor] < actors[actor, TOTAL]:
            firing = fired[actor]
            if _what_waits(actors, channels, ports, counts, readers, done, actor, firing) >= 0:
                break
            if timed:
                time, place = 0.0, actors[actor, FIRST_TIME] + firing
                if firing:
                    phase = (firing - 1) % actors[actor, INTERVALS]
                    time = times[place - 1] + intervals[actors[actor, FIRST_INTERVAL] + phase]
                times[place] = _when(
                    actors, channels, ports, counts, readers, delay, times, seen, actor, firing, time
                )
            for port in range(first, last):
                done[port] = _at(ports, counts, port, DONE, firing)
            fired[actor] += 1
        if fired[actor] == begun:
            continue
        for port in range(first, last):
            channel = ports[port, CHANNEL]
            for r in range(channels[channel, FIRST_READER] - 1, channels[channel, LAST_READER]):
                other = channels[channel, WRITER] if r < channels[channel, FIRST_READER] else readers[r]
                owner = ports[other, OWNER]
                if owner != actor and not queued[owner]:
                    queue[(head + waiting) % len(actors)] = owner
                    queued[owner], waiting = True, waiting + 1
    return fired, done
