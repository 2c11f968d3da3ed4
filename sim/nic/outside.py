"""Connect a simulation to Linux interfaces: in place of its switch, or as the nodes' host ports."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fanin.base.errors import InputError
from fanin.host.alignment import Alignment
from fanin.host.driver import BaseDriver
from fanin.host.ethernet import Interface, open_interface
from fanin.job import JobCounters, SwitchCounters
from fanin.sim.cosim.live import Board
from fanin.sim.nic.address import Address
from fanin.sim.nic.hosts import OutsideHosts
from fanin.sim.nic.pace import BUSY_PS, IDLE_PS, Pace
from fanin.sim.nic.stopping import Stop
from fanin.sim.switch.base import Delivery, Job, OutsideSwitch


def check_interfaces(names: Sequence[str]) -> None:
    """Raise InputError unless ``names`` are different interfaces that can be opened."""
    if len(set(names)) < len(names):
        raise InputError(f"{', '.join(names)}: an interface is named twice")
    for name in names:
        open_interface(name).close()


def _open_interfaces(names: Sequence[str], pace: Pace) -> list[Interface]:
    """Open interfaces in the simulator's process; they are closed when the process ends."""
    interfaces = [open_interface(name) for name in names]
    for interface in interfaces:
        pace.watch(interface.fileno())
    return interfaces


def _lost_frames(interfaces: Sequence[Interface]) -> int:
    """Return the number of frames that the kernel dropped or an interface did not accept."""
    return sum(interface.overrun() + interface.lost + interface.unsent for interface in interfaces)


@dataclass
class OutsideCounters(SwitchCounters):
    """Counters; ``lost``: frames between the simulation and the switch that were dropped for lack of room."""

    lost: int = 0


@dataclass(frozen=True)
class HostSide:
    """Counts of a node and its host.

    - ``counters``: counters of the node's registers, by name.
    - ``unaligned``: segments of the host marked against compression, since they may begin inside a value.
    - ``lost``: frames between host and node that the kernel dropped or the interface did not accept.
    """

    counters: dict[str, int]
    unaligned: int
    lost: int


class InterfaceSwitch(OutsideSwitch):
    """Switch outside the simulation: node n's frames leave by the n-th interface, whose frames go to node n.

    The switch's operator installs jobs. ``pace`` limits simulated time. With ``address``, software answers ARP
    and ping in place of the node. Raises InputError for an interface that cannot be opened.
    """

    def __init__(self, ports: int, *, names: Sequence[str], pace: Pace, address: Address | None = None):
        if len(names) != ports:
            raise ValueError(f"names must be {ports}, not {len(names)}")
        self._pace, self._address = pace, address
        self._interfaces = _open_interfaces(names, pace)
        self._next, self._interval = 0, BUSY_PS

    @property
    def next_poll(self) -> int:
        """Time of the next ``poll`` in ps, an interval after the last one."""
        return self._next

    def poll(self, time: int, busy: Collection[int] = ()) -> list[Delivery]:
        """Return the frames received at the interfaces; the kernel's queues keep those for ``busy`` ports."""
        if time < self._next:
            return []
        self._pace.wait(time, self._interval)
        deliveries = [
            (port, frame, time)
            for port, interface in enumerate(self._interfaces)
            if port not in busy
            for frame in self._received(interface)
        ]
        self._interval = BUSY_PS if deliveries or busy else min(2 * self._interval, IDLE_PS)
        self._next = time + self._interval
        return deliveries

    def _received(self, interface: Interface) -> list[bytes]:
        if self._address is not None:
            return self._address.receive(interface)
        return [frame for _, frame in interface.receive()]

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Send a frame; answers are found by ``poll``."""
        self._interfaces[port].send(frame)
        self._interval, self._next = BUSY_PS, min(self._next, time + BUSY_PS)
        return []

    def add_job(self, job: Job) -> None:
        """Do nothing: the job is installed at the switch."""

    def remove_job(self, job_id: int) -> None:
        """Do nothing: the job is installed at the switch."""

    def job_counters(self, job_id: int) -> JobCounters:
        """Return zeros: only the switch knows the job's counters."""
        return JobCounters()

    def counters(self) -> SwitchCounters:
        """Return the counters of the interfaces; only the switch knows its own."""
        return OutsideCounters(lost=_lost_frames(self._interfaces))


def _send_to_host(interface: Interface, frame: bytes) -> None:
    """Send a frame to the host; the interface counts it if it is not accepted."""
    interface.send(frame)


class InterfaceHosts(OutsideHosts):
    """Live hosts that connect nodes to Linux: node n's host port is the n-th interface, until ``stop``.

    ``result()`` has a :class:`HostSide` per node; its counters are those of ``driver``'s registers.
    """

    def __init__(self, board: Board, names: Sequence[str], driver: BaseDriver, pace: Pace, stop: Stop):
        super().__init__(board, driver, nodes=len(names), stop=stop)
        self._interfaces = _open_interfaces(names, pace)
        self._alignments = [Alignment() for _ in names]

    def begin(self) -> None:
        """Forward the nodes' frames to the interfaces."""
        for node, interface in enumerate(self._interfaces):
            self.board.on_frame(node, functools.partial(_send_to_host, interface))

    def poll(self) -> bool:
        """Give the interfaces' frames to the nodes; return whether there were any."""
        any_frames = False
        for node, interface in enumerate(self._interfaces):
            if self.board.unsent(node):
                continue  # the kernel's queue keeps the frames
            for _, frame in interface.receive():
                self.board.send(node, self._alignments[node].prepare(frame))
                self.progress += 1
                any_frames = True
        return any_frames

    def waiting(self) -> str:
        """Return what the hosts wait for."""
        return "for frames at " + ", ".join(interface.name for interface in self._interfaces)

    def result(self) -> list[HostSide]:
        """Return the counters, per node."""
        parts = zip(self.counters, self._alignments, self._interfaces, strict=True)
        return [
            HostSide(counters, alignment.unaligned, _lost_frames([interface]))
            for counters, alignment, interface in parts
        ]
