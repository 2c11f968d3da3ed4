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

    - ``received``: frames from members of the jobs and, below the root of a tree, from the parent.
    - ``sent``: frames from the switch to these, by port.
    - ``unrelated``: number of other frames.
    """

    received: tuple[Arrival, ...]
    sent: Mapping[int, Sequence[Timed]]
    unrelated: int

    @classmethod
    def split(cls, path: Path, deployment: Deployment) -> Recording:
        """Read a capture and split it by the frames' sources. Raises InputError if no member sent a frame."""
        stations = [station for job in deployment.jobs for station in job.stations]
        ports = {_mac(station.endpoint.mac): station.port for station in stations}
        switch = _mac(deployment.switch.mac)
        received: list[Arrival] = []
        sent: dict[int, list[Timed]] = {}
        unrelated = 0
        for time, frame in sorted(read_capture(path), key=itemgetter(0)):
            destination, source = frame[:_MAC_BYTES], frame[_MAC_BYTES : 2 * _MAC_BYTES]
            if source in ports:
                received.append((time, ports[source], frame))
            elif source == switch and destination in ports:
                sent.setdefault(ports[destination], []).append((time, frame))
            else:
                unrelated += 1
        if not received:
            raise InputError(f"{path}: no frame of {unrelated} is from a member of the jobs")
        return cls(tuple(received), sent, unrelated)

    def compare(self, answers: Mapping[int, Sequence[Timed]]) -> Comparison:
        """Compare a switch's ``answers`` with the recorded output, per port and frame by frame."""
        equal, differ, first = 0, 0, ""
        earliest: tuple[int, int] | None = None
        for port in sorted({*answers, *self.sent}):
            pairs = zip_longest(answers.get(port, ()), self.sent.get(port, ()))
            for number, (answer, recorded) in enumerate(pairs, start=1):
                if answer and recorded and answer[1] == recorded[1]:
                    equal += 1
                    continue
                differ += 1
                place = (min(frame[0] for frame in (answer, recorded) if frame), port)
                if earliest is None or place < earliest:
                    earliest = place
                    first = f"answer {number} at port {port}, {place[0]} ns: {_difference(answer, recorded)}"
        return Comparison(equal, differ, first)


@dataclass(frozen=True)
class Comparison:
    """Numbers of equal and different answers, and the first difference. A missing answer is a different one."""

    equal: int
    differ: int
    first: str


def _mac(address: int) -> bytes:
    return address.to_bytes(_MAC_BYTES, "big")


def _difference(answer: Timed | None, recorded: Timed | None) -> str:
    """Describe the difference between two frames at the same place; None for a missing frame, at most one."""
    if recorded is None:
        assert answer is not None
        return f"sent, and not recorded: {answer[1].hex()}"
    if answer is None:
        return f"recorded, and not sent: {recorded[1].hex()}"
    byte = next(at for at, (a, b) in enumerate(zip_longest(answer[1], recorded[1])) if a != b)
    return f"byte {byte} differs: sent {answer[1].hex()}, recorded {recorded[1].hex()}"
