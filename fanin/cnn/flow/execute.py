"""Execution of a dataflow graph: number of firings of each actor, and their times.

Actors fire until none can. The order of attempts does not matter, since token counts alone decide whether an
actor can fire.
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
CAPACITY, MAX_LEAD, WRITER, FIRST_READER, LAST_READER = range(5)
CHANNEL, OWNER, READS, INITIAL, LIMIT = range(5)
OFFSET, PERIOD, STEP = range(3)  # columns of a pattern, from LIMIT or DONE
DONE = LIMIT + 3


class Tables:
    """Arrays of a graph for the compiled kernel, which cannot use Python objects.

    - ``actors``: a row per actor: firings in all, range in ``ports``, first index and number of its
      ``intervals``, and first index in ``Execution.all_times``.
    - ``channels``: a row per channel: capacity in tokens, tokens by which a reader may lead the others,
      the writing port, range in ``readers``.
    - ``ports``: a row per port, sorted by actor: channel, actor, 1 for a reader, tokens passed before the first
      firing, and the patterns of limit and done: index in ``counts``, period in firings, tokens of a period.
    - ``counts``: counts of all patterns, cumulative within each period.
    - ``readers``: reading ports, channel by channel.
    - ``intervals``: minimum cycles from each firing to the next, one period per actor.
    - ``delay``: cycles from a firing until its tokens are given or freed, by port.
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
        reader_counts = np.array(list(map(len, readers)))
        limits = [(channel.capacity, channel.max_lead) for channel in graph.channels]
        ends = np.cumsum(reader_counts)
        self.channels = np.column_stack([np.array(limits), writer, ends - reader_counts, ends])
        self.readers = np.array([index for indices in readers for index in indices])
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
            [port.channel, port.actor, int(port.reads), port.initial, *columns(port.limit), *columns(port.done)]
            for port in self.graph_ports
        ]
        return np.array(rows), np.concatenate(counts)


@dataclass(frozen=True)
class Wait:
    """Reason why an actor cannot fire."""

    actor: int  #: index of the actor that waits
    port: Port  #: the actor's port that lacks tokens or room
    blocker: int  #: index of the actor that must give the tokens or free the room


@dataclass(frozen=True, eq=False)
class Execution:
    """Result of the execution of a graph."""

    graph: Graph
    tables: Tables
    fired: Counts  #: number of firings of each actor
    done: Counts  #: tokens that each port of the tables has given or passed
    all_times: Times  #: cycle of each firing, actor by actor; empty unless timed

    @property
    def is_complete(self) -> bool:
        """True if every actor has fired for all frames."""
        return bool(np.all(self.fired == self.tables.actors[:, TOTAL]))

    def times(self, actor: int) -> Times:
        """Return the cycles of an actor's firings."""
        first = self.tables.actors[actor, FIRST_TIME]
        return self.all_times[first : first + self.fired[actor]]

    @cached_property
    def waits(self) -> dict[int, Wait]:
        """Wait of each actor that has not fired for all frames, by the actor's index."""
        blocked = np.flatnonzero(self.fired != self.tables.actors[:, TOTAL])
        return {int(actor): self._wait(int(actor)) for actor in blocked}

    def _wait(self, actor: int) -> Wait:
        tables, done = self.tables, self.done
        arrays = tables.actors, tables.channels, tables.ports, tables.counts, tables.readers
        index = _blocked_port(*arrays, done, actor, self.fired[actor])
        port = tables.graph_ports[index]
        channel = tables.channels[port.channel]
        writer, first, last = channel[WRITER], channel[FIRST_READER], channel[LAST_READER]
        limit = _count_at(tables.ports, tables.counts, index, LIMIT, self.fired[actor])
        lacks_tokens = port.reads and limit > done[writer]
        slowest = min(tables.readers[first:last], key=lambda reader: done[reader])
        return Wait(actor, port, int(tables.ports[writer if lacks_tokens else slowest, OWNER]))


def execute(graph: Graph, frames: int, *, timed: bool) -> Execution:
    """Fire the actors until each has fired for ``frames`` frames, or until none can fire.

    ``timed``: true to compute the cycle of each firing.
    """
    tables = Tables(graph, frames)
    times = np.zeros(tables.actors[:, TOTAL].sum() if timed else 0)
    arrays = tables.actors, tables.channels, tables.ports, tables.counts, tables.readers
    fired, done = _run(*arrays, tables.intervals, tables.delay, times, timed)
    return Execution(graph, tables, fired, done, times)


@njit(cache=True)
def _count_at(ports, counts, port, first_column, firing):
    """Return the count of a port's pattern at a firing. ``first_column``: LIMIT or DONE."""
    period = ports[port, first_column + PERIOD]
    if period == 1:
        return counts[ports[port, first_column + OFFSET]] + ports[port, first_column + STEP] * firing
    repeat = firing // period
    index = ports[port, first_column + OFFSET] + firing - repeat * period
    return counts[index] + ports[port, first_column + STEP] * repeat


