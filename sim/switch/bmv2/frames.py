"""Transport of frames to and from BMv2: over veth pairs, or over its gRPC data plane, without privileges."""

from __future__ import annotations

import contextlib
import os
import queue
import selectors
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any

from fanin.host.ethernet import Interface, open_interface
from fanin.sim.switch.bmv2.process import MTU, BmvProcess, host_end
from fanin.wire.ethernet import ETHERNET
from fanin.wire.fields import byte_length

_ETHERNET_BYTES = byte_length(ETHERNET)


class Frames(ABC):
    """Transport of frames to and from a switch.

    ``ordered``: frames of different ports enter the switch in the order in which they were sent.
    """

    ordered: bool

    @abstractmethod
    def send(self, port: int, frame: bytes) -> None:
        """Send a frame to the switch at ``port``."""

    @abstractmethod
    def receive(self, limit: float) -> tuple[int, bytes] | None:
        """Return the next frame and its port; None after ``limit`` seconds, or if the switch has died."""

    @abstractmethod
    def close(self) -> None:
        """Close all resources."""


class VethFrames(Frames):
    """Host's end of each port's veth pair, ``ends``. Frames of one port keep their order."""

    ordered = False

    def __init__(self, process: BmvProcess, ports: Sequence[int]):
        self._process_fd = os.pidfd_open(process.pid)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process_fd, selectors.EVENT_READ, None)
        self._pending: deque[tuple[int, bytes]] = deque()
        self.ends: dict[int, Interface] = process.run_in_namespace(
            lambda: {port: open_interface(host_end(port)) for port in ports}
        )
        for port, end in self.ends.items():
            self._selector.register(end, selectors.EVENT_READ, port)

    def send(self, port: int, frame: bytes) -> None:  # noqa: D102
        if not _ETHERNET_BYTES <= len(frame) <= _ETHERNET_BYTES + MTU:
            limits = f"{_ETHERNET_BYTES} to {_ETHERNET_BYTES + MTU}"
            raise ValueError(f"a frame on a veth pair has {limits} bytes, not {len(frame)}")
        self.ends[port].send(frame)

    def receive(self, limit: float) -> tuple[int, bytes] | None:  # noqa: D102
        end = time.monotonic() + limit
        while not self._pending:
            ready = self._selector.select(max(0.0, end - time.monotonic()))
            ports = [key.data for key, _ in ready if key.data is not None]
            for port in ports:
                self._pending += [(port, frame) for _, frame in self.ends[port].receive()]
            if not self._pending and (len(ready) > len(ports) or time.monotonic() >= end):
                return None
        return self._pending.popleft()

    def close(self) -> None:  # noqa: D102
        self._selector.close()
        os.close(self._process_fd)
        for end in self.ends.values():
            end.close()


class StreamFrames(Frames):
    """BMv2's service ``p4.bm.DataplaneInterface``: one stream with the frames of all ports, in order."""

    ordered = True

    def __init__(self, process: BmvProcess):
        import grpc  # installed with finsy; slow to load

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
    """Return ``PacketStreamRequest`` and ``PacketStreamResponse`` of BMv2's dataplane_interface.proto."""
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
