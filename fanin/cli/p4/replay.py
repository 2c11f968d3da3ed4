"""Replay of a recorded run: a program processes the nodes' frames, and its answers are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from operator import itemgetter
from pathlib import Path

from fanin.base.errors import InputError
from fanin.p4.deployment import Deployment
from fanin.sim.capture import read_capture

_MAC_BYTES = 6
Timed = tuple[int, bytes]  # ns, frame
Arrival = tuple[int, int, bytes]  # ns, port, frame


@dataclass(frozen=True)
class Recording:
    """Capture at a switch: frames received, and frames sent by port, in order of time.

    ``others`` counts frames that are neither from a member of a job nor from the switch to one.
    """

    received: tuple[Arrival, ...]
    sent: Mapping[int, Sequence[Timed]]
    others: int

    @classmethod
    def split(cls, path: Path, deployment: Deployment) -> Recording:
        """Read a capture; tell its frames apart by their source. Raises InputError if no member sent one."""
        members = [member for job in deployment.jobs for member in job.members]
        ports = {_mac(member.endpoint.mac): member.port for member in members}
        switch = _mac(deployment.switch.mac)
        received: list[Arrival] = []
        sent: dict[int, list[Timed]] = {}
        others = 0
        for time, frame in sorted(read_capture(path), key=itemgetter(0)):
            destination, source = frame[:_MAC_BYTES], frame[_MAC_BYTES : 2 * _MAC_BYTES]
            if source in ports:
                received.append((time, ports[source], frame))
            elif source == switch and destination in ports:
                sent.setdefault(ports[destination], []).append((time, frame))
            else:
                others += 1
        if not received:
            raise InputError(f"{path}: no frame of {others} is from a member of the jobs")
        return cls(tuple(received), sent, others)

    def compare(self, out: Mapping[int, Sequence[Timed]]) -> Comparison:
        """Compare a switch's output ``out`` with the recorded output, per port and frame by frame."""
        equal, differ, first = 0, 0, ""
        earliest: tuple[int, int] | None = None
        for port in sorted({*out, *self.sent}):
            pairs = zip_longest(out.get(port, ()), self.sent.get(port, ()))
            for number, (own, recorded) in enumerate(pairs, start=1):
                if own and recorded and own[1] == recorded[1]:
                    equal += 1
                    continue
                differ += 1
                when = (min(each[0] for each in (own, recorded) if each), port)
                if earliest is None or when < earliest:
                    earliest = when
                    first = f"answer {number} at port {port}, {when[0]} ns: {_difference(own, recorded)}"
        return Comparison(equal, differ, first)


@dataclass(frozen=True)
class Comparison:
    """Numbers of equal and different answers, and the first difference. An answer on one side alone differs."""

    equal: int
    differ: int
    first: str


def _mac(address: int) -> bytes:
    return address.to_bytes(_MAC_BYTES, "big")


def _difference(own: Timed | None, recorded: Timed | None) -> str:
    if own is None or recorded is None:
        which, frame = ("recorded, and not sent", recorded) if own is None else ("sent, and not recorded", own)
        assert frame is not None
        return f"{which}: {frame[1].hex()}"
    byte = next(at for at, (a, b) in enumerate(zip_longest(own[1], recorded[1])) if a != b)
    return f"byte {byte} differs: sent {own[1].hex()}, recorded {recorded[1].hex()}"
