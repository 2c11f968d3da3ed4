"""Logging of a board's frames, and access to its control directly at the PHY, without a network."""

from __future__ import annotations

import math
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from fanin.sim.boards.board import GIGABIT_PS, Boards, Transmission
from fanin.sim.boards.world import World, wire_bytes
from fanin.wire.ethernet import (
    ETHERNET,
    IPV4,
    UDP,
    Endpoint,
    encode_udp,
)
from fanin.wire.fields import byte_length, unpack_fields

_UDP_AT = byte_length(ETHERNET) + byte_length(IPV4)
_STEP_PS = 2_000_000  # interval at which replies are looked for
_PS = 10**12  # picoseconds per second


def wire_time(frame: bytes) -> int:
    """Return the picoseconds of a frame at 1 Gb/s, from its preamble to its FCS."""
    return int(GIGABIT_PS) * wire_bytes(len(frame))


class DeliveredFrame(NamedTuple):
    """A frame delivered to a board, and the times of its first and last byte, in ps.

    The times are exact at 1 Gb/s if the line was free: a frame begins with a cycle of the PHY's clock.
    """

    start: int
    end: int
    frame: bytes


class LoggedBoards(Boards):
    """Boards that log the frames delivered to board n, ``delivered[n]``, and sent by it, ``sent[n]``."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.delivered: list[list[DeliveredFrame]] = [[] for _ in self.configs]
        self.sent: list[list[Transmission]] = [[] for _ in self.configs]

    def send(
        self, board: int, frame: bytes, *, time: int | None = None, phy: int = 0, bad_fcs: bool = False
    ) -> None:
        """Send a frame to a board, see :meth:`Boards.send`, and log it."""
        super().send(board, frame, time=time, phy=phy, bad_fcs=bad_fcs)
        clock = self.configs[board].phys[phy].clock
        begin = self.time if time is None else time
        cycle = math.ceil((begin - clock.phase_ps) / clock.period_ps)
        start, end = (
            clock.phase_ps + math.floor(number * clock.period_ps)
            for number in (cycle, cycle + wire_bytes(len(frame)))
        )
        self.delivered[board].append(DeliveredFrame(start, end, frame))

    def run(self, end: int) -> list[Transmission]:
        """Run all boards, see :meth:`Boards.run`, and log the frames sent."""
        sent = super().run(end)
        for transmission in sent:
            self.sent[transmission.board].append(transmission)
        return sent


class DirectChannel:
    """Channel of :class:`fanin.host.board.BoardClient` to a board's control, at its PHY, from ``host``.

    The world runs while the client waits, and the client's seconds are simulated seconds.
    """

    def __init__(self, world: World, boards: LoggedBoards, board: int, *, endpoint: Endpoint, host: Endpoint):
        self.endpoint = endpoint
        self._world, self._boards, self._board, self._host = world, boards, board, host

    @property
    def local_host(self) -> str:
        """Address of the host."""
        return str(IPv4Address(self._host.ip))

    @property
    def remote_host(self) -> str:
        """Address of the board."""
        return str(IPv4Address(self.endpoint.ip))

    def exchange(self, payload: bytes, timeout: float) -> Iterator[bytes]:
        """Send a request to the board; yield the payloads that it sends to the host."""
        world, sent = self._world, self._boards.sent[self._board]
        count, end = len(sent), world.time + round(timeout * _PS)
        self._boards.send(self._board, encode_udp(payload, source=self._host, destination=self.endpoint))
        while world.time < end:
            world.run(min(end, world.time + _STEP_PS))
            received, count = sent[count:], len(sent)
            for transmission in received:
                if unpack_fields(ETHERNET, transmission.data)["destination"] == self._host.mac:
                    length = unpack_fields(UDP, transmission.data[_UDP_AT:])["length"]
                    yield transmission.data[_UDP_AT + byte_length(UDP) : _UDP_AT + length]

    def close(self) -> None:
        """Do nothing: there are no resources."""
