"""Boards whose frames are noted, and whose control is spoken to straight at the PHY, without a network."""

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
_STEP_PS = 2_000_000  # after which a reply is looked for
_PS = 10**12  # in a second


def wire_time(frame: bytes) -> int:
    """Picoseconds of a frame at 1 Gb/s, from its preamble to its FCS."""
    return int(GIGABIT_PS) * wire_bytes(len(frame))


class Handed(NamedTuple):
    """A frame that a board was given, and when its first and its last byte came, in ps.

    Exact where the line was free, at 1 Gb/s: a frame begins with a cycle of the PHY's clock.
    """

    start: int
    end: int
    frame: bytes


class LoggedBoards(Boards):
    """Boards that write down what board n was given, ``handed[n]``, and what it sent, ``sent[n]``."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.handed: list[list[Handed]] = [[] for _ in self.configs]
        self.sent: list[list[Transmission]] = [[] for _ in self.configs]

    def send(
        self, board: int, frame: bytes, *, time: int | None = None, phy: int = 0, bad_fcs: bool = False
    ) -> None:
        """As Boards'."""
        super().send(board, frame, time=time, phy=phy, bad_fcs=bad_fcs)
        clock = self.configs[board].phys[phy].clock
        begin = self.time if time is None else time
        cycle = math.ceil((begin - clock.phase_ps) / clock.period_ps)
        start, end = (
            clock.phase_ps + math.floor(number * clock.period_ps)
            for number in (cycle, cycle + wire_bytes(len(frame)))
        )
        self.handed[board].append(Handed(start, end, frame))

    def run(self, until: int) -> list[Transmission]:
        """As Boards'."""
        sent = super().run(until)
        for one in sent:
            self.sent[one.board].append(one)
        return sent


class DirectChannel:
    """Control of a board as a channel of :class:`fanin.host.board.BoardClient`, at its PHY, from ``host``.

    The world runs while the client waits, and the client's seconds are the world's.
    """

    def __init__(self, world: World, boards: LoggedBoards, board: int, *, own: Endpoint, host: Endpoint):
        self.own = own
        self._world, self._boards, self._board, self._host = world, boards, board, host

    @property
    def local_host(self) -> str:
        """The host's address."""
        return str(IPv4Address(self._host.ip))

    @property
    def remote_host(self) -> str:
        """The board's address."""
        return str(IPv4Address(self.own.ip))

    def exchange(self, payload: bytes, timeout: float) -> Iterator[bytes]:
        """Hand the board a request; what it sends to the host."""
        world, sent = self._world, self._boards.sent[self._board]
        seen, end = len(sent), world.time + round(timeout * _PS)
        self._boards.send(self._board, encode_udp(payload, source=self._host, destination=self.own))
        while world.time < end:
            world.run(min(end, world.time + _STEP_PS))
            come, seen = sent[seen:], len(sent)
            for one in come:
                if unpack_fields(ETHERNET, one.data)["destination"] == self._host.mac:
                    length = unpack_fields(UDP, one.data[_UDP_AT:])["length"]
                    yield one.data[_UDP_AT + byte_length(UDP) : _UDP_AT + length]

    def close(self) -> None:
        """Nothing to let go of."""
