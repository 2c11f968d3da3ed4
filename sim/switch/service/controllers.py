"""Who controls the switch: P4Runtime's arbitration (P4Runtime specification, "Client Arbitration")."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field

from finsy.proto import p4r, rpc_code, rpc_status

from fanin.sim.switch.service.faults import Fault, invalid, missing

_WAITING = 4096  # messages for a controller that does not read


@dataclass(eq=False)
class Stream:
    """One controller's stream: what waits for it, and its bid."""

    waiting: queue.Queue[p4r.StreamMessageResponse | None] = field(
        default_factory=lambda: queue.Queue(_WAITING)
    )
    election: int | None = None

    def put(self, message: p4r.StreamMessageResponse | None) -> bool:
        """Whether there was room."""
        try:
            self.waiting.put_nowait(message)
        except queue.Full:
            return False
        return True


class Controllers:
    """The streams of one device; the primary controller has the highest election id. Safe for threads."""

    def __init__(self, device: int):
        self.device = device
        self._streams: list[Stream] = []
        self._lock = threading.Lock()
        self._highest = -1  #: bid so far: a primary that leaves is not followed by a lower one

    def bid(self, stream: Stream, update: p4r.MasterArbitrationUpdate) -> None:
        """A controller comes, or changes its bid. Raises Fault."""
        if update.device_id != self.device:
            raise Fault(rpc_code.NOT_FOUND, f"there is no device {update.device_id}; there is {self.device}")
        if update.role.name or update.role.id:
            raise missing("roles are not implemented")
        election = number_of(update.election_id) if update.HasField("election_id") else 0
        with self._lock:
            if any(other.election == election != 0 for other in self._streams if other is not stream):
                raise invalid(f"another controller has the election id {election}")
            before = self._primary()
            stream.election = election
            if stream not in self._streams:
                self._streams.append(stream)
            self._highest = max(self._highest, election)
            self._tell(self._streams if self._primary() is not before else [stream])

    def leave(self, stream: Stream) -> None:
        """A controller's stream has ended."""
        with self._lock:
            if stream in self._streams:
                before = self._primary()
                self._streams.remove(stream)
                if before is stream:
                    self._tell(self._streams)
        stream.put(None)

    def end(self) -> None:
        """End all streams."""
        with self._lock:
            for stream in self._streams:
                stream.put(None)

    def check(self, device: int, election: p4r.Uint128, role: str) -> None:
        """Raise Fault unless a request that changes something comes from the primary controller."""
        with self._lock:
            primary = self._primary()
        if device != self.device:
            raise Fault(rpc_code.NOT_FOUND, f"there is no device {device}; there is {self.device}")
        if role:
            raise missing("roles are not implemented")
        if primary is None or number_of(election) != primary.election:
            raise Fault(rpc_code.PERMISSION_DENIED, "this is not the primary controller's election id")

    def is_primary(self, stream: Stream) -> bool:
        """Whether it may send packets."""
        with self._lock:
            return self._primary() is stream

    def send(self, message: p4r.StreamMessageResponse) -> bool:
        """Hand a message to the primary controller; False where there is none, or it does not read."""
        with self._lock:
            primary = self._primary()
        return primary is not None and primary.put(message)

    def _primary(self) -> Stream | None:
        found = max((s for s in self._streams if s.election), key=lambda s: s.election or 0, default=None)
        return found if found is not None and found.election == self._highest else None

    def _tell(self, streams: list[Stream]) -> None:
        primary = self._primary()
        for stream in streams:
            answer = p4r.MasterArbitrationUpdate(device_id=self.device)
            if primary is not None and primary.election is not None:
                answer.election_id.CopyFrom(_wide(primary.election))
            if stream is primary:
                status = rpc_status.Status(code=rpc_code.OK)
            elif primary is not None:
                status = rpc_status.Status(
                    code=rpc_code.ALREADY_EXISTS, message="another controller is primary"
                )
            else:
                status = rpc_status.Status(code=rpc_code.NOT_FOUND, message="there is no primary controller")
            answer.status.CopyFrom(status)
            stream.put(p4r.StreamMessageResponse(arbitration=answer))


def number_of(wide: p4r.Uint128) -> int:
    """128 bits."""
    return wide.high << 64 | wide.low


def _wide(number: int) -> p4r.Uint128:
    return p4r.Uint128(high=number >> 64, low=number & (1 << 64) - 1)
