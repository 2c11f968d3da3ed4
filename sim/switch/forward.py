"""A plain Ethernet switch: each frame goes to its destination's port only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fanin.job import Job, JobCounters, SwitchCounters
from fanin.sim.switch.base import Delivery, Switch

_MAC_BYTES = 6


class Forwarder(Switch):
    """Forwarder by a fixed table, port by MAC; a frame to another address is dropped and counted ``foreign``.

    It aggregates nothing and accepts no jobs. A frame too short for a destination is ``malformed``.
    """

    def __init__(self, ports: Mapping[int, int]):
        self._ports = dict(ports)
        self._counters = SwitchCounters()

    @classmethod
    def of(cls, macs: Sequence[int]) -> Forwarder:
        """Return the switch whose port n leads to the n-th of these addresses."""
        return cls({mac: port for port, mac in enumerate(macs)})

    def add_job(self, job: Job) -> None:
        """Raise ValueError: there are no jobs."""
        raise ValueError(f"job {job.id}: this switch forwards and does not aggregate")

    def remove_job(self, job_id: int) -> None:
        """Raise ValueError: there are no jobs."""
        raise ValueError(f"no job {job_id}: this switch forwards and does not aggregate")

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:
        """Return the frame at its destination's port."""
        if len(frame) < _MAC_BYTES:
            self._counters.malformed += 1
            return []
        destination_port = self._ports.get(int.from_bytes(frame[:_MAC_BYTES], "big"))
        if destination_port is None:
            self._counters.foreign += 1
            return []
        self._counters.forwarded += 1
        return [(destination_port, frame, time)]

    def job_counters(self, job_id: int) -> JobCounters:
        """Raise ValueError: there are no jobs."""
        raise ValueError(f"no job {job_id}: this switch forwards and does not aggregate")

    def counters(self) -> SwitchCounters:
        """Return the counts of forwarded, foreign and malformed frames."""
        return self._counters
