"""Simulation of boards and hosts at one switch: a learning switch, and links with delay and faults.

Simulated time runs at full speed while frames are in flight, and for ``awake_ps`` after the last frame, since a
board may compute. Afterwards simulated time runs slowly until a host sends, so that boards' clocks continue.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fanin.link import LinkConfig
from fanin.sim.boards.board import Boards, Transmission
from fanin.sim.boards.hosts import Host
from fanin.sim.network import Forwarder, Network
from fanin.wire.ethernet import FCS_BYTES, MIN_FRAME_BYTES, PREAMBLE_BYTES

GIGABIT = LinkConfig(delay_ns=500.0, gbps=1.0)  #: cable and two PHYs
AWAKE_PS = 2_000_000_000  #: simulated time at full speed after the last frame
# While time runs slowly: seconds of a nap, and simulated ps after it. Simulated time is 1/250 of real time.
_NAP_S, _SLOW_PS = 0.005, 20_000_000
_MAX_LEAD_PS = 1_000_000_000  # most time of frames that wait for a host's line; more frames wait at its socket
_MAX_ADDRESSES = 8192  # most addresses that a switch learns
_GROUP_BIT = 1 << 40  # of a MAC address: the lowest bit of its first byte


class MacSwitch:
    """Ethernet switch that learns addresses and floods frames for unknown addresses; it adds no delay."""

    def __init__(self, ports: int):
        self.ports = ports
        self._ports_by_mac: dict[int, int] = {}

    def inject(self, port: int, frame: bytes, time: int) -> list[tuple[int, bytes, int]]:
        """Inject a frame; return the outgoing frames as (port, frame, time)."""
        destination, source = int.from_bytes(frame[:6], "big"), int.from_bytes(frame[6:12], "big")
        if not source & _GROUP_BIT:
            self._ports_by_mac.pop(source, None)  # the address becomes the newest
            if len(self._ports_by_mac) >= _MAX_ADDRESSES:
                del self._ports_by_mac[next(iter(self._ports_by_mac))]
            self._ports_by_mac[source] = port
        learned_port = None if destination & _GROUP_BIT else self._ports_by_mac.get(destination)
        ports = range(self.ports) if learned_port is None else (learned_port,)
        return [(output_port, frame, time) for output_port in ports if output_port != port]


@dataclass
class WorldStatistics:
    """Numbers of frames that boards and hosts have sent, and of faulty ones of boards, which are dropped."""

    from_boards: int = 0
    from_hosts: int = 0
    faults: int = 0


class World:
    """Boards and hosts at one switch. Its ports are the boards' PHYs, then the hosts, in order.

    - ``boards``, ``hosts``: boards and hosts. The caller closes the boards; ``close`` closes the hosts.
    - ``link``: link between each port and the switch; its delay must be at least 1 ns.
    - ``seed``: seed of the links' faults.
    - ``switch``: replaces the :class:`MacSwitch`.
    - ``capture``: called with each frame at the switch, and its time in ps.
    - ``on_frame``: called with each frame that a board sends, faulty ones included.
    - ``awake_ps``: simulated ps at full speed after the last frame.

    Times of a frame: ``Boards.send`` and ``Network.send`` take the start of its preamble. ``Transmission.time``
    and ``Arrival.time`` are the end of its last byte. This class converts between the two.
    """

    def __init__(
        self,
        boards: Boards,
        hosts: Sequence[Host] = (),
        *,
        link: LinkConfig = GIGABIT,
        seed: int = 0,
        switch: Forwarder | None = None,
        capture: Callable[[bytes, int], None] | None = None,
        on_frame: Callable[[Transmission], None] | None = None,
        awake_ps: int = AWAKE_PS,
    ):
        if link.delay_ns < 1:
            raise ValueError(f"link.delay_ns must be at least 1, not {link.delay_ns!r}")
        self.boards = boards
        self.hosts = list(hosts)
        self.statistics = WorldStatistics()
        self._line_free = [0] * len(self.hosts)  # per host, time when its line has carried all its frames
        phys = [len(config.phys) for config in boards.configs]
        self._ports = [(board, phy) for board, count in enumerate(phys) for phy in range(count)]
        self._port_of = {pair: port for port, pair in enumerate(self._ports)}
        count = len(self._ports) + len(self.hosts)
        self.network = Network(
            switch=switch or MacSwitch(count), ports=count, link=link, seed=seed, capture=capture
        )
        # Time of a step, in ps: a frame arrives at least this long after its last byte was sent.
        self._window = round(link.delay_ns * 1000)
        self._link = link
        self._on_frame = on_frame
        self._awake_ps = awake_ps
        self._awake_until = boards.time + awake_ps

    @property
    def time(self) -> int:
        """Simulated time, in ps."""
        return self.boards.time

    def run(self, end: int) -> None:
        """Run at full speed up to simulated time ``end``, in ps."""
        while self.time < end:
            self._step(min(self._window, end - self.time))

    def serve(self, stop: Callable[[], bool]) -> None:
        """Run until ``stop()`` is True, checked after each window; sleep while no frame is in flight."""
        descriptors = [descriptor for host in self.hosts for descriptor in host.descriptors()]
        slow_ps_left = 0
        while not stop():
            if self.time >= self._awake_until and slow_ps_left <= 0:
                if descriptors:
                    select.select(descriptors, [], [], _NAP_S)  # a host's frame ends the nap
                else:
                    time.sleep(_NAP_S)
                slow_ps_left = _SLOW_PS
            start = self.time
            self._step(self._window)
            slow_ps_left -= self.time - start

    def close(self) -> None:
        """Close the hosts, and complete the capture."""
        self.network.close()
        for host in self.hosts:
            host.close()

    def _step(self, window: int) -> None:
        """Run hosts, network and boards for ``window`` ps, at most the link's delay.

        No frame that is sent in the window may arrive in it, since each of the three runs to its end in turn.
        """
        start = self.time
        for number, host in enumerate(self.hosts):
            if self._line_free[number] > start + _MAX_LEAD_PS:
                continue
            for frame in host.receive():
                self.statistics.from_hosts += 1
                self._line_free[number] = max(self._line_free[number], start) + self._duration(len(frame))
                self.network.send(len(self._ports) + number, frame, start)
                self._stay_awake()
        for reception in self.network.advance(start + window):
            port, arrival = reception.port, reception.arrival
            if port < len(self._ports):
                self._send_to_board(port, arrival.frame, arrival.time, arrival.error)
            elif not arrival.error:
                self.hosts[port - len(self._ports)].deliver(arrival.frame, arrival.time)
            self._stay_awake()
        for transmission in self.boards.run(start + window):
            self._receive_from_board(transmission)
        if self.boards.busy or self.network.next_time is not None:
            self._stay_awake()

    def _stay_awake(self) -> None:
        self._awake_until = self.time + self._awake_ps

    def _send_to_board(self, port: int, frame: bytes, arrival: int, error: bool) -> None:
        """Send a frame that arrives completely at ``arrival`` to a board, from the start of its preamble on.

        A step does not go back in time, so a frame that began before this step begins now, and arrives later.
        """
        board, phy = self._ports[port]
        start = max(arrival - self._duration(len(frame)), self.time)
        self.boards.send(board, frame, time=start, phy=phy, bad_fcs=error)

    def _receive_from_board(self, transmission: Transmission) -> None:
        """Send a board's frame to the network, at the time when it began; drop a faulty one."""
        if self._on_frame:
            self._on_frame(transmission)
        if transmission.fault:
            self.statistics.faults += 1
            return
        self.statistics.from_boards += 1
        port = self._port_of[transmission.board, transmission.phy]
        self.network.send(port, transmission.data, transmission.time - self._duration(len(transmission.data)))

    def _duration(self, size: int) -> int:
        """Return the ps of a frame of ``size`` bytes on the link, from its preamble to its FCS."""
        return self._link.duration(wire_bytes(size))


def wire_bytes(size: int) -> int:
    """Return the wire bytes of a frame of ``size`` bytes without FCS: with preamble, padding and FCS."""
    return PREAMBLE_BYTES + max(size, MIN_FRAME_BYTES) + FCS_BYTES
