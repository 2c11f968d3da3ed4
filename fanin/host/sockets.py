"""Sockets whose data an INCEPTIONN NIC compresses: the paper's interface for programs (section VI-B).

``refuse_self`` is for clients that retry a connection until their server listens.
"""

from __future__ import annotations

import errno
import os
import socket
import struct

from fanin.codec.facts import FLOAT_BITS, TOS_COMPRESSIBLE

MIN_MSS, MAX_MSS = 88, 32_764  # Linux's limits, rounded to whole values
_VALUE_BYTES = FLOAT_BITS // 8


def compressed(sock: socket.socket, *, mss: int | None = None) -> socket.socket:
    """Request that the NIC compresses all data of ``sock`` from now on: float32, little-endian. Returns
    ``sock``.

    The socket is IPv4, TCP or UDP. Its peer needs this call only if it sends values, too. While this holds, all
    values of a TCP connection must be at multiples of 4 bytes from the connection's first byte. Values lose
    precision within the NIC's bound. Without such NICs nothing changes.

    ``mss``: bytes per segment, a multiple of 4, set before the socket connects or listens. It is needed only if
    the path's MTU is not a multiple of 4: segments that begin inside a value are not compressed. Raises
    ValueError for another socket or size, OSError if the kernel refuses.
    """
    if sock.family != socket.AF_INET:
        raise ValueError(f"sock must be an IPv4 socket, not {sock.family.name}")
    if mss is not None:
        limit_segments(sock, mss)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, TOS_COMPRESSIBLE)
    return sock


def limit_segments(sock: socket.socket, mss: int) -> None:
    """Limit an unconnected TCP socket to segments of ``mss`` bytes; raises as ``compressed`` does."""
    if mss % _VALUE_BYTES or not MIN_MSS <= mss <= MAX_MSS:
        raise ValueError(f"mss must be a multiple of {_VALUE_BYTES} from {MIN_MSS} to {MAX_MSS}, not {mss!r}")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)


def refuse_self(connection: socket.socket) -> None:
    """Close a TCP connection that is connected to itself, and raise ConnectionRefusedError; else do nothing.

    The kernel makes such a connection if no server listens and it has chosen the server's port as the client's
    own. Closing frees the port at once. Raises OSError for a connection that has ended.
    """
    try:
        if connection.getsockname() == connection.getpeername():
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
    except OSError:
        connection.close()
        raise
