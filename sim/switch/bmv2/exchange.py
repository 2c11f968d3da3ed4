"""Exchange of frames with BMv2: one frame in, and all frames that it causes.

BMv2 does not report that it has finished with a frame. Each frame is therefore followed by a marker, a frame of
other traffic that leaves at every port. BMv2 takes frames one by one through ingress and keeps their order at
each port, so all frames caused at a port arrive before the marker.

Over veth pairs, frames of *different* ports may overtake each other before ingress. A first marker then takes
the frame's own path to the spare port from which markers are sent; when it arrives, the frame is through
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
from fanin.p4.installation import FLOOD, FORWARD
from fanin.sim.switch.bmv2.frames import Frames

PATIENCE = 20.0  # seconds until a marker must be back; it usually takes a millisecond
_MAC = 0x02_FA_91_4B_52_4D
_BROADCAST = 0xFFFF_FFFF_FFFF
_ETHERTYPE = 0x88B6  # IEEE's second EtherType for experiments
_PRIORITY = 100  # above all other entries


def spare_port(ports: Sequence[int]) -> int:
    """Return a port for markers that is not in ``ports``."""
    return next(port for port in range(MAX_PORT, -1, -1) if port not in ports)


def marker_entries(spare: int) -> tuple[TableEntry, TableEntry]:
    """Return the entries that send markers to the spare port, and from there to all others."""
    to_spare = {"destination": Ternary(_MAC, _BROADCAST)}
    from_spare = {"port": Ternary(spare, MAX_PORT | 1)}
    return (
        TableEntry(FORWARD, to_spare, "Aggregation.to_port", {"to": spare}, priority=_PRIORITY),
        TableEntry(FORWARD, from_spare, FLOOD.action, priority=_PRIORITY + 1),
    )


class Exchange:
    """Exchange of frames with a switch that has ``marker_entries``; ``check`` raises ToolFailed if it died."""

    def __init__(self, frames: Frames, ports: Sequence[int], spare: int, check: Callable[[], None]):
        self._frames, self._ports, self._spare, self._check = frames, frozenset(ports), spare, check
        self._token = os.urandom(8)
        self._count = 0

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that a frame causes, as (port, frame), by port; those of one port in order.

        Raises ValueError for a frame too short to travel, and ToolFailed if the switch does not forward.
        """
        if late := self._frames.receive(0):
            raise ToolFailed(f"simple_switch_grpc let a frame at port {late[0]} be overtaken: {late[1].hex()}")
        self._frames.send(port, frame)
        out = []
        if not self._frames.ordered:
            out += self._await(self._mark(port, _MAC), {self._spare})
        out += self._await(self._mark(self._spare, _BROADCAST), set(self._ports))
        return sorted(out, key=operator.itemgetter(0))

    def _mark(self, port: int, mac: int) -> bytes:
        self._count += 1
        addresses = mac.to_bytes(6, "big") + _MAC.to_bytes(6, "big")
        marker = addresses + _ETHERTYPE.to_bytes(2, "big") + self._token + self._count.to_bytes(8, "big")
        self._frames.send(port, marker)
        return marker

    def _await(self, marker: bytes, ports: set[int]) -> list[tuple[int, bytes]]:
        """Return the frames that arrive until the marker has arrived at ``ports``."""
        out = []
        end = time.monotonic() + PATIENCE
        while ports:
            received = self._frames.receive(max(0.0, end - time.monotonic()))
            if received is None:
                self._check()
                what = "closed its data plane"
                if time.monotonic() >= end:
                    what = f"forwarded nothing to port {', '.join(map(str, sorted(ports)))} in {PATIENCE:g} s"
                raise ToolFailed(f"simple_switch_grpc {what}")
            if received[1] == marker:
                ports.discard(received[0])
            else:
                out.append(received)
        return out
