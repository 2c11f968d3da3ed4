"""Connections at a listening socket, of which each says first, in so many bytes, who it is."""

from __future__ import annotations

import selectors
import socket
import time
from types import TracebackType
from typing import Self

MOST = 256  #: connections that have not said yet who they are


class Lobby:
    """Takes connections at ``server``, and waits for a hello of ``size`` bytes on all of them at once.

    So one that says nothing holds up no other. Of more than ``MOST`` the one that came first is closed. The
    server is its owner's.
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
        """The next connection that has said its hello, which blocks, and the hello.

        Raises TimeoutError at ``deadline``, a time of the monotonic clock, and OSError where nothing can be
        taken, as without descriptors.
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
        except (BlockingIOError, ConnectionAbortedError):  # it has gone again
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
