"""TCP connections of a rank in a ring, with diagnosis of the rank that fails.

A rank has two connections to the next rank. *data* carries only values, so NICs may compress it. *notes*
carries frames of JSON in both directions:

- ``{"said": …}``, to the next rank: a rank's note of :meth:`Neighbours.all_gather`.
- ``{"failed": …}``, to the next rank: the reason why a rank gives up. Each rank forwards it, so all ranks
  report the same cause.
- ``{"asked": true}``, to the previous rank: a probe by a rank that receives nothing. The previous rank answers
  ``{"waiting": true}``, to the next rank, if it is waiting, too. If it does not answer, it has failed.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from fanin.base.errors import InputError
from fanin.base.records import parse_json
from fanin.host.lobby import Lobby
from fanin.host.sockets import limit_segments, refuse_self

_FRAME_BYTES = 1024  # of a note, padded with spaces; values after a hello stay at multiples of 4
_MAX_NOTES_AHEAD = 4  # queued notes of the previous rank, per rank: it is at most two rounds ahead
_CAUSE_LENGTH = 150  # characters of another rank's message: fits a frame even if all are escaped
_GRACE_SECONDS = 2.0  # wait for a note in flight or an answer
_RETRY_SECONDS = 0.05  # delay between connection attempts to a rank that does not listen yet
_KINDS = _DATA, _NOTES = "data", "notes"
Address = tuple[str, int]


class Neighbours:
    """TCP connections of ``rank`` with the next and the previous rank of a ring.

    - ``addresses``: host and port of each rank, at least two.
    - ``timeout``: longest wait for another rank, in seconds.
    - ``mss``: bytes of a segment of values, at most; None: the path's.

    Raises InputError if the rank cannot listen at its own address. Raises ConnectionError of one line that
    names the rank if another rank does not connect or has another number of ranks.
    """

    def __init__(self, rank: int, addresses: Sequence[Address], *, timeout: float, mss: int | None):
        for host, port in addresses:
            if not 0 < port < 1 << 16:
                raise InputError(f"{host}:{port}: a port is 1 to {(1 << 16) - 1}")
        self._rank, self._size, self._timeout = rank, len(addresses), timeout
        self._next, self._previous = (rank + 1) % self._size, (rank - 1) % self._size
        self._outgoing: dict[str, socket.socket] = {}
        self._incoming: dict[str, socket.socket] = {}
        self._partial: dict[socket.socket, bytes] = {}  # incomplete notes
        self._notes: deque[Any] = deque()  # notes from the previous rank, in order
        self._note_connections: list[socket.socket] = []  # connections on which notes can still arrive
        self._previous_waits = False  # the previous rank has answered a probe
        self._failure = ""  # cause of the first failure
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            self._join(addresses, mss)
            stack.pop_all()

    @property
    def data(self) -> socket.socket:
        """Connection that carries this rank's values."""
        return self._outgoing[_DATA]

    def close(self) -> None:
        """Close all connections."""
        for connection in (*self._outgoing.values(), *self._incoming.values()):
            connection.close()

    def exchange(self, stream: bytes, size: int) -> bytes:
        """Send ``stream`` to the next rank while receiving ``size`` bytes from the previous one.

        Raises ConnectionError of one line that names a rank, the same on all ranks.
        """
        received = bytearray(size)
        self._transfer(memoryview(stream), memoryview(received))
        return bytes(received)

    def all_gather(self, note: Any) -> list[Any]:
        """Exchange notes with all ranks; return the notes by rank.

        ``note`` must fit a frame as JSON. Raises as ``exchange`` does.
        """
        notes = {self._rank: note}
        for step in range(1, self._size):  # each step forwards the note that the step before has received
            self._send_note(self._outgoing[_NOTES], {"said": note})
            self._transfer(memoryview(b""), memoryview(b""), note=True)
            note = notes[(self._rank - step) % self._size] = self._notes.popleft()
        return [notes[rank] for rank in range(self._size)]

    # ---- joining the ring ----

    def _join(self, addresses: Sequence[Address], mss: int | None) -> None:
        deadline = time.monotonic() + self._timeout
        host, port = addresses[self._rank]
        try:
            server = socket.create_server((host, port))
        except OSError as error:
            raise InputError(f"rank {self._rank}: {host}:{port}: {error.strerror}") from error
        with server:
            for kind in _KINDS:
                self._outgoing[kind] = self._connect(addresses[self._next], kind, deadline, mss)
            hello_deadline = max(deadline, time.monotonic() + _RETRY_SECONDS)
            with Lobby(server, _FRAME_BYTES) as lobby:
                while len(self._incoming) < len(_KINDS):
                    self._accept(lobby, hello_deadline)
        for connection in self._outgoing.values():  # each hello is answered before values follow it
            reply = _read_frame(connection, deadline)
            if reply is None:
                raise ConnectionError(self._absence(self._next))
            if "failed" in reply:
                raise ConnectionError(self._failure_text(reply))
        for connection in (self._outgoing[_DATA], self._incoming[_DATA]):
            connection.settimeout(None)
        self._note_connections = [self._outgoing[_NOTES], self._incoming[_NOTES]]
        for connection in self._note_connections:  # a rank that does not read answers must not block the others
            connection.settimeout(self._timeout)

    def _connect(self, address: Address, kind: str, deadline: float, mss: int | None) -> socket.socket:
        hello = {"rank": self._rank, "ranks": self._size, "kind": kind}
        while True:
            connection = socket.socket()
            try:
                if mss is not None and kind == _DATA:
                    limit_segments(connection, mss)
                connection.settimeout(max(_RETRY_SECONDS, deadline - time.monotonic()))
                connection.connect(address)
                refuse_self(connection)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(_frame(hello))
                return connection
            except OSError as error:
                connection.close()
                if time.monotonic() > deadline:
                    host, port = address
                    raise ConnectionError(
                        f"{self._absence(self._next)}, at {host}:{port}: {error.strerror or error}"
                    ) from error
                time.sleep(_RETRY_SECONDS)

    def _accept(self, lobby: Lobby, deadline: float) -> None:
        """Accept a connection of the previous rank; connections without a valid hello are ignored."""
        try:
            connection, data = lobby.next(deadline)
        except TimeoutError as error:
            raise ConnectionError(self._absence(self._previous)) from error
        hello = _note(data)
        if hello is None or hello.get("kind") not in _KINDS:
            connection.close()
            return
        sender = (hello.get("rank"), hello.get("ranks"))
        fits = sender == (self._previous, self._size)
        message = (
            f"rank {sender[0]!r:.40} of {sender[1]!r:.40} has called rank {self._rank} of {self._size}: "
            "all ranks must have the same addresses"
        )
        try:
            connection.sendall(_frame({} if fits else {"failed": message}))
        except OSError:
            connection.close()
            return
        if earlier := self._incoming.get(hello["kind"]):
            earlier.close()
        self._incoming[hello["kind"]] = connection
        if not fits:
            raise ConnectionError(message)

    def _absence(self, rank: int) -> str:
        return f"rank {rank} has not come in {self._timeout:g} s"

    # ---- exchanging messages ----

    def _transfer(self, unsent: memoryview, missing: memoryview, *, note: bool = False) -> None:
        """Send ``unsent`` and fill ``missing``; with ``note``, also wait for the previous rank's note."""
        if self._failure:
            raise ConnectionError(self._failure)
        sender, receiver = self._outgoing[_DATA], self._incoming[_DATA]
        deadline, probes = self._deadline(), 0
        while unsent or missing or (note and not self._notes):
            ready = self._wait_ready([receiver] * bool(missing), [sender] * bool(unsent), deadline)
            if receiver in ready:
                missing = missing[self._receive(receiver, missing) :]
            if sender in ready:
                unsent = unsent[self._send(sender, unsent) :]
            if note and not self._notes and self._previous_is_gone():
                self._fail_lost(self._previous)
            if ready:
                deadline = self._deadline()
            elif time.monotonic() >= deadline:
                probes += 1
                self._probe(bool(missing) or note, last=probes > self._size)
                deadline = self._deadline()

    def _deadline(self) -> float:
        return time.monotonic() + self._timeout

    def _receive(self, connection: socket.socket, buffer: memoryview) -> int:
        try:
            count = connection.recv_into(buffer)
        except OSError:
            count = 0
        return count or self._fail_lost(self._previous)

    def _send(self, connection: socket.socket, stream: memoryview) -> int:
        try:
            return connection.send(stream, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:
            self._fail_lost(self._next)

    def _wait_ready(
        self, reading: Sequence[socket.socket], writing: Sequence[socket.socket], deadline: float
    ) -> set[Any]:
        """Read notes, and return the other connections that are ready by ``deadline``."""
        with selectors.PollSelector() as selector:
            for connection in (*reading, *self._note_connections):
                selector.register(connection, selectors.EVENT_READ)
            for connection in writing:
                selector.register(connection, selectors.EVENT_WRITE)
            ready = {key.fileobj for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
        with_notes = [connection for connection in self._note_connections if connection in ready]
        for connection in with_notes:
            self._read_notes(connection)
        return ready.difference(with_notes)

    # ---- notes ----

    def _read_notes(self, connection: socket.socket) -> None:
        try:
            chunk = connection.recv(1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            self._note_connections.remove(connection)
        buffer = self._partial.get(connection, b"") + chunk
        while len(buffer) >= _FRAME_BYTES:
            if (note := _note(buffer[:_FRAME_BYTES])) is not None:
                self._handle_note(note)
            buffer = buffer[_FRAME_BYTES:]
        self._partial[connection] = buffer

    def _handle_note(self, note: dict[str, Any]) -> None:
        if "failed" in note:
            self._fail(self._failure_text(note))
        if "said" in note:
            self._notes.append(note["said"])
            if len(self._notes) > _MAX_NOTES_AHEAD * self._size:
                self._fail(f"rank {self._previous} sends notes that no rank waits for")
        if "asked" in note:
            self._send_note(self._outgoing[_NOTES], {"waiting": True})
        self._previous_waits |= "waiting" in note

    def _send_note(self, connection: socket.socket, note: dict[str, Any]) -> None:
        try:
            connection.sendall(_frame(note))
        except OSError:
            self._fail_lost(self._next if connection is self._outgoing[_NOTES] else self._previous)

    def _failure_text(self, note: dict[str, Any]) -> str:
        """Return the reason in another rank's failure note."""
        text = note["failed"]
        if isinstance(text, str) and text.isprintable() and text:
            return text[:_CAUSE_LENGTH]
        return f"a rank beside rank {self._rank} has failed, and gives no cause"

    def _previous_is_gone(self) -> bool:
        return self._incoming[_NOTES] not in self._note_connections

    # ---- diagnosis ----

    def _probe(self, waits_for_previous: bool, *, last: bool) -> None:
        """Handle a timeout without progress: raise, unless the previous rank answers that it waits, too.

        - ``waits_for_previous``: True if this rank waits for values or a note; False if it only has to send.
        - ``last``: True raises without a probe, so that ranks that only wait for one another end, too.
        """
        if waits_for_previous and not last and not self._previous_is_gone():
            self._previous_waits = False
            self._send_note(self._incoming[_NOTES], {"asked": True})
            self._serve_notes(lambda: self._previous_waits)
            if self._previous_waits:
                return
        rank = self._previous if waits_for_previous else self._next
        self._fail(f"{self._absence(rank)}, or has stopped answering")

    def _fail_lost(self, rank: int) -> NoReturn:
        """Raise for a connection to ``rank`` that has ended, or for the cause in a note that is in flight."""
        self._serve_notes(lambda: rank == self._previous and self._previous_is_gone())
        self._fail(f"rank {rank} has ended, or closed its connections")

    def _serve_notes(self, done: Callable[[], bool]) -> None:
        """Read and answer notes until ``done()``, for at most the grace period."""
        deadline = time.monotonic() + _GRACE_SECONDS
        while not done() and time.monotonic() < deadline:
            self._wait_ready([], [], deadline)

    def _fail(self, message: str) -> NoReturn:
        """Raise the failure, and report it to the next rank."""
        if not self._failure:
            self._failure = message
            with contextlib.suppress(OSError):
                self._outgoing[_NOTES].sendall(_frame({"failed": message}))
        raise ConnectionError(self._failure)


def _frame(note: dict[str, Any]) -> bytes:
    return json.dumps(note).encode().ljust(_FRAME_BYTES)


def _read_frame(connection: socket.socket, deadline: float) -> dict[str, Any] | None:
    """Read a note by the deadline; return None if none arrives, or something else."""
    buffer, end = b"", max(deadline, time.monotonic() + _RETRY_SECONDS)
    try:
        while len(buffer) < _FRAME_BYTES:
            connection.settimeout(max(end - time.monotonic(), 1e-3))
            chunk = connection.recv(_FRAME_BYTES - len(buffer))
            if not chunk or time.monotonic() > end:
                return None
            buffer += chunk
    except OSError:
        return None
    return _note(buffer)


def _note(data: bytes) -> dict[str, Any] | None:
    """Return the note in a frame; None for other content."""
    try:
        note = parse_json(data)
    except ValueError:
        return None
    return note if isinstance(note, dict) else None
