"""Cyclo-static dataflow graph with bounded channels: actors fire when tokens and room are available.

Firing k of an actor, k from 0, takes tokens from some channels and gives tokens to others. Tokens have no
values, so a pattern of counts describes a port completely.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pattern:
    """Cumulative number of tokens up to firing k: counts[k mod period] + step · (k div period).

    ``counts``: cumulative counts of one period, whose length is that of the array.
    ``step``: tokens of a period.
    """

    counts: Counts
    step: int

    @staticmethod
    def of(counts: Sequence[int] | Counts, step: int | None = None) -> Pattern:
        """Return a pattern. ``step``: default: the last of the counts."""
        array = np.asarray(counts, np.int64)
        return Pattern(array, int(array[-1]) if step is None else step)

    @property
    def period(self) -> int:
        """Firings of a period."""
        return len(self.counts)

    def at(self, firings: Counts) -> Counts:
        """Return the counts at these firings."""
        repeat, index = np.divmod(firings, self.period)
        return self.counts[index] + self.step * repeat

    def over(self, firings: int) -> Counts:
        """Return the counts of the first ``firings`` firings."""
        return self.at(np.arange(firings))


EACH = Pattern.of([1])  #: a token in every firing


def at_first(period: int) -> Pattern:
    """Return the pattern of one token in the first of every ``period`` firings."""
    return Pattern.of(np.ones(period, np.int64))


def at_last(period: int) -> Pattern:
    """Return the pattern of one token in the last of every ``period`` firings."""
    return Pattern.of(np.arange(period) == period - 1, 1)


def after(given: Pattern) -> Pattern:
    """Return the tokens given before each firing, plus one: the firing waits until those are taken."""
    before = np.concatenate(([given.counts[-1] - given.step], given.counts[:-1]))
    return Pattern(before + 1, given.step)


@dataclass(frozen=True)
class Channel:
    """Channel of tokens.

    ``what``: name of the channel, for messages.
    ``owner``: stage or edge that has it.
    ``capacity``: number of tokens.
    ``again``: cycles from the taking of a token until its room is free, unless a reader gives another delay.
    ``ahead``: number of tokens by which one reader may lead the others. Each reader sees every token.
    """

    index: int
    what: str
    owner: str
    capacity: int
    again: float = 1
    ahead: int = 1


@dataclass(frozen=True)
class Selection:
    """Selection of a channel's tokens for a reader: of every ``size`` tokens those at ``chosen``, ascending."""

    size: int
    chosen: tuple[int, ...]

    def needed(self, tokens: Pattern) -> Pattern:
        """Return the channel's tokens that must be present to provide ``tokens`` of the reader's."""
        return self._translated(tokens, 0)

    def passed(self, tokens: Pattern) -> Pattern:
        """Return the channel's tokens that the reader has passed after ``tokens`` of its own."""
        return self._translated(tokens, 1)

    def _translated(self, tokens: Pattern, ahead: int) -> Pattern:
        period = lcm(tokens.step, len(self.chosen)) // tokens.step * tokens.period
        frames, index = np.divmod(tokens.over(period) - 1 + ahead, len(self.chosen))
        place = np.asarray(self.chosen, np.int64)[index] + 1 - ahead
        return Pattern(
            place + self.size * frames, self.size * (tokens.step * period // tokens.period) // len(self.chosen)
        )


@dataclass(frozen=True, eq=False)
class Source:
    """Stream of a channel's tokens: all of them, or a selection."""

    channel: Channel
    selection: Selection | None = None


@dataclass(frozen=True)
class Port:
    """Port of an actor at a channel.

    A reader fires when ``limit`` tokens have been given, and frees the room of ``done`` tokens ``delay`` cycles
    later. A writer fires when ``limit`` tokens have room, and gives ``done`` tokens ``delay`` cycles later.
    """

    actor: int
    channel: int
    reads: bool
    limit: Pattern
    done: Pattern
    delay: float
    before: int = 0  #: tokens that a reader has passed before its first firing
    source: Source | None = None  #: stream of a reader; None for a writer


@dataclass(frozen=True)
class Actor:
    """Actor of a stage or an edge. ``firings``: a frame; ``intervals``: cycles between firings, cyclic."""

    index: int
    what: str
    owner: str  #: name of the stage or edge
    firings: int
    intervals: npt.NDArray[np.float64]


@dataclass
class Graph:
    """Actors, channels, and the ports between them."""

    actors: list[Actor] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)

    def channel(self, what: str, owner: str, capacity: int, again: float = 1) -> Channel:
        """Add a channel, and return it."""
        self.channels.append(Channel(len(self.channels), what, owner, capacity, again))
        return self.channels[-1]

    def actor(self, what: str, owner: str, firings: int, intervals: Any = 1) -> Actor:
        """Add an actor that fires at most every ``intervals`` cycles, and return it."""
        paces = np.atleast_1d(np.asarray(intervals, float))
        self.actors.append(Actor(len(self.actors), what, owner, firings, paces))
        return self.actors[-1]

    def scaled(self, factors: Mapping[str, float]) -> Graph:
        """Return the graph with all cycles of each owner's actors multiplied by its factor; default 1."""
        factor = [factors.get(actor.owner, 1.0) for actor in self.actors]
        actors = [replace(a, intervals=a.intervals * f) for a, f in zip(self.actors, factor, strict=True)]
        ports = [replace(port, delay=port.delay * factor[port.actor]) for port in self.ports]
        return Graph(actors, self.channels, ports)

    def take(
        self,
        actor: Actor,
        source: Source | Channel,
        need: Pattern = EACH,
        done: Pattern | None = None,
        delay: float | None = None,
    ) -> None:
        """Add a reader that needs ``need`` tokens and frees ``done`` tokens, by default ``need``."""
        if isinstance(source, Channel):
            source = Source(source)
        done, before = need if done is None else done, 0
        delay = source.channel.again if delay is None else delay
        if source.selection is not None:
            before = source.selection.chosen[0]
            need, done = source.selection.needed(need), source.selection.passed(done)
        self.ports.append(Port(actor.index, source.channel.index, True, need, done, delay, before, source))

    def give(
        self,
        actor: Actor,
        channel: Channel,
        give: Pattern = EACH,
        claim: Pattern | None = None,
        delay: float = 1,
    ) -> None:
        """Add a writer that gives ``give`` tokens and needs room for ``claim`` tokens, by default ``give``."""
        self.ports.append(
            Port(actor.index, channel.index, False, give if claim is None else claim, give, delay)
        )
