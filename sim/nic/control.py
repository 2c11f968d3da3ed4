"""Control socket of a running node: JSON lines from local programs, similar to QEMU's and SPDK's."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fanin.base.errors import InputError
from fanin.base.records import parse_json

Request = dict[str, Any]
Answer = Callable[[Request], bool]  # returns False if the client has disconnected
MAX_LINE = 1 << 16  #: bytes of a request
MAX_UNREAD = 1 << 20  #: bytes of answers that a client has not read
MAX_CLIENTS = 64  #: connections at a time
MAX_UNANSWERED = 1 << 14  #: requests without an answer, of all clients, disconnected ones included
_MAX_PATH = 107  # longest path in struct sockaddr_un
_READ_BYTES = 1 << 12  # bytes read from a client per turn: as many short requests keep the node busy for 0.1 s


def check_control(path: Path) -> None:
    """Raise InputError unless a control socket can be made at ``path``; remove a killed process's socket."""
    if len(os.fsencode(path)) > _MAX_PATH:
        raise InputError(f"--control {path}: must have at most {_MAX_PATH} bytes")
    if not path.parent.is_dir():
        raise InputError(f"--control {path}: there is no folder {path.parent}")
    if not os.path.lexists(path):
        return
    if not stat.S_ISSOCK(path.lstat().st_mode):
        raise InputError(f"--control {path}: exists, and is no socket")
    with socket.socket(socket.AF_UNIX) as other:
        try:
            other.connect(str(path))
        except ConnectionRefusedError:
            _remove(path)
        except OSError as error:
            raise InputError(f"--control {path}: {error.strerror}") from error
        else:
            raise InputError(f"--control {path}: in use by another process")


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"--control {path}: is left from another process: {error.strerror}") from error


class _Client:
    """A connection, its unfinished line, and its unread answers."""

    def __init__(self, connection: socket.socket):
        self.socket = connection
        self.unfinished, self.unsent = b"", bytearray()


class ControlServer:
    """Server of JSON requests: passes each line of a connection to ``handle``, with a function to answer it.

    An answer is a line with the request's ``id``, if the request has one. A line that is no JSON object is
    answered by an ``error``; so is each request while ``MAX_UNANSWERED`` requests wait. Nothing blocks: a
    client with ``MAX_UNREAD`` bytes of unread answers is disconnected, and so are clients beyond
    ``MAX_CLIENTS``. Only the socket's owner may use it (mode 0600). Poll ``fileno()``, and call ``serve`` when
    it is readable.
    """

    def __init__(self, path: Path, handle: Callable[[Request, Answer], None]):
        self._path, self._handle = path, handle
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        old_umask = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        except OSError as error:
            self._listener.close()
            raise InputError(f"--control {path}: {error.strerror}") from error
        finally:
            os.umask(old_umask)
        self._listener.listen()
        self._clients = self._unanswered = 0
        self._selector = selectors.EpollSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def fileno(self) -> int:
        """Return a file descriptor that is readable when ``serve`` has work."""
        return self._selector.fileno()

    def serve(self) -> bool:
        """Handle all pending events; return whether there were any."""
        ready = self._selector.select(0)
        for key, events in ready:
            if key.data is None:
                self._accept()
                continue
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                self._read(key.data)
        return bool(ready)

    def close(self) -> None:
        """Disconnect all clients, and remove the socket."""
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                key.data.socket.close()
        self._selector.close()
        self._listener.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the client has already disconnected
            connection, _ = self._listener.accept()
            if self._clients == MAX_CLIENTS:
                connection.close()
                return
            self._clients += 1
            connection.setblocking(False)
            self._selector.register(connection, selectors.EVENT_READ, _Client(connection))

    def _read(self, client: _Client) -> None:
        try:
            received = client.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        *lines, client.unfinished = (client.unfinished + received).split(b"\n")
        for line in lines:
            self._handle_line(client, line)
            if client.socket.fileno() < 0:
                return  # disconnected because of unread answers
        if not received or len(client.unfinished) > MAX_LINE:
            self._disconnect(client)

    def _handle_line(self, client: _Client, line: bytes) -> None:
        if not line.strip():
            return
        try:
            request = parse_json(line)
        except ValueError as error:
            self._send(client, {"error": f"no JSON: {error}"})
            return
        if not isinstance(request, dict):
            self._send(client, {"error": "a request must be a JSON object"})
            return
        request_id = {"id": request.pop("id")} if "id" in request else {}
        if self._unanswered == MAX_UNANSWERED:
            self._send(client, request_id | {"error": f"{MAX_UNANSWERED} requests wait for their answers"})
            return
        self._unanswered += 1
        self._handle(request, lambda answer: self._answer(client, request_id | answer))

    def _answer(self, client: _Client, answer: Request) -> bool:
        self._unanswered -= 1
        return self._send(client, answer)

    def _send(self, client: _Client, answer: Request) -> bool:
        client.unsent += json.dumps(answer).encode() + b"\n"
        return self._flush(client)

    def _flush(self, client: _Client) -> bool:
        """Send pending answers as far as the client reads them; return whether it is still connected."""
        if client.socket.fileno() < 0:
            return False
        try:
            while client.unsent:
                del client.unsent[: client.socket.send(client.unsent)]
        except BlockingIOError:
            pass
        except OSError:  # the client has disconnected
            self._disconnect(client)
            return False
        if len(client.unsent) > MAX_UNREAD:
            self._disconnect(client)
            return False
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if client.unsent else 0)
        if self._selector.get_key(client.socket).events != events:
            self._selector.modify(client.socket, events, client)
        return True

    def _disconnect(self, client: _Client) -> None:
        if client.socket.fileno() >= 0:
            self._clients -= 1
            self._selector.unregister(client.socket)
            client.socket.close()
