"""A network of actors that fire when tokens and room are there: cyclo-static dataflow with bounded channels.

An actor fires again and again, in a fixed order; its k-th firing, k from 0, takes from some channels and
gives to others. All that is known of tokens is how many there are, so that a pattern says everything.
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
    """Of firing k how many tokens in all, from the first firing on.

    That is counts[k mod period] + step · (k div period), the period being the length of ``counts``.
    """

    counts: Counts
    step: int

    @staticmethod
    def of(counts: Sequence[int] | Counts, step: int | None = None) -> Pattern:
        """``step``: the last of the counts unless given."""
        array = np.asarray(counts, np.int64)
        return Pattern(array, int(array[-1]) if step is None else step)

    @property
    def period(self) -> int:
        """Firings until the pattern comes again."""
        return len(self.counts)

    def at(self, firings: Counts) -> Counts:
        """Of these firings."""
        repeat, index = np.divmod(firings, self.period)
        return self.counts[index] + self.step * repeat

    def over(self, firings: int) -> Counts:
        """Of so many firings, from the first on."""
        return self.at(np.arange(firings))


EACH = Pattern.of([1])  #: a token in every firing


def at_first(period: int) -> Pattern:
    """A token in the first of so many firings."""
    return Pattern.of(np.ones(period, np.int64))


def at_last(period: int) -> Pattern:
    """A token in the last of so many firings."""
    return Pattern.of(np.arange(period) == period - 1, 1)


def after(given: Pattern) -> Pattern:
    """What had been given before each firing, and one more: of who waits until all of that is taken."""
    before = np.concatenate(([given.counts[-1] - given.step], given.counts[:-1]))
    return Pattern(before + 1, given.step)


@dataclass(frozen=True)
class Channel:
    """A place that holds tokens.

    It is ``what`` of ``owner``, a stage or an edge. ``capacity``: how many tokens.
    ``again``: cycles until a token that is taken leaves room for another, unless a reader says otherwise.
    Several readers each see every token; one reader is ``ahead`` of the others by so many at most.
    """

    index: int
    what: str
    owner: str
    capacity: int
    again: float = 1
    ahead: int = 1


@dataclass(frozen=True)
class Selection:
    """The tokens of a channel that are for a reader: of ``size`` tokens those at ``chosen``, ascending."""

    size: int
    chosen: tuple[int, ...]

    def needed(self, tokens: Pattern) -> Pattern:
        """Of the channel, so that so many are there that are for the reader."""
        return self._translated(tokens, 0)

    def passed(self, tokens: Pattern) -> Pattern:
        """Of the channel, when the reader has taken so many: up to the next one that is for it."""
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
    """A stream: a channel, all of it or what is selected. Who reads it is a reader of the channel."""

    channel: Channel
    selection: Selection | None = None


@dataclass(frozen=True)
class Port:
    """How an actor deals with a channel.

    A reader fires when ``limit`` tokens have been given, and leaves room behind ``done`` of them, ``delay``
    cycles later. A writer fires when there is room for ``limit`` tokens, and has given ``done`` of them,
    ``delay`` cycles later.
    """

    actor: int
    channel: int
    reads: bool
    limit: Pattern
    done: Pattern
    delay: float
    before: int = 0  #: what a reader has done before its first firing
    source: Source | None = None  #: what a reader reads


@dataclass(frozen=True)
class Actor:
    """Fires in order, ``firings`` times a frame; ``intervals``: cycles from one to the next, in a circle."""

    index: int
    what: str
    owner: str  #: a stage or an edge
    firings: int
    intervals: npt.NDArray[np.float64]


@dataclass
class Graph:
    """Actors, channels, and the ports between them."""

    actors: list[Actor] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)

    def channel(self, what: str, owner: str, capacity: int, again: float = 1) -> Channel:
        """A new one."""
        self.channels.append(Channel(len(self.channels), what, owner, capacity, again))
        return self.channels[-1]

    def actor(self, what: str, owner: str, firings: int, intervals: Any = 1) -> Actor:
        """A new one, which fires at most every ``intervals`` cycles."""
        paces = np.atleast_1d(np.asarray(intervals, float))
        self.actors.append(Actor(len(self.actors), what, owner, firings, paces))
        return self.actors[-1]

    def scaled(self, factors: Mapping[str, float]) -> Graph:
        """The same, with all cycles of an owner's actors times its factor, which is 1 unless given."""
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
        """The actor needs so many tokens, and then has ``done`` with some: with those unless given."""
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
        """The actor gives so many tokens, and needs room for ``claim``: for those unless given."""
        self.ports.append(
            Port(actor.index, channel.index, False, give if claim is None else claim, give, delay)
        )
