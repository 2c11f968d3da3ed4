"""What lies outside a simulation, by Linux interfaces: a switch or a wire, and the nodes' hosts."""

from __future__ import annotations

import functools
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fanin.errors import InputError
from fanin.host.alignment import Alignment
from fanin.host.driver import BaseDriver
from fanin.host.ethernet import Interface, open_interface
from fanin.job import JobCounters, SwitchCounters
from fanin.sim.cosim.live import Board
from fanin.sim.cosim.program import HostProgram
from fanin.sim.nic.pace import Pace
from fanin.sim.nic.stopping import Stop
from fanin.sim.switch.base import Delivery, Job, OutsideSwitch

BUSY_PS = 1_000_000  #: until the next look for frames, behind one that found some
IDLE_PS = 20_000_000  #: the same at most; it doubles while none come


def check_interfaces(names: Sequence[str]) -> None:
    """Raise InputError unless these are different interfaces that can be opened."""
    if len(set(names)) < len(names):
        raise InputError(f"{', '.join(names)}: an interface is named twice")
    for name in names:
        open_interface(name).close()


def _opened(names: Sequence[str], pace: Pace) -> list[Interface]:
    """In the simulator's process, with which they are closed."""
    interfaces = [open_interface(name) for name in names]
    for interface in interfaces:
        pace.watch(interface.fileno())
    return interfaces


def _lost(interfaces: Sequence[Interface]) -> int:
    """Frames that the kernel had no room for, or that an interface did not take."""
    return sum(interface.overrun() + interface.lost + interface.unsent for interface in interfaces)


@dataclass
class OutsideCounters(SwitchCounters):
    """``lost``: frames that came and went between the simulation and the switch for lack of room."""

    lost: int = 0


@dataclass(frozen=True)
class HostSide:
    """A node's counters by name, its host's segments that were no whole values, frames lost on the way."""

    counters: dict[str, int]
    unaligned: int
    lost: int


class InterfaceSwitch(OutsideSwitch):
    """Node n's frames leave by the n-th interface, and what comes there is for node n.

    The switch's jobs are installed by others. ``pace`` bounds simulated time. Raises InputError for an
    interface that cannot be opened.
    """

    def __init__(self, ports: int, *, names: Sequence[str], pace: Pace):
        if len(names) != ports:
            raise ValueError(f"names must be {ports}, not {len(names)}")
        self._pace = pace
        self._interfaces = _opened(names, pace)
        self._next, self._interval = 0, BUSY_PS

    @property
    def next_look(self) -> int:
        """A while behind the last look."""
        return self._next

    def look(self, time: int) -> list[Delivery]:
        """What has come at the interfaces."""
        if time < self._next:
            return []
        self._pace.wait(time, self._interval)
        found = [
            (port, frame, time)
            for port, interface in enumerate(self._interfaces)
            for _, frame in interface.receive()
        ]
        self._interval = BUSY_PS if found else min(2 * self._interval, IDLE_PS)
        self._next = time + self._interval
        return found

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Send it; answers come when they come."""
        self._interfaces[port].send(frame)
        self._interval, self._next = BUSY_PS, min(self._next, time + BUSY_PS)
        return []

    def add_job(self, job: Job) -> None:
        """Nothing: the switch has it."""

    def remove_job(self, job_id: int) -> None:
        """Nothing: the switch has it."""

    def job_counters(self, job_id: int) -> JobCounters:
        """None are known here."""
        return JobCounters()

    def counters(self) -> SwitchCounters:
        """Those of the interfaces; the switch's own are known to it alone."""
        return OutsideCounters(lost=_lost(self._interfaces))


def _hand_up(interface: Interface, frame: bytes) -> None:
    """One that is not taken is counted there."""
    interface.send(frame)


class InterfaceHosts:
    """Live hosts that are Linux: node n's host is behind the n-th interface, until ``stop``.

    ``result()`` has a :class:`HostSide` per node; its counters are those of ``driver``'s registers.
    """

    def __init__(self, board: Board, names: Sequence[str], driver: BaseDriver, pace: Pace, stop: Stop):
        self._board, self._driver, self._stop = board, driver, stop
        self._interfaces = _opened(names, pace)
        self._alignments = [Alignment() for _ in names]
        self._found: list[Any] = [None] * len(names)
        self._stopping = False
        self._interval = BUSY_PS
        self.progress = 0  #: frames that hosts have sent

    @property
    def done(self) -> bool:
        """Stopped, and all counters read."""
        return self._stopping and None not in self._found

    def start(self) -> None:
        """Hand frames up, and look for those that come down."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the command, too, which stops us
        for node, interface in enumerate(self._interfaces):
            self._board.on_frame(node, functools.partial(_hand_up, interface))
        self._look()

    def _look(self) -> None:
        if self._stop.asked:
            self._read_counters()
            return
        found = False
        for node, interface in enumerate(self._interfaces):
            if self._board.unsent(node):
                continue  # they wait in the kernel's queue
            for _, frame in interface.receive():
                self._board.send(node, self._alignments[node].checked(frame))
                self.progress += 1
                found = True
        self._interval = BUSY_PS if found else min(2 * self._interval, IDLE_PS)
        self._board.at(self._board.now + self._interval, self._look)

    def _read_counters(self) -> None:
        self._stopping = True
        batch = self._driver.counters()
        for node in range(len(self._interfaces)):

            def found(words: list[int], node: int = node) -> None:
                self._found[node] = self._driver.counters_of(batch.results(words))

            self._board.run(node, HostProgram().extend(batch.operations), found)

    def may_skip(self) -> bool:
        """NICs count no cycles."""
        return True

    def waiting(self) -> str:
        """For what."""
        return "for frames at " + ", ".join(interface.name for interface in self._interfaces)

    def result(self) -> list[HostSide]:
        """What was counted, per node."""
        parts = zip(self._found, self._alignments, self._interfaces, strict=True)
        return [
            HostSide(counters, alignment.unaligned, _lost([interface]))
            for counters, alignment, interface in parts
        ]
