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
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IPV4,
    UDP,
    Endpoint,
    encode_udp,
)
from fanin.wire.fields import byte_length, unpack_fields

# Offsets of headers and payload in a frame, in bytes.
_IP_AT = byte_length(ETHERNET)
_UDP_AT = _IP_AT + byte_length(IPV4)
_PAYLOAD_AT = _UDP_AT + byte_length(UDP)
_STEP_PS = 2_000_000  # simulated time between two looks for replies
_PS = 10**12  # picoseconds per second


def wire_time(frame: bytes) -> int:
    """Return the picoseconds of a frame (without FCS) at 1 Gb/s, from its preamble to the end of its FCS."""
    return int(GIGABIT_PS) * wire_bytes(len(frame))


class DeliveredFrame(NamedTuple):
    """A frame delivered to a board at 1 Gb/s.

    - ``start``: start of its preamble's first byte, in ps.
    - ``end``: end of its FCS's last byte, in ps.
    - ``frame``: the frame without preamble and FCS.

    A frame begins with a cycle of the PHY's clock. The times are exact if the line was free, that is, if no
    earlier frame to the board delayed this one.
    """

    start: int
    end: int
    frame: bytes


class LoggedBoards(Boards):
    """Boards that log their frames: ``delivered[n]`` are those to board n, ``sent[n]`` those from it."""

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
    """Channel of :class:`fanin.host.board.BoardClient` to a board's control, directly at its first PHY.

    The world runs while the client waits, and the client's seconds are simulated seconds.

    - ``world``, ``boards``: simulation, and its boards.
    - ``board``: index of the board.
    - ``endpoint``: addresses and UDP port of the board's control.
    - ``host``: addresses and UDP port of the client.
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
        """Send a request to the board; yield payloads of its datagrams to the host for ``timeout`` seconds.

        The method is a generator: it sends the request, and time passes, only at the first ``next()``.
        """
        world, sent = self._world, self._boards.sent[self._board]
        count, end = len(sent), world.time + round(timeout * _PS)
        self._boards.send(self._board, encode_udp(payload, source=self._host, destination=self.endpoint))
        while world.time < end:
            world.run(min(end, world.time + _STEP_PS))
            received, count = sent[count:], len(sent)
            for transmission in received:
                if not transmission.fault and (data := self._reply(transmission.data)) is not None:
                    yield data

    def _reply(self, frame: bytes) -> bytes | None:
        """Return the payload of a datagram from the board's control to the host; None for any other frame.

        The board also sends frames of its node, and answers to ARP and echo requests.
        """
        if len(frame) < _PAYLOAD_AT:
            return None
        ethernet, ip = unpack_fields(ETHERNET, frame), unpack_fields(IPV4, frame[_IP_AT:])
        udp = unpack_fields(UDP, frame[_UDP_AT:])
        is_reply = (
            (ethernet["destination"], ethernet["ethertype"]) == (self._host.mac, ETHERTYPE_IPV4)
            and (ip["version"], ip["ihl"], ip["protocol"]) == (4, 5, IP_PROTOCOL_UDP)
            and (ip["source"], ip["destination"]) == (self.endpoint.ip, self._host.ip)
            and (udp["source_port"], udp["destination_port"]) == (self.endpoint.port, self._host.port)
        )
        return frame[_PAYLOAD_AT : _UDP_AT + udp["length"]] if is_reply else None

    def close(self) -> None:
        """Do nothing: there are no resources."""
