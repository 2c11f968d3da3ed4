"""Frames to and from Linux interfaces: AF_PACKET for veth and physical interfaces, /dev/net/tun for TAP.

Documentation: docs/reference/interfaces.md. Frames are complete Ethernet frames without FCS. VLAN tags,
checksums and segmentation of large sends, which the kernel leaves to a network card, are completed here. No
setting of an interface is changed; settings of a socket end with it, also if the process is killed.
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
from fanin.host.offload import OFFLOAD_BYTES, wire_frames

BATCH = 64  #: frames that a call of receive() reads, at most
_MAX_READ = OFFLOAD_BYTES + 65536 + 18  # largest frame that segmentation offload delivers
_QUEUE = 1 << 22  # bytes of the kernel's receive queue
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
    """Exclusive port on a Linux interface, through which frames are sent and received.

    - ``lost``: received frames that could not be read as a whole, such as a large send of more than 64 KiB.
    - ``unsent``: frames that the interface refused. Its queue was full, the frame was longer than the MTU or
      shorter than a header, or the interface was down.
    """

    def __init__(self, name: str):
        self.name = name
        self.lost = 0
        self.unsent = 0
        self._claim = _claim_name(name)
        self._buffer = bytearray(_MAX_READ)
        self._view = memoryview(self._buffer)

    @abstractmethod
    def fileno(self) -> int:
        """Return the file descriptor to poll; it is readable while a frame waits."""

    @abstractmethod
    def receive(self) -> list[tuple[int, bytes]]:
        """Return waiting frames without blocking, each with its time; raises InterfaceLost.

        At most :data:`BATCH` frames are read; more are returned if the last one was a large send. A time is in
        ns since the epoch, when the kernel received the frame. The kernel takes times only from shortly after
        the interface is opened; earlier frames have the time at which they are read.
        """

    def overrun(self) -> int:
        """Return how many frames the kernel dropped since the last call, if known. Raises InterfaceLost."""
        return 0

    def up(self) -> bool:
        """Return whether frames can leave: the interface is up and has a carrier."""
        try:
            flags = struct.unpack_from("=H", _query_by(self._claim, _GIFFLAGS, self.name), 16)[0]
        except OSError:  # the interface was removed
            return False
        return flags & _CARRIES == _CARRIES

    @abstractmethod
    def _send(self, frame: bytes) -> None:
        """Send a frame; raises OSError if the kernel refuses it."""

    def send(self, frame: bytes) -> bool:
        """Send a frame; return False if it is refused. Raises InterfaceLost."""
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
        """Release the interface, which is unchanged."""
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
    """Open the interface ``name`` for exclusive use; it must exist and be up.

    Raises InputError of one line if the interface does not exist, is down or in use, or if permission is
    missing. A TAP interface can be in use by any program, others only by another fanin.
    """
    if name not in _names():
        raise InputError(f"{name}: no such interface; available are {', '.join(_names())}")
    if not struct.unpack_from("=H", _query(_GIFFLAGS, name), 16)[0] & _IFF_UP:
        raise InputError(f"{name}: the interface is down: ip link set {name} up")
    if struct.unpack_from("=H", _query(_GIFHWADDR, name), 16)[0] != _ETHERNET:
        raise InputError(f"{name}: is not an Ethernet interface")
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
    """Return the MTU of an existing interface: most bytes of a frame after its Ethernet header."""
    return int(struct.unpack_from("=i", _query(_GIFMTU, name), 16)[0])


def _names() -> list[str]:
    """Return the interfaces of this process's namespace."""
    return [name for _, name in socket.if_nameindex()]


def _query(request: int, name: str, pointer: int = 0) -> bytes:
    """Return the kernel's answer about an interface, a ``struct ifreq``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query_socket:
        return _query_by(query_socket, request, name, pointer)


def _query_by(query_socket: socket.socket, request: int, name: str, pointer: int = 0) -> bytes:
    """Return the kernel's answer about an interface in the namespace of ``query_socket``."""
    return fcntl.ioctl(query_socket, request, struct.pack("=16sQ16x", name.encode(), pointer))


def _driver(name: str) -> str:
    """Return the name of an interface's driver; empty if it has none."""
    answer = array.array("B", struct.pack("=I192x", _GET_DRIVER))
    try:
        _query(_ETHTOOL, name, answer.buffer_info()[0])
    except OSError:
        return ""
    return answer.tobytes()[4:36].rstrip(b"\0").decode()


def _claim_name(name: str) -> socket.socket:
    """Claim an interface until the process ends, by binding an abstract socket name in its namespace."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0fanin/interface/{name}")
    except OSError as error:
        claim.close()
        raise InputError(f"{name}: the interface is in use by another fanin") from error
    return claim


class PacketInterface(Interface):
    """An interface opened by AF_PACKET; the kernel also processes its frames."""

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
            for _ in range(BATCH):  # also bounds the reads of lost frames
                length, ancillary, flags, _ = self._socket.recvmsg_into([self._buffer], _ANCILLARY)
                if flags & socket.MSG_TRUNC:
                    self.lost += 1
                else:
                    self._add_frames(length, ancillary, frames)
                if len(frames) >= BATCH:
                    break
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno == errno.EINVAL:  # a large send that virtio's header cannot describe
                self.lost += 1
            elif error.errno != errno.ENETDOWN:  # it can come up again
                raise
            self._check_exists()
        return frames

    def _check_exists(self) -> None:
        """Raise InterfaceLost if the interface was removed: the socket is then bound to none."""
        if not self._socket.getsockname()[0]:
            raise InterfaceLost(f"{self.name}: the interface is gone")

    def _add_frames(
        self, length: int, ancillary: list[tuple[int, int, bytes]], frames: list[tuple[int, bytes]]
    ) -> None:
        """Append the frames of one read, of ``length`` bytes in the buffer, with the kernel's time.

        The ancillary data have the time, and the VLAN tag that the kernel has removed. A large send becomes
        several frames.
        """
        time_ns = 0
        frame = bytes(self._view[OFFLOAD_BYTES:length])
        offload = bytes(self._view[:OFFLOAD_BYTES])
        tag = None
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack("=qq", data)
                time_ns = seconds * 10**9 + nanoseconds
            elif level == _SOL_PACKET and kind == _AUXDATA:
                status, *_, tci, tpid = _AUX.unpack(data[: _AUX.size])
                if status & _VLAN_VALID:
                    tag = struct.pack(">HH", tpid or 0x8100, tci)
        try:
            complete = [frame] if offload == _NO_OFFLOAD else wire_frames(offload, frame)
        except ValueError:
            self.lost += 1
            return
        frames += [
            (time_ns, untagged if tag is None else untagged[:12] + tag + untagged[12:]) for untagged in complete
        ]

    def _send(self, frame: bytes) -> None:
        self._socket.send(_NO_OFFLOAD + frame)

    def overrun(self) -> int:  # noqa: D102
        self._check_exists()  # an interface that was down first is removed without an error
        _, drops = struct.unpack("=II", self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 8))
        return drops

    def close(self) -> None:  # noqa: D102
        self._socket.close()
        super().close()


class TapInterface(Interface):
    """The program's end of an existing TAP interface: the kernel receives the frames that it sends.

    The kernel itself completes checksums and segments. Times are those of the call, not of the kernel.
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
            self._attach(flags | _IFF_MULTI_QUEUE)  # the interface was created with several queues

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