@njit(cache=True)
def _blocked_port(actors, channels, ports, counts, readers, done, actor, firing):
    """Return the first port for which an actor cannot fire; -1 if it can fire."""
    for port in range(actors[actor, FIRST_PORT], actors[actor, LAST_PORT]):
        channel = ports[port, CHANNEL]
        limit = _count_at(ports, counts, port, LIMIT, firing)
        if ports[port, READS]:
            if limit > done[channels[channel, WRITER]]:
                return port
            limit -= channels[channel, MAX_LEAD]
        else:
            limit -= channels[channel, CAPACITY]
        for index in range(channels[channel, FIRST_READER], channels[channel, LAST_READER]):
            if readers[index] != port and limit > done[readers[index]]:
                return port
    return -1


@njit(cache=True)
def _done_time(actors, ports, counts, delay, times, cursors, cursor, port, tokens):
    """Return the cycle in which a port had given or freed ``tokens`` tokens.

    ``cursors[cursor]``: firing from which to search; it is advanced, since ``tokens`` grows from call to call.
    """
    firing = cursors[cursor]
    while _count_at(ports, counts, port, DONE, firing) < tokens:
        firing += 1
    cursors[cursor] = firing
    return times[actors[ports[port, OWNER], FIRST_TIME] + firing] + delay[port]


@njit(cache=True)
def _earliest_time(actors, channels, ports, counts, readers, delay, times, cursors, actor, firing, earliest):
    """Return the earliest cycle, not before ``earliest``, with tokens and room for a firing.

    The lead among readers (MAX_LEAD) decides whether an actor can fire, in ``_blocked_port``, but not when.
    """
    for port in range(actors[actor, FIRST_PORT], actors[actor, LAST_PORT]):
        channel = ports[port, CHANNEL]
        tokens = _count_at(ports, counts, port, LIMIT, firing)
        if ports[port, READS]:
            writer = channels[channel, WRITER]
            if tokens > 0:
                earliest = max(
                    earliest, _done_time(actors, ports, counts, delay, times, cursors[0], port, writer, tokens)
                )
            continue
        tokens -= channels[channel, CAPACITY]
        for index in range(channels[channel, FIRST_READER], channels[channel, LAST_READER]):
            reader = readers[index]
            if tokens > ports[reader, INITIAL]:
                earliest = max(
                    earliest,
                    _done_time(actors, ports, counts, delay, times, cursors[1], reader, reader, tokens),
                )
    return earliest


@njit(cache=True)
def _run(actors, channels, ports, counts, readers, intervals, delay, times, timed):
    """Return the firings of each actor and the tokens done by each port; fill ``times`` if ``timed``.

    The queue holds actors that may have become able to fire. An actor fires as often as it can, then queues the
    other actors at its channels: the writer (index FIRST_READER − 1 of the loop) and all readers.
    """
    fired, done = np.zeros(len(actors), np.int64), ports[:, INITIAL].copy()
    cursors = np.zeros((2, len(ports)), np.int64)
    queue, queued = np.arange(len(actors)), np.ones(len(actors), np.bool_)
    head, queue_length = 0, len(actors)
    while queue_length:
        actor = queue[head]
        head, queue_length = (head + 1) % len(actors), queue_length - 1
        queued[actor] = False
        first, last, fired_before = actors[actor, FIRST_PORT], actors[actor, LAST_PORT], fired[actor]
        while fired[actor] < actors[actor, TOTAL]:
            firing = fired[actor]
            if _blocked_port(actors, channels, ports, counts, readers, done, actor, firing) >= 0:
                break
            if timed:
                time, index = 0.0, actors[actor, FIRST_TIME] + firing
                if firing:
                    phase = (firing - 1) % actors[actor, INTERVALS]
                    time = times[index - 1] + intervals[actors[actor, FIRST_INTERVAL] + phase]
                times[index] = _earliest_time(
                    actors, channels, ports, counts, readers, delay, times, cursors, actor, firing, time
                )
            for port in range(first, last):
                done[port] = _count_at(ports, counts, port, DONE, firing)
            fired[actor] += 1
        if fired[actor] == fired_before:
            continue
        for port in range(first, last):
            channel = ports[port, CHANNEL]
            first_reader = channels[channel, FIRST_READER]
            for index in range(first_reader - 1, channels[channel, LAST_READER]):
                other_port = channels[channel, WRITER] if index < first_reader else readers[index]
                owner = ports[other_port, OWNER]
                if owner != actor and not queued[owner]:
                    queue[(head + queue_length) % len(actors)] = owner
                    queued[owner], queue_length = True, queue_length + 1
    return fired, done
