"""Boards and hosts in one simulated world: a learning switch, links with delay and faults, and sockets.

Simulated time runs at full speed while frames are in flight, and for a while after the last frame, since a
board may compute. Afterwards simulated time runs slowly, so that boards' clocks continue, and real time passes
until a host sends.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fanin.sim.boards.board import Boards, Transmission
from fanin.sim.boards.hosts import Host
from fanin.sim.network import Forwarder, LinkConfig, Network
from fanin.wire.ethernet import FCS_BYTES, MIN_FRAME_BYTES, PREAMBLE_BYTES

GIGABIT = LinkConfig(delay_ns=500.0, gbps=1.0)  #: cable and two PHYs
AWAKE_PS = 2_000_000_000  #: time at full speed after the last frame
_NAP_S, _CREEP_PS = 0.005, 20_000_000  # asleep: simulated time that passes per real nap
_AHEAD_PS = 1_000_000_000  # lead of a host's frames over its line; further frames wait at its socket
_ADDRESSES = 8192  # most addresses that a switch learns
_GROUP = 1 << 40  # group bit of a MAC address


class MacSwitch:
    """An Ethernet switch, which learns addresses and sends frames for unknown addresses to all ports."""

    def __init__(self, ports: int):
        self.ports = ports
        self._learnt: dict[int, int] = {}

    def inject(self, port: int, frame: bytes, time: int) -> list[tuple[int, bytes, int]]:
        """Inject a frame; return the outgoing frames as (port, frame, time)."""
        destination, source = int.from_bytes(frame[:6], "big"), int.from_bytes(frame[6:12], "big")
        if not source & _GROUP:
            self._learnt.pop(source, None)
            if len(self._learnt) >= _ADDRESSES:
                del self._learnt[next(iter(self._learnt))]
            self._learnt[source] = port
        known = None if destination & _GROUP else self._learnt.get(destination)
        out = range(self.ports) if known is None else (known,)
        return [(one, frame, time) for one in out if one != port]


@dataclass
class WorldStatistics:
    """Frames that entered the network, by sender, and faulty frames of boards."""

    from_boards: int = 0
    from_hosts: int = 0
    faults: int = 0


class World:
    """A switch whose ports are the boards' PHYs, then the hosts, in this order.

    - ``link``: link between each port and the switch, with the seed ``seed``.
    - ``switch``: replaces the :class:`MacSwitch`.
    - ``capture``: called with each frame at the switch.
    - ``on_frame``: called with each frame that a board sends.
    - ``awake_ps``: time at full speed after the last frame.

    The caller closes the boards.
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
        # A frame is on the link while the board sends it: it arrives at least this long after its last byte.
        self._window = round(link.delay_ns * 1000)
        self._link = link
        self._on_frame = on_frame
        self._awake_ps = awake_ps
        self._awake_until = boards.time + awake_ps

    @property
    def time(self) -> int:
        """Simulated time, in ps."""
        return self.boards.time

    def run(self, until: int) -> None:
        """Run up to a time, however long that takes."""
        while self.time < until:
            self._step(min(self._window, until - self.time))

    def serve(self, stop: Callable[[], bool]) -> None:
        """Run until ``stop()`` is True, checked after each window; sleep while no frame is in flight."""
        descriptors = [one for host in self.hosts for one in host.descriptors()]
        creep = 0
        while not stop():
            if self.time >= self._awake_until and creep <= 0:
                select.select(descriptors, [], [], _NAP_S) if descriptors else time.sleep(_NAP_S)
                creep = _CREEP_PS
            before = self.time
            self._step(self._window)
            creep -= self.time - before

    def close(self) -> None:
        """Close the hosts, and complete the capture."""
        self.network.close()
        for host in self.hosts:
            host.close()

    def _step(self, window: int) -> None:
        """Run one window, which is so short that no frame sent in it arrives in it."""
        now = self.time
        for number, host in enumerate(self.hosts):
            if self._line_free[number] > now + _AHEAD_PS:
                continue
            for frame in host.receive():
                self.statistics.from_hosts += 1
                self._line_free[number] = max(self._line_free[number], now) + self._duration(len(frame))
                self.network.send(len(self._ports) + number, frame, now)
                self._stay_awake()
        for reception in self.network.advance(now + window):
            port, arrival = reception.port, reception.arrival
            if port < len(self._ports):
                self._hand_to_board(port, arrival.frame, arrival.time, arrival.error)
            elif not arrival.error:
                self.hosts[port - len(self._ports)].deliver(arrival.frame, arrival.time)
            self._stay_awake()
        for sent in self.boards.run(now + window):
            self._take_from_board(sent)
        if self.boards.busy or self.network.next_time is not None:
            self._stay_awake()

    def _stay_awake(self) -> None:
        self._awake_until = self.time + self._awake_ps

    def _hand_to_board(self, port: int, frame: bytes, arrival: int, error: bool) -> None:
        board, phy = self._ports[port]
        start = max(arrival - self._duration(len(frame)), self.time)
        self.boards.send(board, frame, time=start, phy=phy, bad_fcs=error)

    def _take_from_board(self, sent: Transmission) -> None:
        if self._on_frame:
            self._on_frame(sent)
        if sent.fault:
            self.statistics.faults += 1
            return
        self.statistics.from_boards += 1
        port = self._port_of[sent.board, sent.phy]
        self.network.send(port, sent.data, sent.time - self._duration(len(sent.data)))

    def _duration(self, size: int) -> int:
        return self._link.duration(wire_bytes(size))


def wire_bytes(size: int) -> int:
    """Return the wire bytes of a frame of ``size`` bytes without FCS: with preamble, padding and FCS."""
    return PREAMBLE_BYTES + max(size, MIN_FRAME_BYTES) + FCS_BYTES
