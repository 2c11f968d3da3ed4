"""Acceptor of connections that each identify themselves by a hello of fixed size."""

from __future__ import annotations

import selectors
import socket
import time
from types import TracebackType
from typing import Self

MAX_PENDING = 256  #: connections whose hello is incomplete, at most


class Lobby:
    """Acceptor of connections at ``server``, which waits for hellos of ``size`` bytes in parallel.

    A connection that sends nothing does not delay the others. Above ``MAX_PENDING`` such connections the oldest
    one is closed. The server remains open afterwards.
    """

    def __init__(self, server: socket.socket, size: int):
        self._server, self._size = server, size
        self._hellos: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        server.setblocking(False)
        self._selector.register(server, selectors.EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for connection in self._hellos:
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
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._hellos:
                    hello = self._receive(key.fileobj)
                    if hello is not None:
                        return key.fileobj, hello
            if time.monotonic() >= deadline:
                raise TimeoutError

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has closed it already
            return
        if len(self._hellos) >= MAX_PENDING:
            self._remove(next(iter(self._hellos))).close()
        connection.setblocking(False)
        self._hellos[connection] = b""
        self._selector.register(connection, selectors.EVENT_READ)

    def _receive(self, connection: socket.socket) -> bytes | None:
        try:
            chunk = connection.recv(self._size - len(self._hellos[connection]))
        except BlockingIOError:
            return None
        except OSError:
            chunk = b""
        if not chunk:
            self._remove(connection).close()
            return None
        self._hellos[connection] += chunk
        hello = self._hellos[connection]
        if len(hello) < self._size:
            return None
        self._remove(connection).setblocking(True)
        return hello

    def _remove(self, connection: socket.socket) -> socket.socket:
        del self._hellos[connection]
        self._selector.unregister(connection)
        return connection
