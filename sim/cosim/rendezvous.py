"""Connections between the simulators of ranks, made by the processes that start the simulators."""

from __future__ import annotations

import hmac
import resource
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from fanin.host.lobby import Lobby

TIMEOUT = 60.0  # seconds in which all ranks must have connected
_OTHER_FILES = 256  # files that a process may have open, in addition to a socket per rank
_HELLO = struct.Struct("<32sI")  # the meeting's secret, and the rank of the socket's owner


class RendezvousFailed(Exception):
    """A rank has not connected in time, or rank 0 cannot be reached."""


@dataclass(frozen=True)
class Place:
    """Address where rank 0 listens, and a secret that identifies the ranks of this run; sent by MPI."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class Listener:
    """Rank 0's side: ``names`` of all ranks, for messages, and ``hosts``, their machines."""

    def __init__(self, names: Sequence[str], hosts: Sequence[str]):
        _allow_open_files(len(names) + _OTHER_FILES)
        local = len(set(hosts)) == 1
        self._names = names
        self._socket = socket.create_server(("127.0.0.1" if local else "", 0), backlog=socket.SOMAXCONN)
        host = "127.0.0.1" if local else hosts[0]
        self.place = Place(host, self._socket.getsockname()[1], secrets.token_bytes(32))

    def accept(self) -> list[socket.socket]:
        """Return a socket to each other rank, by rank, and stop listening. Raises RendezvousFailed."""
        sockets: dict[int, socket.socket] = {}
        deadline = time.monotonic() + TIMEOUT
        try:
            with Lobby(self._socket, _HELLO.size) as lobby:
                while len(sockets) < len(self._names) - 1:
                    guest, hello = lobby.next(deadline)
                    rank = self._rank_in(hello)
                    if rank is None or rank in sockets:
                        guest.close()  # no rank of this run, for instance a port scanner
                    else:
                        sockets[rank] = _configure(guest)
        except BaseException as error:  # an interrupt, or no more descriptors: close so that no guest waits
            for guest in sockets.values():
                guest.close()
            if not isinstance(error, TimeoutError):
                raise
            missing = next(rank for rank in range(1, len(self._names)) if rank not in sockets)
            address = f"port {self.place.port} of {self.place.host}"
            raise RendezvousFailed(
                f"{self._names[missing]} has not connected to {address} for {TIMEOUT:g} s"
            ) from None
        finally:
            self.close()
        return [sockets[rank] for rank in sorted(sockets)]

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _rank_in(self, hello: bytes) -> int | None:
        """Return the rank that a hello names; None if its secret or rank is wrong."""
        secret, rank = _HELLO.unpack(hello)
        is_valid = hmac.compare_digest(secret, self.place.secret) and 0 < rank < len(self._names)
        return rank if is_valid else None


def _allow_open_files(files: int) -> None:
    """Raise the limit of open files for this process and its simulator to ``files``, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if resource.RLIM_INFINITY != soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def connect(place: Place, rank: int) -> socket.socket:
    """Return the socket of ``rank``, which is not 0, to rank 0. Raises RendezvousFailed."""
    try:
        channel = socket.create_connection((place.host, place.port), TIMEOUT)
        channel.sendall(_HELLO.pack(place.secret, rank))
    except OSError as error:
        raise RendezvousFailed(f"{place.host}, port {place.port} cannot be reached: {error}") from None
    return _configure(channel)


def _configure(channel: socket.socket) -> socket.socket:
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send each report at once
    channel.settimeout(None)  # the simulator sets its own timeout
    return channel
