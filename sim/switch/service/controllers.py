"""P4Runtime's arbitration among controllers (P4Runtime specification, "Client Arbitration")."""

from __future__ import annotations

from dataclasses import dataclass

from finsy.proto import p4r, rpc_code, rpc_status

from fanin.sim.switch.service.calls import Call
from fanin.sim.switch.service.faults import Fault, invalid, unimplemented, unknown


@dataclass(eq=False)
class Stream:
    """Stream of one controller.

    - ``call``: the call that carries the stream.
    - ``election``: election id of its bid; None for a bid without one, which never becomes primary.
    """

    call: Call
    election: int | None = None

    def put(self, message: p4r.StreamMessageResponse) -> bool:
        """Send a message; return False if the controller has too many bytes to take."""
        return self.call.put(message.SerializeToString())


class Controllers:
    """Streams of the controllers of one device; the primary controller has the highest election id."""

    def __init__(self, device: int):
        self.device = device
        self._streams: list[Stream] = []
        self._highest: int | None = None  #: highest election id so far; no lower one becomes primary

    def bid(self, stream: Stream, update: p4r.MasterArbitrationUpdate) -> None:
        """Add a controller, or change its bid, and notify the controllers concerned. Raises Fault.

        All controllers are notified when the bid makes ``stream`` primary, leaves it primary, or ends that.
        """
        election = number_of(update.election_id) if update.HasField("election_id") else None
        is_repeated = stream in self._streams
        self._check_bid(update, is_repeated=is_repeated)
        other_elections = (other.election for other in self._streams if other is not stream)
        if election is not None and election in other_elections:
            raise invalid(f"another controller has the election id {election}")
        old_primary = self._primary()
        stream.election = election
        if not is_repeated:
            self._streams.append(stream)
        if election is not None:
            self._highest = election if self._highest is None else max(self._highest, election)
        stream.call.may_idle = True
        self._notify(self._streams if stream in (old_primary, self._primary()) else [stream])

    def _check_bid(self, update: p4r.MasterArbitrationUpdate, *, is_repeated: bool) -> None:
        """Raise Fault unless a bid is for this device and the default role.

        ``is_repeated``: the stream has made a bid before.
        """
        if update.device_id != self.device:
            code = rpc_code.FAILED_PRECONDITION if is_repeated else rpc_code.NOT_FOUND
            raise Fault(code, f"there is no device {update.device_id}; there is {self.device}")
        if update.role.name or update.role.id:
            if is_repeated:
                raise Fault(rpc_code.FAILED_PRECONDITION, "the stream has the default role")
            raise unimplemented("roles are not implemented")
        if update.role.HasField("config"):
            raise invalid("the default role has no configuration")

    def remove(self, stream: Stream) -> None:
        """Remove a controller whose stream has ended."""
        if stream in self._streams:
            old_primary = self._primary()
            self._streams.remove(stream)
            if old_primary is stream:
                self._notify(self._streams)

    def check(self, device: int, election: p4r.Uint128, role: str) -> None:
        """Raise Fault unless a request that changes something comes from the primary controller."""
        primary = self._primary()
        if device != self.device:
            raise Fault(rpc_code.NOT_FOUND, f"there is no device {device}; there is {self.device}")
        check_role(role)
        if primary is None or number_of(election) != primary.election:
            raise Fault(rpc_code.PERMISSION_DENIED, "this is not the primary controller's election id")

    def is_primary(self, stream: Stream) -> bool:
        """Return whether ``stream`` belongs to the primary controller, which may send packets."""
        return self._primary() is stream

    def is_of_primary(self, call: Call) -> bool:
        """Return whether ``call`` carries the stream of the primary controller."""
        primary = self._primary()
        return primary is not None and primary.call is call

    def send(self, message: p4r.StreamMessageResponse) -> bool:
        """Send a message to the primary controller; return False if there is none, or it does not read."""
        primary = self._primary()
        return primary is not None and primary.put(message)

    def _primary(self) -> Stream | None:
        if self._highest is None:
            return None
        return next((stream for stream in self._streams if stream.election == self._highest), None)

    def _notify(self, streams: list[Stream]) -> None:
        """Send each stream the state of the arbitration, the primary controller last."""
        primary = self._primary()
        for stream in sorted(streams, key=lambda stream: stream is primary):
            answer = p4r.MasterArbitrationUpdate(device_id=self.device)
            if self._highest is not None:
                answer.election_id.CopyFrom(_uint128(self._highest))
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


def check_role(role: str) -> None:
    """Raise Fault if a request has a role other than the default role."""
    if role:
        raise unknown(f"there is no role {role}; there is the default role")


def number_of(message: p4r.Uint128) -> int:
    """Return the 128-bit number of a message."""
    return message.high << 64 | message.low


def _uint128(number: int) -> p4r.Uint128:
    return p4r.Uint128(high=number >> 64, low=number & (1 << 64) - 1)
