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
    """Measured costs.

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
    _, spent = _exchange(size)
    waits, _ = _exchange(SMALL)
    return Sockets(byte=spent / (2 * 2 * MESSAGES * size), latency=min(waits) / 2)


def _exchange(size: int) -> tuple[list[float], float]:
    """Send messages back and forth; return the seconds of each pair, and the processor seconds of both ends."""
    spent: list[float] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(_TIMEOUT)
        with socket.create_connection(listener.getsockname(), _TIMEOUT) as here:
            there, _ = listener.accept()
            with there:
                answers = threading.Thread(target=_answer, args=(there, size, spent), daemon=True)
                answers.start()
                waits = _ask(here, size, spent)
                answers.join(_TIMEOUT)
    return waits, sum(spent)


def _ask(end: socket.socket, size: int, spent: list[float]) -> list[float]:
    buffer, waits = _prepare(end, size), []
    began = time.thread_time()
    for _ in range(MESSAGES):
        sent = time.perf_counter()
        end.sendall(buffer)
        _receive(end, buffer)
        waits.append(time.perf_counter() - sent)
    spent.append(time.thread_time() - began)
    return waits


def _answer(end: socket.socket, size: int, spent: list[float]) -> None:
    buffer = _prepare(end, size)
    began = time.thread_time()
    for _ in range(MESSAGES):
        _receive(end, buffer)
        end.sendall(buffer)
    spent.append(time.thread_time() - began)


def _prepare(end: socket.socket, size: int) -> bytearray:
    end.settimeout(_TIMEOUT)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return bytearray(size)


def _receive(end: socket.socket, buffer: bytearray) -> None:
    left = memoryview(buffer)
    while left:
        count = end.recv_into(left)
        if not count:
            raise ConnectionError("loopback: the other end is closed")
        left = left[count:]
