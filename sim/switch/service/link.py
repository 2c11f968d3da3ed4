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
_MAX = 1 << 17  # bytes of a datagram
P4INFO, DEVICE, COOKIE = 1, 2, 3  #: fields of ForwardingPipelineConfig, which begin pieces of one
ESSENCE = 0  #: begins pieces of P4Info without its documentation, which is never returned
PIECE_BYTES = 1 << 15  #: bytes of a part of a request or of a piece of an answer, if it can be divided
MAX_PART_BYTES = 1 << 15  #: bytes of one update, entity or stream message, which cannot


class Kind(enum.IntEnum):
    """Kinds of messages, by sender: the front sends OPEN to CANCEL, the forwarding process the others.

    ``START``: begin to listen; payload: a joined list of address and name of the program. P4Info follows as an
    answer does, in PIECE and DATA.
    ``READY``: the port that the front listens at, as a decimal number; 0 if the address cannot be had.
    ``OPEN``: a call has begun; payload: its method, a space, and the address of the peer.
    ``PART``: the next part of a call's request, which MORE has asked for.
    ``LAST``: the request has no more parts.
    ``TAKEN``: the client has taken so many bytes of answers, as a decimal number.
    ``CANCEL``: the call has ended at the client's side.
    ``MORE``: the next part is wanted.
    ``PIECE``: a piece of an answer that is not the last piece.
    ``DATA``: an answer, or its last piece.
    ``STATUS``: a joined list (:func:`fanin.sim.switch.service.protobuf.joined`) of ``p4.Error``, one for each
    part of a batch.
    ``END``: the call has ended; payload: status code and text.
    ``KILL``: as END, without waiting for the client to take the answers that are left.
    """

    START = 1
    READY = 2
    OPEN = 3
    PART = 4
    LAST = 5
    TAKEN = 6
    CANCEL = 7
    MORE = 8
    PIECE = 9
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
    """The two ends of a link."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def packed(call: int, kind: Kind, payload: bytes = b"") -> bytes:
    """A datagram."""
    return _HEADER.pack(call, kind) + payload


def received(end: socket.socket) -> Message | None:
    """The next message; None if the other end is closed. Raises BlockingIOError."""
    try:
        data = end.recv(_MAX)
    except ConnectionError:
        return None
    if not data:
        return None
    call, kind = _HEADER.unpack_from(data)
    return Message(call, Kind(kind), data[_HEADER.size :])


class Link:
    """The forwarding process's end of a link, which never waits.

    Messages for which the socket has no room are kept; :class:`fanin.sim.switch.service.calls.Call` bounds
    them.
    """

    def __init__(self, end: socket.socket):
        end.setblocking(False)
        self._end = end
        self._kept: deque[bytes] = deque()

    @property
    def full(self) -> bool:
        """True while messages are kept."""
        return bool(self._kept)

    def fileno(self) -> int:
        """Of the socket."""
        return self._end.fileno()

    def send(self, call: int, kind: Kind, payload: bytes = b"") -> None:
        """Send a message, or keep it."""
        self._kept.append(packed(call, kind, payload))
        self.flush()

    def flush(self) -> None:
        """Send the messages that were kept, as far as there is room."""
        try:
            while self._kept:
                self._end.send(self._kept[0])
                self._kept.popleft()
        except BlockingIOError:
            pass
        except OSError:  # the front has gone; receive finds it, too
            self._kept.clear()

    def receive(self) -> Message | None:
        """The next message; None if the front has gone. Raises BlockingIOError if there is none."""
        return received(self._end)

    def shut(self) -> None:
        """End the link at both ends; the socket stays open."""
        with contextlib.suppress(OSError):  # it has ended
            self._end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket."""
        self._end.close()


def pieces(data: bytes) -> Iterator[tuple[Kind, bytes]]:
    """An answer as messages: PIECE, …, DATA."""
    for begin in range(0, max(len(data), 1), PIECE_BYTES):
        last = begin + PIECE_BYTES >= len(data)
        yield Kind.DATA if last else Kind.PIECE, data[begin : begin + PIECE_BYTES]


def ending(code: int, text: str) -> bytes:
    """Payload of END and KILL."""
    return _END.pack(code) + text.encode(errors="replace")


def ended(payload: bytes) -> tuple[int, str]:
    """Status code and text of END and KILL."""
    return _END.unpack_from(payload)[0], payload[_END.size :].decode(errors="replace")
