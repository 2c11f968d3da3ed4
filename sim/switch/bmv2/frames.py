"""How frames reach BMv2 and come back: over veth pairs, or over its gRPC data plane, without privileges."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from fanin.sim.switch.bmv2.process import MTU, BmvProcess, host_end
from fanin.wire.ethernet import ETHERNET
from fanin.wire.fields import byte_length

_ETHERNET_BYTES = byte_length(ETHERNET)
_ALL_PROTOCOLS = 3  # ETH_P_ALL
_SOL_PACKET, _PACKET_AUXDATA = 263, 8
_OUTGOING = 4  # PACKET_OUTGOING: our own frame, once more
_AUXDATA = struct.Struct("=IIIHHHH")  # status, len, snaplen, mac, net, vlan_tci, vlan_tpid
_VLAN_VALID = 1 << 4
_LONGEST = 65536
_BUFFER = 1 << 22


class Frames(ABC):
    """Frames in and out of a switch. ``ordered``: they enter in the order in which they were sent."""

    ordered: bool

    @abstractmethod
    def send(self, port: int, frame: bytes) -> None:
        """Hand a frame to the switch at ``port``."""

    @abstractmethod
    def receive(self, limit: float) -> tuple[int, bytes] | None:
        """The next frame and its port; None when ``limit`` seconds bring none, or the switch has died."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what was opened."""


class VethFrames(Frames):
    """A raw socket at our end of each port's veth pair. Frames of one port keep their order."""

    ordered = False

    def __init__(self, process: BmvProcess, ports: Sequence[int]):
        self._died = os.pidfd_open(process.pid)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._died, selectors.EVENT_READ, None)
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._sockets: dict[int, socket.socket] = process.inside(lambda: {port: _open(port) for port in ports})
        for port, opened in self._sockets.items():
            self._selector.register(opened, selectors.EVENT_READ, port)

    def send(self, port: int, frame: bytes) -> None:  # noqa: D102
        if not _ETHERNET_BYTES <= len(frame) <= _ETHERNET_BYTES + MTU:
            limits = f"{_ETHERNET_BYTES} to {_ETHERNET_BYTES + MTU}"
            raise ValueError(f"a frame on a veth pair has {limits} bytes, not {len(frame)}")
        self._sockets[port].send(frame)

    def receive(self, limit: float) -> tuple[int, bytes] | None:  # noqa: D102
        end = time.monotonic() + limit
        while not self._waiting:
            ready = self._selector.select(max(0.0, end - time.monotonic()))
            ports = [key.data for key, _ in ready if key.data is not None]
            for port in ports:
                self._waiting += [(port, frame) for frame in _received(self._sockets[port])]
            if not self._waiting and (len(ready) > len(ports) or time.monotonic() >= end):
                return None
        return self._waiting.popleft()

    def close(self) -> None:  # noqa: D102
        self._selector.close()
        os.close(self._died)
        for opened in self._sockets.values():
            opened.close()


def _open(port: int) -> socket.socket:
    opened = socket.socket(
        socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(_ALL_PROTOCOLS)
    )
    opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    opened.bind((host_end(port), _ALL_PROTOCOLS))
    return opened


def _received(opened: socket.socket) -> Iterator[bytes]:
    """All that has come. The kernel takes VLAN tags out of frames; they are put back."""
    with contextlib.suppress(BlockingIOError):
        while True:
            frame, ancillary, _, address = opened.recvmsg(_LONGEST, socket.CMSG_SPACE(_AUXDATA.size))
            if address[2] == _OUTGOING:
                continue
            for level, kind, data in ancillary:
                if (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                    status, *_, tci, tpid = _AUXDATA.unpack(data[: _AUXDATA.size])
                    if status & _VLAN_VALID:
                        frame = frame[:12] + struct.pack(">HH", tpid or 0x8100, tci) + frame[12:]
            yield frame


class StreamFrames(Frames):
    """BMv2's service ``p4.bm.DataplaneInterface``: one stream with the frames of all ports, in order."""

    ordered = True

    def __init__(self, process: BmvProcess):
        import grpc  # with finsy; takes a while to load

        request, response = _messages()
        self._request = request
        self._channel = grpc.insecure_channel(process.dataplane)
        self._sent: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._received: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        call = self._channel.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        responses = call(iter(self._sent.get, None), wait_for_ready=True)

        def collect() -> None:
            with contextlib.suppress(grpc.RpcError):
                for answer in responses:
                    self._received.put((answer.port, answer.packet))
            self._received.put(None)

        self._collector = threading.Thread(target=collect, daemon=True)
        self._collector.start()

    def send(self, port: int, frame: bytes) -> None:  # noqa: D102
        if not frame:
            raise ValueError("BMv2's data plane takes no frame without a byte")
        self._sent.put(self._request(port=port, packet=frame))

    def receive(self, limit: float) -> tuple[int, bytes] | None:  # noqa: D102
        try:
            return self._received.get(timeout=limit) if limit else self._received.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:  # noqa: D102
        self._sent.put(None)
        self._channel.close()
        self._collector.join(1.0)


def _messages() -> tuple[Any, Any]:
    """``PacketStreamRequest`` and ``PacketStreamResponse`` of BMv2's dataplane_interface.proto."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    kinds = {"id": field.TYPE_UINT64, "device_id": field.TYPE_UINT64, "port": field.TYPE_UINT32}
    file = descriptor_pb2.FileDescriptorProto(
        name="fanin/dataplane_interface.proto", package="p4.bm", syntax="proto3"
    )
    names = "PacketStreamRequest", "PacketStreamResponse"
    for name in names:
        message = file.message_type.add(name=name)
        for number, (label, kind) in enumerate([*kinds.items(), ("packet", field.TYPE_BYTES)], 1):
            message.field.add(name=label, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    request, response = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p4.bm.{name}")) for name in names
    )
    return request, response
