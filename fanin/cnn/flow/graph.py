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
UNLIMITED = 1 << 40  #: capacity of a channel whose writer never waits: more tokens than any run gives


@dataclass(frozen=True, eq=False)
class Pattern:
    """Cumulative number of tokens, firing k included: counts[k mod period] + step · (k div period)."""

    counts: Counts  #: cumulative counts of the firings of one period
    step: int  #: tokens of a period

    @staticmethod
    def of(counts: Sequence[int] | Counts, step: int | None = None) -> Pattern:
        """Return the pattern of these counts. ``step``: tokens of a period; default: the last count."""
        array = np.asarray(counts, np.int64)
        return Pattern(array, int(array[-1]) if step is None else step)

    @property
    def period(self) -> int:
        """Firings of a period."""
        return len(self.counts)

    def at(self, firings: Counts) -> Counts:
        """Return the counts at the given firings."""
        repeat, index = np.divmod(firings, self.period)
        return self.counts[index] + self.step * repeat

    def first(self, firings: int) -> Counts:
        """Return the counts of the first ``firings`` firings."""
        return self.at(np.arange(firings))


EVERY_FIRING = Pattern.of([1])  #: one token in each firing


def at_first(period: int) -> Pattern:
    """Return the pattern of one token in the first of every ``period`` firings."""
    return Pattern.of(np.ones(period, np.int64))


def at_last(period: int) -> Pattern:
    """Return the pattern of one token in the last of every ``period`` firings."""
    return Pattern.of(np.arange(period) == period - 1, 1)


def next_token(pattern: Pattern) -> Pattern:
    """Return, for each firing, the tokens of ``pattern`` before the firing, plus one.

    A port with this limit waits in every firing for the next token, or for the next token's room.
    """
    counts_before = np.concatenate(([pattern.counts[-1] - pattern.step], pattern.counts[:-1]))
    return Pattern(counts_before + 1, pattern.step)


@dataclass(frozen=True)
class Channel:
    """FIFO of tokens from one writer. Each of its readers takes every token."""

    index: int  #: index in ``Graph.channels``
    name: str  #: name of the channel, for messages
    owner: str  #: name of the stage or edge to which it belongs
    capacity: int  #: number of tokens
    free_delay: float = 1  #: cycles from a token's taking until its room is free; default of ``Graph.take``
    max_lead: int = 1  #: tokens by which one reader may lead the others


@dataclass(frozen=True)
class Selection:
    """Selection of a channel's tokens: of every ``size`` tokens those at ``indices``, which ascend.

    With k indices, token n of the selection is token size · (n div k) + indices[n mod k] of the channel.
    """

    size: int
    indices: tuple[int, ...]

    def tokens_needed(self, tokens: Pattern) -> Pattern:
        """Return the channel's tokens that must be present to provide ``tokens`` of the selection."""
        return self._channel_pattern(tokens, 0)

    def tokens_passed(self, tokens: Pattern) -> Pattern:
        """Return the channel's tokens that a reader has passed after ``tokens`` of the selection."""
        return self._channel_pattern(tokens, 1)

    def _channel_pattern(self, tokens: Pattern, offset: int) -> Pattern:
        """Return the channel's tokens up to the selection's token number ``tokens`` − 1 + ``offset``.

        ``offset``: 0 to include this token, 1 to stop before it.
        """
        period = lcm(tokens.step, len(self.indices)) // tokens.step * tokens.period
        frames, index = np.divmod(tokens.first(period) - 1 + offset, len(self.indices))
        position = np.asarray(self.indices, np.int64)[index] + 1 - offset
        return Pattern(
            position + self.size * frames,
            self.size * (tokens.step * period // tokens.period) // len(self.indices),
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
    initial: int = 0  #: tokens that a reader has passed before its first firing
    source: Source | None = None  #: stream of a reader; None for a writer


@dataclass(frozen=True)
class Actor:
    """Process of a stage or an edge, which fires ``firings`` times per frame."""

    index: int  #: index in ``Graph.actors``
    name: str  #: name of the actor, for messages
    owner: str  #: name of the stage or edge
    firings: int
    intervals: npt.NDArray[np.float64]  #: minimum cycles from each firing to the next, repeated


@dataclass
class Graph:
    """Actors, channels, and the ports between them."""

    actors: list[Actor] = field(default_factory=list)
    channels: list[Channel] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)

    def channel(self, name: str, owner: str, capacity: int, free_delay: float = 1) -> Channel:
        """Add a channel, and return it."""
        self.channels.append(Channel(len(self.channels), name, owner, capacity, free_delay))
        return self.channels[-1]

    def actor(self, name: str, owner: str, firings: int, intervals: Any = 1) -> Actor:
        """Add an actor that fires at most every ``intervals`` cycles, and return it.

        ``intervals``: a number, or a sequence that repeats.
        """
        interval_array = np.atleast_1d(np.asarray(intervals, float))
        self.actors.append(Actor(len(self.actors), name, owner, firings, interval_array))
        return self.actors[-1]

    def scaled(self, factors: Mapping[str, float]) -> Graph:
        """Return the graph with all cycles of each owner's actors multiplied by its factor; default 1."""
        multiples = [factors.get(actor.owner, 1.0) for actor in self.actors]
        actors = [
            replace(actor, intervals=actor.intervals * multiple)
            for actor, multiple in zip(self.actors, multiples, strict=True)
        ]
        ports = [replace(port, delay=port.delay * multiples[port.actor]) for port in self.ports]
        return Graph(actors, self.channels, ports)

    def take(
        self,
        actor: Actor,
        source: Source | Channel,
        required: Pattern = EVERY_FIRING,
        released: Pattern | None = None,
        delay: float | None = None,
    ) -> None:
        """Add a reading port, which fires when ``required`` tokens are present.

        ``released``: tokens whose room becomes free; default: ``required``.
        ``delay``: cycles from a firing until the room is free; default: the channel's ``free_delay``.
        """
        if isinstance(source, Channel):
            source = Source(source)
        released, initial = required if released is None else released, 0
        delay = source.channel.free_delay if delay is None else delay
        if source.selection is not None:
            initial = source.selection.indices[0]
            required, released = (
                source.selection.tokens_needed(required),
                source.selection.tokens_passed(released),
            )
        self.ports.append(
            Port(actor.index, source.channel.index, True, required, released, delay, initial, source)
        )

    def give(
        self,
        actor: Actor,
        channel: Channel,
        produced: Pattern = EVERY_FIRING,
        claimed: Pattern | None = None,
        delay: float = 1,
    ) -> None:
        """Add a writing port, which gives ``produced`` tokens.

        ``claimed``: tokens for which the channel must have room; default: ``produced``.
        ``delay``: cycles from a firing until the tokens are present.
        """
        self.ports.append(
            Port(actor.index, channel.index, False, produced if claimed is None else claimed, produced, delay)
        )
