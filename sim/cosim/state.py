"""State of a run as ranks exchange it: of nodes, of live hosts, and orders of hosts to the run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class FailedCheck:
    """A failed check of a host program: register address and the value that it read."""

    node: int
    address: int
    value: int


@dataclass(frozen=True)
class Failure:
    """First failure of a run: its cycle and node. Failures of a run without a node name the last node."""

    cycle: int
    node: int
    text: str
    check: FailedCheck | None = None  # the check, if one has failed
    of_host: bool = False  # found by a live host


def first_of(failures: Iterable[Failure | None]) -> Failure | None:
    """Return the earliest failure; of several in one cycle, the one at the first node."""
    found = (failure for failure in failures if failure)
    return min(found, key=lambda one: (one.cycle, one.node), default=None)


@dataclass(frozen=True)
class Waits:
    """Text of what live hosts of a rank, or of all ranks, wait for."""

    busy: tuple[int, ...]  # nodes that run a program
    sending: tuple[int, ...]  # nodes that have not taken all frames of their hosts
    may_skip: bool
    hosts: str  # the hosts' own text of which host waits for what

    @staticmethod
    def of(parts: Sequence[Waits]) -> Waits:
        """Return the waits of all ranks as one."""
        return Waits(
            busy=tuple(node for part in parts for node in part.busy),
            sending=tuple(node for part in parts for node in part.sending),
            may_skip=all(part.may_skip for part in parts),
            hosts=", ".join(dict.fromkeys(part.hosts for part in parts if part.hosts)),  # equal texts once
        )


@dataclass(frozen=True)
class Live:
    """State of live hosts of a rank, or of all ranks, at a meeting."""

    called: int  # last edge with a callback
    alarm: int | None  # time of the next alarm
    still: bool  # nothing has happened for ``quiet_cycles``, no program runs, and time may be skipped
    done: int | None  # edge at which the hosts reached their end
    progress: int
    waits: Waits | None = None  # only of a run that has failed

    @staticmethod
    def of(parts: Sequence[Live]) -> Live:
        """Return the state of all ranks' hosts as one."""
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
    """State of nodes of a rank, or of all ranks, at a meeting."""

    busy: bool  # a program runs
    ended: int  # edge after the last end of a program
    holds_frames: bool  # a frame waits at a MAC or a host, or a frame or an order is in flight
    progress: int  # last edge with progress
    failure: Failure | None = None
    live: Live | None = None

    @staticmethod
    def of(states: Sequence[State], *, carries: bool, found: Failure | None) -> State:
        """Return the state of all ranks as one.

        - ``carries``: a frame is in flight to or from the switch, or an order to hosts.
        - ``found``: failure that rank 0's hosts have found.
        """
        if len(states) == 1 and not (carries or found):  # fast path: a run in one process meets at each frame
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
    """A cut of a node's link: from the edge after ``cycle`` on, it drops every frame in both directions.

    With ``peer``, only frames between the two nodes are dropped. With ``mends``, a cut link carries frames
    again.
    """

    cycle: int
    node: int
    peer: int | None
    mends: bool = False


class Verdict(NamedTuple):
    """Decision of rank 0's hosts about facts: a failure, and orders for all hosts."""

    failure: Failure | None = None
    orders: Sequence[Any] = ()  # orders due now
    waiting: bool = False  # further orders are due at the end of the window


class Fact(NamedTuple):
    """A value that a live host passes to rank 0's hosts: its edge, time, node and content."""

    cycle: int
    time: int
    node: int
    what: Any
