"""Hosts at the switch of simulated boards: a queue for this process, UDP sockets, and a TAP device.

Each host is a port of the world's switch. A host's frame enters the network at the world's current time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Protocol

from fanin.base.errors import InputError
from fanin.wire.arp import ARP, ETHERTYPE_ARP, Operation, encode_arp
from fanin.wire.control import MAX_PAYLOAD
from fanin.wire.ethernet import (
    ETHERNET,
    ETHERTYPE_IPV4,
    IP_PROTOCOL_UDP,
    IPV4,
    MIN_FRAME_BYTES,
    UDP,
    Endpoint,
    encode_udp,
)
from fanin.wire.fields import byte_length, unpack_fields

_MAX_BYTES = 65536  # bytes of the largest datagram or TAP frame
_REPLACEMENT_PORTS = range(49152, 65536)  # replacement ports for clients whose own port is taken
MAX_CLIENTS = 4096
_MAX_FRAMES = 64  # most frames taken from a host per step of the world
_SERVER_ADDRESS = "127.0.0.1"
_MAX_NAME = 15  # bytes of a device's name; the kernel truncates longer ones
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
_ETHERNET, _IPV4 = byte_length(ETHERNET), byte_length(IPV4)


class Host(Protocol):
    """A port of the world that belongs to no board."""

    def descriptors(self) -> Sequence[int]:
        """Return the descriptors that become readable when the host has something to send."""

    def receive(self) -> list[bytes]:
        """Return the frames to send now, without FCS, in a bounded number; does not wait."""

    def deliver(self, frame: bytes, time: int) -> None:
        """Receive a frame that has arrived at ``time`` ps."""

    def close(self) -> None:
        """Close sockets and devices."""


class QueueHost:
    """Host of a program in this process: ``send`` queues frames; ``received`` has (time in ps, frame) pairs."""

    def __init__(self) -> None:
        self.received: list[tuple[int, bytes]] = []
        self._waiting: deque[bytes] = deque()

    def send(self, frame: bytes) -> None:
        """Queue a frame, which enters the world when it runs again."""
        self._waiting.append(frame)

    def descriptors(self) -> Sequence[int]:
        """Return none: the queue is filled only while the world does not run."""
        return ()

    def receive(self) -> list[bytes]:
        """Return the queued frames."""
        frames = list(self._waiting)
        self._waiting.clear()
        return frames

    def deliver(self, frame: bytes, time: int) -> None:
        """Store the frame in ``received``."""
        self.received.append((time, frame))

    def close(self) -> None:
        """Do nothing: there are no resources."""


class TapHost:
    """Host that is this machine's network stack, by a TAP device. Needs CAP_NET_ADMIN (``unshare -rn``).

    Raises InputError if no device can be made.
    """

    def __init__(self, name: str):
        self._name, encoded = name, os.fsencode(name)
        if not 0 < len(encoded) <= _MAX_NAME or "%" in name:  # "tap%d" is a pattern
            raise InputError(f"--tap {name}: a device's name has 1 to {_MAX_NAME} bytes, and no %")
        try:
            self._device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        except OSError as error:
            raise InputError(f"/dev/net/tun: {error.strerror}; a TAP device needs the module tun") from error
        request = struct.pack("16sH22x", encoded, _IFF_TAP | _IFF_NO_PI)
        try:
            fcntl.ioctl(self._device, _TUNSETIFF, request)
        except OSError as error:
            os.close(self._device)
            cause = "it needs CAP_NET_ADMIN, or a namespace: unshare -rn"
            raise InputError(f"--tap {name}: no TAP device: {error.strerror}; {cause}") from error
        self.dropped = 0  #: frames that the stack did not accept, because the device is down

    def descriptors(self) -> Sequence[int]:
        """Return the device's descriptor."""
        return (self._device,)

    def receive(self) -> list[bytes]:
        """Return the frames that the stack sends. Raises InputError if the device was removed."""
        frames: list[bytes] = []
        try:
            while len(frames) < _MAX_FRAMES:
                frames.append(os.read(self._device, _MAX_BYTES))
        except BlockingIOError:
            pass
        except OSError as error:
            raise self._device_error(error) from error
        return frames

    def deliver(self, frame: bytes, time: int) -> None:
        """Give the frame to the stack. Raises InputError if the device was removed."""
        try:
            os.write(self._device, frame)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EAGAIN, errno.EINVAL):
                raise self._device_error(error) from error
            self.dropped += 1

    def close(self) -> None:
        """Close the descriptor, which removes the device."""
        os.close(self._device)

    def _device_error(self, error: OSError) -> InputError:
        cause = "the device is gone" if error.errno == errno.EBADFD else error.strerror
        return InputError(f"--tap {self._name}: {cause}")


@dataclass(frozen=True)
class BoardAddress:
    """A board's address for UDP clients: the board's endpoint, and the address of this machine for it."""

    endpoint: Endpoint
    address: str


