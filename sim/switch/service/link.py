"""Messages between the process that forwards and its front, the process that speaks gRPC.

Each message is one datagram of a pair of Unix sockets: the number of a call, a kind, and a payload.
"""

from __future__ import annotations

import contextlib
import enum
import socket
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("!IB")
_END = struct.Struct("!I")
_MAX_DATAGRAM = 1 << 17  # bytes of a datagram
P4INFO, DEVICE, COOKIE = 1, 2, 3  #: fields of ForwardingPipelineConfig; first byte of a fragment of one
BARE_P4INFO = 0  #: first byte of a fragment of P4Info without documentation, which reads never return
FRAGMENT_BYTES = 1 << 15  #: maximum bytes of a divisible part of a request or fragment of an answer
MAX_PART_BYTES = 1 << 15  #: maximum bytes of one update, entity or stream message, which is indivisible


class Kind(enum.IntEnum):
    """Kinds of messages, by sender: the front sends OPEN to CANCEL, the forwarding process the others.

    - ``START``: begin to listen; payload: a joined list of address and name of the program. P4Info follows as
      FRAGMENT and DATA messages, like an answer.
    - ``READY``: the port at which the front listens, as a decimal number; 0 if the address is unavailable.
    - ``OPEN``: a call has begun; payload: its method, a space, and the address of the peer.
    - ``PART``: the next part of a call's request, in reply to NEXT.
    - ``LAST``: the request has no more parts.
    - ``CREDIT``: number of bytes of answers that the client has read since the last CREDIT, in decimal.
    - ``CANCEL``: the client has ended the call.
    - ``NEXT``: request for the next part.
    - ``FRAGMENT``: a fragment of an answer that is not the last fragment.
    - ``DATA``: an answer, or its last fragment.
    - ``STATUS``: a joined list (:func:`fanin.sim.switch.service.protobuf.join`) of ``p4.Error``, one for each
      part of a batch.
    - ``END``: the call has ended; payload: status code and text.
    - ``KILL``: like END, but without waiting for the client to take the remaining answers.
    """

    START = 1
    READY = 2
    OPEN = 3
    PART = 4
    LAST = 5
    CREDIT = 6
    CANCEL = 7
    NEXT = 8
    FRAGMENT = 9
    DATA = 10
    STATUS = 11
    END = 12
    KILL = 13


class Message(NamedTuple):
    """A message: the number of its call, its kind, its payload."""

    call: int
    kind: Kind
    payload: bytes


def pair() -> tuple[socket.socket, socket.socket]:
    """Return the two ends of a new link."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def pack(call: int, kind: Kind, payload: bytes = b"") -> bytes:
    """Return the datagram of a message."""
    return _HEADER.pack(call, kind) + payload


def receive(end: socket.socket) -> Message | None:
    """Return the next message; None if the other end is closed. Raises BlockingIOError."""
    try:
        data = end.recv(_MAX_DATAGRAM)
    except ConnectionError:
        return None
    if not data:
        return None
    call, kind = _HEADER.unpack_from(data)
    return Message(call, Kind(kind), data[_HEADER.size :])


class Link:
    """The forwarding process's end of a link to the front; its methods never block.

    Messages for which the socket has no room wait in a backlog, which
    :class:`fanin.sim.switch.service.calls.Call` bounds.
    """

    def __init__(self, end: socket.socket):
        end.setblocking(False)
        self._end = end
        self._backlog: deque[bytes] = deque()

    @property
    def has_backlog(self) -> bool:
        """True while messages wait for room in the socket."""
        return bool(self._backlog)

    def fileno(self) -> int:
        """Return the file number of the socket."""
        return self._end.fileno()

    def send(self, call: int, kind: Kind, payload: bytes = b"") -> None:
        """Send a message, after those in the backlog; without room it joins the backlog."""
        self._backlog.append(pack(call, kind, payload))
        self.flush()

    def flush(self) -> None:
        """Send messages of the backlog until the socket has no more room."""
        try:
            while self._backlog:
                self._end.send(self._backlog[0])
                self._backlog.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the front has gone; ``receive`` reports it
            self._backlog.clear()

    def receive(self) -> Message | None:
        """Return the next message; None if the front has gone. Raises BlockingIOError if there is none."""
        return receive(self._end)

    def shut(self) -> None:
        """End the link at both ends; the socket stays open."""
        with contextlib.suppress(OSError):  # the link has already ended
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._end.close()


def answer_fragments(data: bytes) -> Iterator[tuple[Kind, bytes]]:
    """Yield kinds and payloads of an answer's messages: FRAGMENT, …, DATA."""
    for begin in range(0, max(len(data), 1), FRAGMENT_BYTES):
        last = begin + FRAGMENT_BYTES >= len(data)
        yield Kind.DATA if last else Kind.FRAGMENT, data[begin : begin + FRAGMENT_BYTES]


def encode_end(code: int, text: str) -> bytes:
    """Return the payload of an END or KILL message."""
    return _END.pack(code) + text.encode(errors="replace")


def decode_end(payload: bytes) -> tuple[int, str]:
    """Return status code and text of the payload of an END or KILL message."""
    return _END.unpack_from(payload)[0], payload[_END.size :].decode(errors="replace")
