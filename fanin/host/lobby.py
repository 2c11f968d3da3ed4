"""Accepts connections at a listening socket that each identify themselves by a hello of fixed size."""

from __future__ import annotations

import selectors
import socket
import time
from types import TracebackType
from typing import Self

MOST = 256  #: most connections whose hello is incomplete


class Lobby:
    """Accepts connections at ``server``, and waits for a hello of ``size`` bytes on all of them at once.

    A connection that sends nothing does not delay the others. Above ``MOST`` such connections the oldest one is
    closed. The server remains open afterwards.
    """

    def __init__(self, server: socket.socket, size: int):
        self._server, self._size = server, size
        self._said: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for connection in self._said:
            connection.close()
        self._selector.close()

    def next(self, deadline: float) -> tuple[socket.socket, bytes]:
        """Return the next connection with a complete hello, in blocking mode, and the hello.

        Raises TimeoutError at ``deadline``, a time of the monotonic clock, and OSError if no connection can be
        accepted, for example for lack of descriptors.
        """
        while True:
            ready = self._selector.select(max(deadline - time.monotonic(), 0))
            for key, _ in ready:
                if key.fileobj is self._server:
                    self._take()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._said:
                    hello = self._hear(key.fileobj)
                    if hello is not None:
                        return key.fileobj, hello
            if time.monotonic() >= deadline:
                raise TimeoutError

    def _take(self) -> None:
        try:
            connection, _ = self._server.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has closed it already
            return
        if len(self._said) >= MOST:
            self._leave(next(iter(self._said))).close()
        connection.setblocking(False)
        self._said[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)

    def _hear(self, connection: socket.socket) -> bytes | None:
        try:
            said = connection.recv(self._size - len(self._said[connection]))
        except BlockingIOError:
            return None
        except OSError:
            said = b""
        if not said:
            self._leave(connection).close()
            return None
        self._said[connection] += said
        hello = self._said[connection]
        if len(hello) < self._size:
            return None
        self._leave(connection).setblocking(True)
        return hello

    def _leave(self, connection: socket.socket) -> socket.socket:
        del self._said[connection]
        self._selector.unregister(connection)
        return connection
