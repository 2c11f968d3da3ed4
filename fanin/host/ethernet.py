"""Frames to and from Linux interfaces: veth and physical ones by AF_PACKET, TAP by /dev/net/tun.

docs/reference/interfaces.md. Frames are whole Ethernet frames without FCS. What the kernel leaves to a network
card (VLAN tags, checksums, segments of large sends) is done here, so that a frame is what the wire would carry.
Nothing of an interface is changed; what a socket sets ends with it, also when the process is killed.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from fanin.base.errors import InputError
from fanin.host.offload import OFFLOAD_BYTES, finished

BATCH = 64  #: frames that one call of receive() returns at most
_LONGEST = OFFLOAD_BYTES + 65536 + 18  # what segmentation offload may hand over at once
_QUEUE = 1 << 22  # bytes of the kernel's queue
_HEADER = 14
_ALL_PROTOCOLS = 3  # ETH_P_ALL
_SOL_PACKET = 263
_ADD_MEMBERSHIP, _STATISTICS, _AUXDATA, _VNET_HDR, _IGNORE_OUTGOING = 1, 6, 8, 15, 23
_PROMISCUOUS = 1  # PACKET_MR_PROMISC
_AUX = struct.Struct("=IIIHHHH")  # status, len, snaplen, mac, net, vlan_tci, vlan_tpid
_VLAN_VALID = 1 << 4
_SO_TIMESTAMPNS = 35
_ANCILLARY = socket.CMSG_SPACE(_AUX.size) + socket.CMSG_SPACE(16)
_NO_OFFLOAD = bytes(OFFLOAD_BYTES)
_TUNSETIFF = 0x400454CA
_IFF_TAP, _IFF_MULTI_QUEUE, _IFF_NO_PI = 0x0002, 0x0100, 0x1000
_IFF_UP = 1
_CARRIES = _IFF_UP | 0x40  # IFF_RUNNING
_GIFFLAGS, _GIFMTU, _GIFHWADDR, _ETHTOOL = 0x8913, 0x8921, 0x8927, 0x8946  # SIOC…
_GET_DRIVER = 3  # ETHTOOL_GDRVINFO
_ETHERNET = 1  # ARPHRD_ETHER


class Interface(ABC):
    """One port of ours on a Linux interface.

    ``lost`` counts frames that came and could not be taken; ``unsent`` those that the interface would not take:
    its queue full, the frame longer than its MTU or shorter than a header, the interface down.
    """

    def __init__(self, name: str):
        self.name = name
        self.lost = 0
        self.unsent = 0
        self._claim = _claimed(name)
        self._buffer = bytearray(_LONGEST)
        self._view = memoryview(self._buffer)

    @abstractmethod
    def fileno(self) -> int:
        """What to poll; readable where a frame waits."""

    @abstractmethod
    def receive(self) -> list[tuple[int, bytes]]:
        """The frames that wait, :data:`BATCH` at most (more where one was a large send), each with the time
        in ns since the epoch at which the kernel had it. The kernel takes times from a moment after the
        interface is opened; a frame before that has the time at which it is read. Never waits. Raises
        InterfaceLost."""

    def overrun(self) -> int:
        """Frames that the kernel had no room for since the last call, where it says. Raises InterfaceLost."""
        return 0

    def up(self) -> bool:
        """Whether it is up and has a carrier: whether frames can leave by it."""
        try:
            flags = struct.unpack_from("=H", _asked_by(self._claim, _GIFFLAGS, self.name), 16)[0]
        except OSError:  # it is gone
            return False
        return flags & _CARRIES == _CARRIES

    @abstractmethod
    def _send(self, frame: bytes) -> None:
        """Hand over; OSError where the kernel does not take it."""

    def send(self, frame: bytes) -> bool:
        """Send a frame, if it is taken at once. Raises InterfaceLost."""
        if len(frame) < _HEADER:
            self.unsent += 1
            return False
        try:
            self._send(frame)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENODEV, errno.EBADFD):
                raise InterfaceLost(f"{self.name}: the interface is gone") from error
            self.unsent += 1
            return False
        return True

    def close(self) -> None:
        """Let go; the interface is as it was."""
        self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class InterfaceLost(InputError):
    """An interface was removed while it was in use."""


def open_interface(name: str) -> Interface:
    """The interface ``name``, which exists and is up, for us alone.

    Raises InputError, one line, where it does not exist, is down, is in use by another fanin or, if it is a
    TAP interface, by another program, or may not be opened.
    """
    if name not in _names():
        raise InputError(f"{name}: there is no such interface; there are {', '.join(_names())}")
    if not struct.unpack_from("=H", _asked(_GIFFLAGS, name), 16)[0] & _IFF_UP:
        raise InputError(f"{name}: the interface is down: ip link set {name} up")
    if struct.unpack_from("=H", _asked(_GIFHWADDR, name), 16)[0] != _ETHERNET:
        raise InputError(f"{name}: is no Ethernet interface")
    try:
        return TapInterface(name) if _driver(name) == "tun" else PacketInterface(name)
    except PermissionError as error:
        raise InputError(
            f"{name}: opening it needs CAP_NET_RAW and, for TAP, CAP_NET_ADMIN (root has both)"
        ) from error
    except OSError as error:
        reason = "in use by another program" if error.errno == errno.EBUSY else error.strerror
        raise InputError(f"{name}: {reason}") from error


def mtu_of(name: str) -> int:
    """The MTU of an interface that exists: bytes of a frame behind its Ethernet header, at most."""
    return int(struct.unpack_from("=i", _asked(_GIFMTU, name), 16)[0])


def _names() -> list[str]:
    """The interfaces of this process's namespace."""
    return [name for _, name in socket.if_nameindex()]


