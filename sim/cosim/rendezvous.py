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

PATIENCE = 60.0  # seconds in which all ranks must have connected
_OTHER_FILES = 256  # files that a process may have open, in addition to a socket per rank
_HELLO = struct.Struct("<32sI")  # the meeting's secret, and the rank of the socket's owner


class NotMet(Exception):
    """Ranks could not connect."""


@dataclass(frozen=True)
class Place:
    """Address where rank 0 listens, and a secret, sent by MPI, which shows that a guest belongs to this run."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class Listener:
    """Rank 0's side: ``names`` of all ranks, for messages, and ``hosts``, their machines."""

    def __init__(self, names: Sequence[str], hosts: Sequence[str]):
        _allow(len(names) + _OTHER_FILES)
        local = len(set(hosts)) == 1
        self._names = names
        self._socket = socket.create_server(("127.0.0.1" if local else "", 0), backlog=socket.SOMAXCONN)
        host = "127.0.0.1" if local else hosts[0]
        self.place = Place(host, self._socket.getsockname()[1], secrets.token_bytes(32))

    def accept(self) -> list[socket.socket]:
        """Return a socket to each other rank, in order of ranks, and stop listening. Raises NotMet."""
        met: dict[int, socket.socket] = {}
        until = time.monotonic() + PATIENCE
        try:
            with Lobby(self._socket, _HELLO.size) as lobby:
                while len(met) < len(self._names) - 1:
                    guest, hello = lobby.next(until)
                    rank = self._rank_in(hello)
                    if rank is None or rank in met:
                        guest.close()  # a stranger, for instance a port scanner
                    else:
                        met[rank] = _tuned(guest)
        except BaseException as error:  # an interrupt, or no more descriptors: close so that no guest waits
            for guest in met.values():
                guest.close()
            if not isinstance(error, TimeoutError):
                raise
            missing = next(rank for rank in range(1, len(self._names)) if rank not in met)
            where = f"port {self.place.port} of {self.place.host}"
            raise NotMet(f"{self._names[missing]} has not connected to {where} for {PATIENCE:g} s") from None
        finally:
            self.close()
        return [met[rank] for rank in sorted(met)]

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _rank_in(self, hello: bytes) -> int | None:
        """Return the rank of a guest; None for a stranger."""
        secret, rank = _HELLO.unpack(hello)
        known = hmac.compare_digest(secret, self.place.secret) and 0 < rank < len(self._names)
        return rank if known else None


def _allow(files: int) -> None:
    """Raise the limit of open files for this process and its simulator to ``files``, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if resource.RLIM_INFINITY != soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def connect(place: Place, rank: int) -> socket.socket:
    """Connect as another rank than 0. Raises NotMet."""
    try:
        channel = socket.create_connection((place.host, place.port), PATIENCE)
        channel.sendall(_HELLO.pack(place.secret, rank))
    except OSError as error:
        raise NotMet(f"{place.host}, port {place.port} cannot be reached: {error}") from None
    return _tuned(channel)


def _tuned(channel: socket.socket) -> socket.socket:
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send each report at once
    channel.settimeout(None)  # the simulator sets its own timeout
    return channel
