"""Connections between the simulators of ranks, made by the processes that start the simulators."""

from __future__ import annotations

import hmac
import resource
import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fanin.host.lobby import Lobby

TIMEOUT = 60.0  # seconds in which all ranks must have connected
_ANSWER = 600.0  # seconds in which rank 0 must answer; before, it sends orders to all ranks, one after another
_OTHER_FILES = 256  # files that a process may have open, in addition to a socket per rank
_HELLO = struct.Struct("<I32s32s")  # rank of the socket's owner, its nonce, and its proof
_PROOF = 32  # bytes of a proof: HMAC-SHA256 by the meeting's secret, which is never sent


class RendezvousFailed(Exception):
    """A rank has not connected in time, or rank 0 cannot be reached."""


@dataclass(frozen=True)
class Place:
    """Address where rank 0 listens, and a secret, sent by MPI. Both sides prove that they know the secret."""

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
                    if rank is None or rank in sockets or not self._answered(guest, hello):
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
        """Return the rank of a guest; None for a stranger."""
        rank, nonce, proof = _HELLO.unpack(hello)
        known = hmac.compare_digest(proof, _proof(self.place, b"guest", rank, nonce))
        return rank if known and 0 < rank < len(self._names) else None

    def _answered(self, guest: socket.socket, hello: bytes) -> bool:
        """Send rank 0's proof to a rank; return whether the rank is still connected."""
        rank, nonce, _ = _HELLO.unpack(hello)
        try:
            guest.sendall(_proof(self.place, b"host", rank, nonce))
        except OSError:
            return False
        return True


def _proof(place: Place, role: bytes, rank: int, nonce: bytes) -> bytes:
    """Return the proof that a side knows the secret; the guest's ``nonce`` makes each proof a new one."""
    return hmac.digest(place.secret, role + struct.pack("<I", rank) + nonce, "sha256")


def _allow_open_files(files: int) -> None:
    """Raise the limit of open files for this process and its simulator to ``files``, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if resource.RLIM_INFINITY != soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def connect(place: Place, rank: int) -> socket.socket:
    """Connect as another rank than 0, and wait for rank 0's proof; its data are unpickled.

    Raises RendezvousFailed.
    """
    try:
        channel, check = greet(place, rank)
        try:
            check()
        except BaseException:
            channel.close()
            raise
    except OSError as error:
        raise RendezvousFailed(f"{place.host}, port {place.port} cannot be reached: {error}") from None
    return _configure(channel)


def greet(place: Place, rank: int) -> tuple[socket.socket, Callable[[], None]]:
    """Connect and send a rank's hello; return the socket, and the check of rank 0's answer. Raises OSError."""
    nonce = secrets.token_bytes(32)
    channel = socket.create_connection((place.host, place.port), TIMEOUT)
    channel.sendall(_HELLO.pack(rank, nonce, _proof(place, b"guest", rank, nonce)))

    def check() -> None:
        answer = _received(channel, _PROOF, time.monotonic() + _ANSWER)
        if not hmac.compare_digest(answer, _proof(place, b"host", rank, nonce)):
            raise RendezvousFailed(f"{place.host}, port {place.port}: not rank 0 of this run answers")

    return channel, check


def _received(channel: socket.socket, size: int, until: float) -> bytes:
    """Receive ``size`` bytes, or fewer if the peer ends before. Raises TimeoutError after ``until``."""
    data = b""
    while len(data) < size:
        channel.settimeout(max(until - time.monotonic(), 0.001))
        part = channel.recv(size - len(data))
        if not part:
            break
        data += part
    return data


def _configure(channel: socket.socket) -> socket.socket:
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # send each report at once
    channel.settimeout(None)  # the simulator sets its own timeout
    return channel