class UdpHost:
    """Relay between UDP clients of this machine and boards.

    Each board has its own local address, for instance in 127.0.0.0/8, with the same ``ports`` open as on the
    board. To the boards all clients are one host, ``endpoint``, which answers ARP. A client keeps its port
    unless another client has it. Beyond ``MAX_CLIENTS`` clients the one silent for longest is forgotten. Raises
    InputError for an address or port that cannot be opened.
    """

    def __init__(self, endpoint: Endpoint, boards: Sequence[BoardAddress], ports: Sequence[int]):
        self.endpoint = endpoint
        self.strays = 0  #: frames that belong to no client, and datagrams longer than a frame
        self._boards = {board.endpoint.ip: board for board in boards}
        self._sockets: dict[tuple[int, int], socket.socket] = {}
        # By the port that the boards see, and in reverse; the client that was silent longest is first.
        self._client_by_port: dict[int, tuple[str, int]] = {}
        self._port_by_client: dict[tuple[str, int], int] = {}
        self._answers: list[bytes] = []
        with contextlib.ExitStack() as stack:
            for board in boards:
                for port in ports:
                    self._sockets[board.endpoint.ip, port] = stack.enter_context(_bind(board.address, port))
            self._open = stack.pop_all()

    def descriptors(self) -> Sequence[int]:
        """Return the descriptors of the sockets."""
        return [udp_socket.fileno() for udp_socket in self._sockets.values()]

    def receive(self) -> list[bytes]:
        """Return the clients' datagrams in frames, and answers to ARP."""
        frames, self._answers = self._answers, []
        for (ip, port), udp_socket in self._sockets.items():
            with contextlib.suppress(BlockingIOError):
                for _ in range(_MAX_FRAMES):
                    payload, client = udp_socket.recvfrom(_MAX_BYTES)
                    if len(payload) > MAX_PAYLOAD:
                        self.strays += 1  # too long for an Ethernet frame
                        continue
                    source = Endpoint(self.endpoint.mac, self.endpoint.ip, self._port_of(client))
                    target = Endpoint(self._boards[ip].endpoint.mac, ip, port)
                    frames.append(encode_udp(payload, source=source, destination=target))
        return frames

    def deliver(self, frame: bytes, time: int) -> None:
        """Send a board's datagram to its client, or answer an ARP request for the host's address."""
        frame = frame.ljust(MIN_FRAME_BYTES, b"\0")  # as on a wire; a TAP device passes shorter frames
        ethertype = unpack_fields(ETHERNET, frame)["ethertype"]
        if ethertype == ETHERTYPE_ARP:
            self._answer(unpack_fields(ARP, frame[_ETHERNET:]))
        elif ethertype == ETHERTYPE_IPV4:
            self._deliver_udp(frame)
        else:
            self.strays += 1

    def close(self) -> None:
        """Close the sockets."""
        self._open.close()

    def _port_of(self, client: tuple[str, int]) -> int:
        """Return the port that boards see; beyond MAX_CLIENTS, forget the client that was silent longest."""
        port = self._port_by_client.pop(client, None)
        if port is None:
            if len(self._client_by_port) >= MAX_CLIENTS:
                oldest = next(iter(self._port_by_client))
                del self._client_by_port[self._port_by_client.pop(oldest)]
            port = next(port for port in (client[1], *_REPLACEMENT_PORTS) if port not in self._client_by_port)
            self._client_by_port[port] = client
        self._port_by_client[client] = port
        return port

    def _deliver_udp(self, frame: bytes) -> None:
        ip = unpack_fields(IPV4, frame[_ETHERNET:])
        start = _ETHERNET + 4 * ip["ihl"]
        if ip["protocol"] != IP_PROTOCOL_UDP or ip["destination"] != self.endpoint.ip or len(frame) < start + 8:
            self.strays += 1
            return
        udp = unpack_fields(UDP, frame[start:])
        client = self._client_by_port.get(udp["destination_port"], (_SERVER_ADDRESS, udp["destination_port"]))
        udp_socket = self._sockets.get((ip["source"], udp["source_port"]))
        if udp_socket is None:
            self.strays += 1
            return
        with contextlib.suppress(OSError):  # a datagram may be lost, also one to port 0
            udp_socket.sendto(frame[start + byte_length(UDP) : start + udp["length"]], client)

    def _answer(self, request: dict[str, int]) -> None:
        if request["operation"] == Operation.REQUEST and request["target_ip"] == self.endpoint.ip:
            requester = Endpoint(request["sender_mac"], request["sender_ip"])
            self._answers.append(
                encode_arp(Operation.REPLY, sender=self.endpoint, target=requester, destination=requester.mac)
            )


def addresses(first: str, count: int) -> list[str]:
    """Return addresses for ``count`` boards, from ``first`` on. Raises InputError for an invalid one."""
    try:
        start = IPv4Address(first)
        return [str(start + number) for number in range(count)]
    except ValueError as error:
        raise InputError(f"{first}: no IPv4 address for {count} boards ({error})") from error


def _bind(address: str, port: int) -> socket.socket:
    udp_socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        udp_socket.setblocking(False)
        udp_socket.bind((address, port))
    except OSError as error:
        udp_socket.close()
        raise InputError(f"{address}:{port} cannot be listened on: {error.strerror}") from error
    return udp_socket
