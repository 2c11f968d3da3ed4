"""How a run is: what ranks know of the nodes and the live hosts of all, and what hosts have done to a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class FailedCheck:
    """A check of a host program that did not hold: register address and what it read."""

    node: int
    address: int
    value: int


@dataclass(frozen=True)
class Failure:
    """What has gone wrong first in a run: in which cycle, at which node (the last number: at none)."""

    cycle: int
    node: int
    text: str
    check: FailedCheck | None = None  # if it is one
    of_host: bool = False  # a live host has found it


def first_of(failures: Iterable[Failure | None]) -> Failure | None:
    """The earliest failure, and of those of one cycle that of the first node."""
    found = (failure for failure in failures if failure)
    return min(found, key=lambda one: (one.cycle, one.node), default=None)


@dataclass(frozen=True)
class Waits:
    """What live hosts wait for, for a message: of one rank's, then of all."""

    busy: tuple[int, ...]  # nodes that run a program
    sending: tuple[int, ...]  # nodes that have not taken all frames of their hosts
    may_skip: bool
    hosts: str  # who waits for what, in their words

    @staticmethod
    def of(parts: Sequence[Waits]) -> Waits:
        """Of all hosts."""
        return Waits(
            busy=tuple(node for part in parts for node in part.busy),
            sending=tuple(node for part in parts for node in part.sending),
            may_skip=all(part.may_skip for part in parts),
            hosts=", ".join(dict.fromkeys(part.hosts for part in parts if part.hosts)),  # what all say, once
        )


@dataclass(frozen=True)
class Live:
    """Of live hosts at a meeting: of one rank's, then of all."""

    called: int  # the last edge at which one was called
    alarm: int | None  # the time of the next one
    still: bool  # no program runs, and time may be skipped; asked only if nothing has happened for long
    done: int | None  # the edge at which they have come to their end
    progress: int
    waits: Waits | None = None  # of a run that has failed

    @staticmethod
    def of(parts: Sequence[Live]) -> Live:
        """That of all hosts."""
        ends = [part.done for part in parts if part.done is not None]
        waits = [part.waits for part in parts if part.waits]
        return Live(
            called=max(part.called for part in parts),
            alarm=min((part.alarm for part in parts if part.alarm is not None), default=None),
            still=all(part.still for part in parts),
            done=max(ends) if len(ends) == len(parts) else None,
            progress=min(part.progress for part in parts),
            waits=Waits.of(waits) if waits else None,
        )


class State(NamedTuple):
    """Of nodes at a meeting: of one rank's, then of all."""

    busy: bool  # a program runs
    ended: int  # the edge behind the last end of one
    holds_frames: bool  # a frame waits at a MAC or a host, or a frame or an order is in flight
    progress: int  # the last edge at which something happened
    failure: Failure | None = None
    live: Live | None = None

    @staticmethod
    def of(states: Sequence[State], *, carries: bool, found: Failure | None) -> State:
        """That of all nodes.

        ``carries``: a frame is in flight, to the switch or from it, or an order is, to hosts; ``found``: by
        rank 0's hosts, of all.
        """
        if len(states) == 1 and not (carries or found):  # a run in one process asks at each frame
            return states[0]
        live = [state.live for state in states if state.live]
        return State(
            busy=any(state.busy for state in states),
            ended=max(state.ended for state in states),
            holds_frames=carries or any(state.holds_frames for state in states),
            progress=max(state.progress for state in states),
            failure=first_of([found, *(state.failure for state in states)]),
            live=Live.of(live) if live else None,
        )


class Cut(NamedTuple):
    """From a rising edge on, but for what leaves at it, a node's link drops every frame, both ways.

    With ``peer``: those alone that go from one of the two to the other. With ``mends`` a node's link, which was
    cut, drops nothing from then on.
    """

    cycle: int
    node: int
    peer: int | None
    mends: bool = False


class Verdict(NamedTuple):
    """What rank 0's hosts make of facts: what is wrong, and what all hosts are to do."""

    failure: Failure | None = None
    orders: Sequence[Any] = ()  # due now
    waiting: bool = False  # there are others, due at the end of the window


class Fact(NamedTuple):
    """What a live host has told, for rank 0's hosts: at which edge and time, whose host, and what."""

    cycle: int
    time: int
    node: int
    what: Any
