"""ICMP echo requests from a network namespace, by a raw socket, as ``ping`` sends them."""

import os
import select
import socket
import struct
import time

_REQUEST, _REPLY = 8, 0  # ICMP types
_HEADER = struct.Struct("!BBHHH")  # type, code, checksum, identifier, sequence number


def _checksum(data):
    """Checksum of RFC 1071, independent of fanin's own; 0 over a message that holds the right one."""
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def _encode(identifier, sequence, data):
    checksum = _checksum(_HEADER.pack(_REQUEST, 0, 0, identifier, sequence) + data)
    return _HEADER.pack(_REQUEST, 0, checksum, identifier, sequence) + data


def _ttl(packet, identifier, sequence, data):
    """TTL of an IP packet if it is the reply to the request, checksum and data intact; otherwise None."""
    message = packet[4 * (packet[0] & 15) :]
    if len(message) < _HEADER.size or _checksum(message):
        return None
    kind, code, _, *numbers = _HEADER.unpack_from(message)
    is_reply = (kind, code, *numbers) == (_REPLY, 0, identifier, sequence)
    return packet[8] if is_reply and message[_HEADER.size :] == data else None


def echo_requests(lab, namespace, address, *, count=1, size=56, timeout=5.0):
    """Send ``count`` echo requests one after the other; return the TTL of each reply.

    A request that cannot be sent, or has no reply within ``timeout`` seconds, adds nothing.
    ``size``: bytes of data.
    """
    identifier, data = int.from_bytes(os.urandom(2)), bytes(index % 251 for index in range(size))
    replies = []
    with lab.opened(
        namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    ) as raw:
        for sequence in range(count):
            end = time.monotonic() + timeout
            try:
                raw.sendto(_encode(identifier, sequence, data), (address, 0))
            except OSError:
                continue
            while (left := end - time.monotonic()) > 0:
                if not select.select([raw], [], [], left)[0]:
                    break
                if (ttl := _ttl(raw.recv(1 << 16), identifier, sequence, data)) is not None:
                    replies.append(ttl)
                    break
    return replies
