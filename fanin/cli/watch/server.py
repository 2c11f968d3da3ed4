"""HTTP server of ``fanin watch``: a page, its numbers and reports, bound to 127.0.0.1."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase, BytesIO
from typing import Any, BinaryIO, cast

from fanin.base.errors import InputError
from fanin.cli.watch.state import WatchedRun
from fanin.report.html import fill
from fanin.runs.output import finite

ADDRESS = "127.0.0.1"
HTTP_PORT = 80  # browsers leave this port out of the header Host
REQUEST_SECONDS = 10  # maximum duration of a request with its answer
REQUEST_BYTES = 1 << 16  # maximum size of a request with its headers
CONNECTIONS = 32  # maximum number of open connections
READ_BYTES = 1 << 16  # size of one read of a report
HTML, JSON, TEXT = (f"{kind}; charset=utf-8" for kind in ("text/html", "application/json", "text/plain"))
#: The page may run its own script and request its data; everything else is blocked.
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
COMMON_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class WatchServer(ThreadingHTTPServer):
    """HTTP server of a run's page on 127.0.0.1. Raises InputError if the port is not available.

    A connection takes one request of at most ``REQUEST_BYTES``. The server closes a connection that is older
    than ``REQUEST_SECONDS`` at its next loop. If there are more than ``CONNECTIONS``, it closes the oldest at
    once.

    - ``run``: the run that the page shows.
    - ``port``: TCP port; 0: any free port.
    """

    def __init__(self, run: WatchedRun, port: int):
        self.run = run
        self._open: dict[socket.socket, float] = {}  # start time by connection, oldest first
        self.page = fill("watch.html.j2", folder=str(run.folder)).encode()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            raise InputError(f"--port {port}: cannot be used: {error.strerror or error}") from error

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error, except that of a browser that disconnects during an answer."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle the request in a separate thread."""
        self._open[request] = time.monotonic()
        for oldest in list(self._open)[:-CONNECTIONS]:
            self._disconnect(oldest)
        if len(self._open) > 2 * CONNECTIONS:  # threads of closed connections still run
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Close connections that are too old; the server's loop calls the method at each iteration."""
        for request, start in list(self._open.items()):
            if time.monotonic() - start > REQUEST_SECONDS:
                self._disconnect(request)

    def _disconnect(self, request: socket.socket) -> None:
        """Shut down a connection's socket; its thread wakes and closes the connection."""
        with contextlib.suppress(OSError):  # already closed
            request.shutdown(socket.SHUT_RDWR)

    @property
    def url(self) -> str:
        """URL of the page."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """Host headers of local browsers. Another value is a foreign page's name that resolves to this host."""
        names = (ADDRESS, "localhost")
        portless = set(names) if self.server_port == HTTP_PORT else set()
        return {f"{name}:{self.server_port}" for name in names} | portless


class _Lines:
    """Lines of a request. Raises ConnectionAbortedError if they exceed ``REQUEST_BYTES``."""

    def __init__(self, stream: BufferedIOBase):
        self._stream, self._bytes_left = stream, REQUEST_BYTES

    def readline(self, size: int) -> bytes:
        """Return the next line, as a stream does."""
        line = self._stream.readline(min(size, self._bytes_left + 1))
        self._bytes_left -= len(line)
        if self._bytes_left < 0:
            raise ConnectionAbortedError(f"a request of more than {REQUEST_BYTES} bytes")
        return line

    def close(self) -> None:
        """Close the stream."""
        self._stream.close()


class _Handler(BaseHTTPRequestHandler):
    """Handler of one request: the page, its numbers, or a report."""

    timeout = REQUEST_SECONDS

    def setup(self) -> None:
        """Limit the size of the request."""
        super().setup()
        self.rfile = cast(BufferedIOBase, _Lines(self.rfile))

    def do_GET(self) -> None:
        """Select the answer by the complete path; no file name is derived from the path."""
        server = cast(WatchServer, self.server)
        if not self._is_local_name(server):
            return
        if self.path == "/":
            self._answer(HTTPStatus.OK, HTML, server.page, {"Content-Security-Policy": PAGE_POLICY})
        elif self.path == "/progress":
            self._answer(HTTPStatus.OK, JSON, json.dumps(finite(server.run.progress())).encode())
        elif report := server.run.open_report(self.path):
            with report:
                self._answer(HTTPStatus.OK, HTML, report)
        else:
            self._answer(HTTPStatus.NOT_FOUND, TEXT, b"not found\n")

    def _refuse(self) -> None:
        if self._is_local_name(cast(WatchServer, self.server)):
            self._answer(HTTPStatus.METHOD_NOT_ALLOWED, TEXT, b"GET alone\n", {"Allow": "GET"})

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _is_local_name(self, server: WatchServer) -> bool:
        """Return whether Host is local; refuse other names: a foreign page may bind one to 127.0.0.1."""
        if self.headers.get_all("Host", []) in [[host] for host in server.hosts]:
            return True
        self._answer(HTTPStatus.FORBIDDEN, TEXT, b"another host's name\n")
        return False

    def _answer(
        self, status: HTTPStatus, kind: str, body: bytes | BinaryIO, headers: dict[str, str] | None = None
    ) -> None:
        """Answer with a text, or with a file in blocks, so that a client that does not read holds only one."""
        size = len(body) if isinstance(body, bytes) else os.fstat(body.fileno()).st_size
        self.send_response(status)
        length = {"Content-Type": kind, "Content-Length": str(size)}
        for name, value in (length | COMMON_HEADERS | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        file = BytesIO(body) if isinstance(body, bytes) else body
        while size and (block := file.read(min(size, READ_BYTES))):
            self.wfile.write(block)
            size -= len(block)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: the terminal shows only the address."""
