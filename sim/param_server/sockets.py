"""Measured cost of TCP at a host: two threads of this machine exchange messages over loopback."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

MESSAGES = 300
SMALL = 4  # bytes
_TIMEOUT = 30.0  # seconds without a byte


@dataclass(frozen=True)
class Sockets:
    """Measured costs of TCP at a host.

    - ``byte``: processor seconds per byte of a message at one end, averaged over both ends.
    - ``latency``: seconds from sending a small message to having received it.
    """

    byte: float
    latency: float


def measure(size: int) -> Sockets:
    """Measure messages of ``size`` bytes, for about a tenth of a second.

    The costs include copies, system calls and TCP's own work, but no link, NIC or interrupts. Processor seconds
    do not depend on other load of the machine. Raises OSError if loopback does not work.
    """
    _, cpu_seconds = _exchange(size)
    round_trips, _ = _exchange(SMALL)
    return Sockets(byte=cpu_seconds / (2 * 2 * MESSAGES * size), latency=min(round_trips) / 2)


def _exchange(size: int) -> tuple[list[float], float]:
    """Send messages back and forth; return the seconds of each pair, and the processor seconds of both ends."""
    cpu_seconds: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_TIMEOUT)
        with socket.create_connection(listener.getsockname(), _TIMEOUT) as client:
            server, _ = listener.accept()
            with server:
                echo = threading.Thread(target=_echo_messages, args=(server, size, cpu_seconds), daemon=True)
                echo.start()
                round_trips = _send_messages(client, size, cpu_seconds)
                echo.join(_TIMEOUT)
    return round_trips, sum(cpu_seconds)


def _send_messages(end: socket.socket, size: int, cpu_seconds: list[float]) -> list[float]:
    buffer, round_trips = _prepare(end, size), []
    start = time.thread_time()
    for _ in range(MESSAGES):
        sent = time.perf_counter()
        end.sendall(buffer)
        _receive(end, buffer)
        round_trips.append(time.perf_counter() - sent)
    cpu_seconds.append(time.thread_time() - start)
    return round_trips


def _echo_messages(end: socket.socket, size: int, cpu_seconds: list[float]) -> None:
    buffer = _prepare(end, size)
    start = time.thread_time()
    for _ in range(MESSAGES):
        _receive(end, buffer)
        end.sendall(buffer)
    cpu_seconds.append(time.thread_time() - start)


def _prepare(end: socket.socket, size: int) -> bytearray:
    end.settimeout(_TIMEOUT)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bytearray(size)


def _receive(end: socket.socket, buffer: bytearray) -> None:
    unread = memoryview(buffer)
    while unread:
        count = end.recv_into(unread)
        if not count:
            raise ConnectionError("loopback: the other end is closed")
        unread = unread[count:]