def _asked(question: int, name: str, pointer: int = 0) -> bytes:
    """What the kernel says of an interface: ``struct ifreq``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        return _asked_by(asking, question, name, pointer)


def _asked_by(asking: socket.socket, question: int, name: str, pointer: int = 0) -> bytes:
    """The same in the namespace of a socket."""
    return fcntl.ioctl(asking, question, struct.pack("=16sQ16x", name.encode(), pointer))


def _driver(name: str) -> str:
    """The name of an interface's driver; empty where it has none."""
    answer = array.array("B", struct.pack("=I192x", _GET_DRIVER))
    try:
        _asked(_ETHTOOL, name, answer.buffer_info()[0])
    except OSError:
        return ""
    return answer.tobytes()[4:36].rstrip(b"\0").decode()


def _claimed(name: str) -> socket.socket:
    """A claim on an interface that ends with the process: a socket's name, which is its namespace's alone."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0fanin/interface/{name}")
    except OSError as error:
        claim.close()
        raise InputError(f"{name}: the interface is in use by another fanin") from error
    return claim


class PacketInterface(Interface):
    """An interface by AF_PACKET, beside whatever the kernel itself does with its frames."""

    def __init__(self, name: str):
        super().__init__(name)
        try:
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
        except BaseException:
            self._claim.close()
            raise
        try:
            for option in (_AUXDATA, _VNET_HDR, _IGNORE_OUTGOING):
                self._socket.setsockopt(_SOL_PACKET, option, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _QUEUE)
            self._socket.bind((name, _ALL_PROTOCOLS))
            member = struct.pack("=iHH8s", socket.if_nametoindex(name), _PROMISCUOUS, 0, b"")
            self._socket.setsockopt(_SOL_PACKET, _ADD_MEMBERSHIP, member)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:  # noqa: D102
        return self._socket.fileno()

    def receive(self) -> list[tuple[int, bytes]]:  # noqa: D102
        frames: list[tuple[int, bytes]] = []
        try:
            while len(frames) < BATCH:
                length, ancillary, _, _ = self._socket.recvmsg_into([self._buffer], _ANCILLARY)
                self._take(length, ancillary, frames)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno == errno.EINVAL:  # a large send of a kind that virtio's header has no word for
                self.lost += 1
            elif error.errno != errno.ENETDOWN:  # it may come up again
                raise
            self._check_there()
        return frames

    def _check_there(self) -> None:
        """Raise InterfaceLost where the interface was removed: the socket is bound to none then."""
        if not self._socket.getsockname()[0]:
            raise InterfaceLost(f"{self.name}: the interface is gone")

    def _take(
        self, length: int, ancillary: list[tuple[int, int, bytes]], frames: list[tuple[int, bytes]]
    ) -> None:
        at = 0
        frame = bytes(self._view[OFFLOAD_BYTES:length])
        offload = bytes(self._view[:OFFLOAD_BYTES])
        tag = None
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack("=qq", data)
                at = seconds * 10**9 + nanoseconds
            elif level == _SOL_PACKET and kind == _AUXDATA:
                status, *_, tci, tpid = _AUX.unpack(data[: _AUX.size])
                if status & _VLAN_VALID:
                    tag = struct.pack(">HH", tpid or 0x8100, tci)
        try:
            whole = [frame] if offload == _NO_OFFLOAD else finished(offload, frame)
        except ValueError:
            self.lost += 1
            return
        frames += [(at, one if tag is None else one[:12] + tag + one[12:]) for one in whole]

    def _send(self, frame: bytes) -> None:
        self._socket.send(_NO_OFFLOAD + frame)

    def overrun(self) -> int:  # noqa: D102
        self._check_there()  # one that was set down first is silent when it goes
        _, drops = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        return drops

    def close(self) -> None:  # noqa: D102
        self._socket.close()
        super().close()


class TapInterface(Interface):
    """The program's end of a TAP interface that exists: the kernel sees what it sends as received.

    The kernel itself completes checksums and segments here. Times are those of the call, not the kernel's.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self._file = -1
        try:
            self._file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._attach(_IFF_TAP | _IFF_NO_PI)
        except BaseException:
            self.close()
            raise

    def _attach(self, flags: int) -> None:
        try:
            fcntl.ioctl(self._file, _TUNSETIFF, struct.pack("16sH22x", self.name.encode(), flags))
        except OSError as error:
            if error.errno != errno.EINVAL or flags & _IFF_MULTI_QUEUE:
                raise
            self._attach(flags | _IFF_MULTI_QUEUE)  # it was made with several queues

    def fileno(self) -> int:  # noqa: D102
        return self._file

    def receive(self) -> list[tuple[int, bytes]]:  # noqa: D102
        frames: list[tuple[int, bytes]] = []
        try:
            while len(frames) < BATCH:
                length = os.readv(self._file, [self._buffer])
                frames.append((time.time_ns(), bytes(self._view[:length])))
        except BlockingIOError:
            pass
        except OSError as error:
            raise InterfaceLost(f"{self.name}: the interface is gone") from error
        return frames

    def _send(self, frame: bytes) -> None:
        os.write(self._file, frame)

    def close(self) -> None:  # noqa: D102
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        super().close()
