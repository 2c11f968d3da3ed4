"""Exchange of frames with BMv2: one frame in, and all frames that it causes.

BMv2 does not report that it has finished with a frame. Each frame is therefore followed by a marker, a frame of
other traffic that leaves at every port. BMv2 takes frames one by one through ingress and keeps their order at
each port, so all frames caused at a port arrive before the marker.

Over veth pairs, frames of *different* ports may overtake each other before ingress. A first marker then takes
the frame's own path to the marker port, from which markers are sent; when it arrives, the frame is through
ingress. A frame that arrives after its marker is an error, not the next frame's answer.
"""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Callable, Sequence

from fanin.base.errors import ToolFailed
from fanin.p4.control import TableEntry, Ternary
from fanin.p4.deployment import MAX_PORT
from fanin.p4.installation import FLOOD_ENTRY, FORWARD
from fanin.sim.switch.bmv2.frames import Frames

MARKER_TIMEOUT = 20.0  # seconds until a marker must be back; it usually takes a millisecond
_MAC = 0x02_FA_91_4B_52_4D
_BROADCAST = 0xFFFF_FFFF_FFFF
_ETHERTYPE = 0x88B6  # IEEE's second EtherType for experiments
_PRIORITY = 100  # above all other entries


def choose_marker_port(ports: Sequence[int]) -> int:
    """Return the port for markers: the highest port that is not in ``ports``."""
    return next(port for port in range(MAX_PORT, -1, -1) if port not in ports)


def marker_entries(marker_port: int) -> tuple[TableEntry, TableEntry]:
    """Return the entries that send markers to the marker port, and from there to all others."""
    to_marker_port = {"destination": Ternary(_MAC, _BROADCAST)}
    from_marker_port = {"port": Ternary(marker_port, MAX_PORT | 1)}
    return (
        TableEntry(FORWARD, to_marker_port, "Aggregation.to_port", {"to": marker_port}, priority=_PRIORITY),
        TableEntry(FORWARD, from_marker_port, FLOOD_ENTRY.action, priority=_PRIORITY + 1),
    )


class Exchange:
    """Exchange of frames with a switch that has ``marker_entries``; ``check`` raises ToolFailed if it died."""

    def __init__(self, frames: Frames, ports: Sequence[int], marker_port: int, check: Callable[[], None]):
        self._frames, self._ports, self._marker_port, self._check = frames, frozenset(ports), marker_port, check
        self._token = os.urandom(8)
        self._count = 0

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that a frame causes, as (port, frame), by port; those of one port in order.

        Raises ValueError for a frame too short to travel, and ToolFailed if the switch does not forward.
        """
        if late_frame := self._frames.receive(0):
            raise ToolFailed(
                f"simple_switch_grpc let a frame at port {late_frame[0]} be overtaken: {late_frame[1].hex()}"
            )
        self._frames.send(port, frame)
        frames = []
        if not self._frames.ordered:
            frames += self._await(self._mark(port, _MAC), {self._marker_port})
        frames += self._await(self._mark(self._marker_port, _BROADCAST), set(self._ports))
        return sorted(frames, key=operator.itemgetter(0))

    def _mark(self, port: int, mac: int) -> bytes:
        self._count += 1
        addresses = mac.to_bytes(6, "big") + _MAC.to_bytes(6, "big")
        marker = addresses + _ETHERTYPE.to_bytes(2, "big") + self._token + self._count.to_bytes(8, "big")
        self._frames.send(port, marker)
        return marker

    def _await(self, marker: bytes, ports: set[int]) -> list[tuple[int, bytes]]:
        """Return the frames that arrive until the marker has arrived at ``ports``."""
        frames = []
        end = time.monotonic() + MARKER_TIMEOUT
        while ports:
            received = self._frames.receive(max(0.0, end - time.monotonic()))
            if received is None:
                self._check()
                cause = "closed its data plane"
                if time.monotonic() >= end:
                    numbers = ", ".join(map(str, sorted(ports)))
                    cause = f"forwarded nothing to port {numbers} in {MARKER_TIMEOUT:g} s"
                raise ToolFailed(f"simple_switch_grpc {cause}")
            if received[1] == marker:
                ports.discard(received[0])
            else:
                frames.append(received)
        return frames
