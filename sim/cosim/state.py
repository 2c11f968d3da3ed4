"""State of nodes and live hosts, and orders of hosts to the run, as ranks exchange them at meetings."""

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
    of_host: bool = False  # a live host reported the failure


def first_of(failures: Iterable[Failure | None]) -> Failure | None:
    """Return the earliest failure; of several in one cycle, the one at the first node."""
    present = (failure for failure in failures if failure)
    return min(present, key=lambda failure: (failure.cycle, failure.node), default=None)


@dataclass(frozen=True)
class WaitReport:
    """Reasons why live hosts of a rank, or of all ranks, wait; part of the message of a failed run."""

    busy: tuple[int, ...]  # nodes that run a program
    sending: tuple[int, ...]  # nodes that have not taken all frames of their hosts
    may_skip: bool  # time may be skipped to the next alarm
    hosts: str  # ``LiveHosts.waiting()``: which host waits for what

    @staticmethod
    def of(parts: Sequence[WaitReport]) -> WaitReport:
        """Return the combined report of all ranks."""
        return WaitReport(
            busy=tuple(node for part in parts for node in part.busy),
            sending=tuple(node for part in parts for node in part.sending),
            may_skip=all(part.may_skip for part in parts),
            hosts=", ".join(dict.fromkeys(part.hosts for part in parts if part.hosts)),  # equal texts once
        )


@dataclass(frozen=True)
class LiveState:
    """State of live hosts of a rank, or of all ranks, at a meeting."""

    last_call: int  # last edge with a callback
    alarm: int | None  # time of the next alarm, in ps
    idle: bool  # no event for ``quiet_cycles``, no program runs, and time may be skipped
    done: int | None  # edge at which the hosts reached their end
    progress: int  # ``LiveHosts.progress``
    wait_report: WaitReport | None = None  # only of a run that has failed

    @staticmethod
    def of(parts: Sequence[LiveState]) -> LiveState:
        """Return the combined state of all ranks' hosts."""
        ends = [part.done for part in parts if part.done is not None]
        reports = [part.wait_report for part in parts if part.wait_report]
        return LiveState(
            last_call=max(part.last_call for part in parts),
            alarm=min((part.alarm for part in parts if part.alarm is not None), default=None),
            idle=all(part.idle for part in parts),
            done=max(ends) if len(ends) == len(parts) else None,
            progress=min(part.progress for part in parts),
            wait_report=WaitReport.of(reports) if reports else None,
        )


class State(NamedTuple):
    """State of nodes of a rank, or of all ranks, at a meeting."""

    busy: bool  # a program runs
    last_end: int  # edge after the last end of a program
    holds_frames: bool  # a frame waits at a MAC or a host, or a frame or an order is in flight
    progress: int  # last edge with progress
    failure: Failure | None = None
    hosts: LiveState | None = None

    @staticmethod
    def of(states: Sequence[State], *, carries: bool, host_failure: Failure | None) -> State:
        """Return the combined state of all ranks.

        - ``carries``: a frame is in flight to or from the switch, or an order to hosts.
        - ``host_failure``: failure that rank 0's hosts have reported.
        """
        if len(states) == 1 and not (carries or host_failure):  # fast path: one process meets at each frame
            return states[0]
        host_states = [state.hosts for state in states if state.hosts]
        return State(
            busy=any(state.busy for state in states),
            last_end=max(state.last_end for state in states),
            holds_frames=carries or any(state.holds_frames for state in states),
            progress=max(state.progress for state in states),
            failure=first_of([host_failure, *(state.failure for state in states)]),
            hosts=LiveState.of(host_states) if host_states else None,
        )


class LinkCut(NamedTuple):
    """A cut of a node's link: from the edge after ``cycle`` on, it drops every frame in both directions.

    With ``peer``, only frames between the two nodes are dropped. With ``mends``, a cut link carries frames
    again.
    """

    cycle: int
    node: int
    peer: int | None  # None: frames of all nodes are dropped
    mends: bool = False


class Decision(NamedTuple):
    """Decision of rank 0's hosts about facts: a failure, and orders for all hosts."""

    failure: Failure | None = None
    orders: Sequence[Any] = ()  # orders due now
    orders_wait: bool = False  # further orders are due at the end of the window


class Fact(NamedTuple):
    """A value that a live host passes to rank 0's hosts."""

    cycle: int  # rising edge of the call of ``Board.tell``
    time: int  # its simulated time, in ps
    node: int
    content: Any
