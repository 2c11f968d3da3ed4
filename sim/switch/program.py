"""A switch that executes the emitted program in any pipeline: jobs become entries of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fanin.job import Job, JobCounters, SwitchCounters, check_jobs
from fanin.p4.aggregation import (
    ACK_ANSWERED,
    ACK_STATE,
    AGG_ANSWERED,
    AGG_STATE,
    MAX_JOBS,
    ProgramConfig,
    state_registers,
    sum_registers,
)
from fanin.p4.control import MulticastGroup, TableEntry
from fanin.p4.description import WORD_BITS
from fanin.p4.installation import (
    Installation,
    job_counters,
    job_installation,
    station_installation,
    switch_counters,
    switch_installation,
)
from fanin.sim.switch.base import Delivery, SlotRegisters, Switch
from fanin.wire.ethernet import Endpoint


class Pipeline(Protocol):
    """Executor of a program: frames in and out, and the operations of a control plane."""

    def process(self, port: int, frame: bytes) -> list[tuple[int, bytes]]:
        """Return the frames that a frame causes, as (port, frame)."""

    def insert(self, entry: TableEntry) -> None:
        """Add a table entry."""

    def delete(self, entry: TableEntry) -> None:
        """Remove a table entry."""

    def set_multicast_group(self, group: MulticastGroup) -> None:
        """Add or change a multicast group."""

    def delete_multicast_group(self, number: int) -> None:
        """Remove a multicast group."""

    def direct_counter(self, entry: TableEntry) -> tuple[int, int]:
        """Return the packets and bytes that an entry has matched."""

    def reset_register(self, name: str, start: int, count: int) -> None:
        """Set a range of a register to 0."""

    def read_register(self, name: str, index: int) -> tuple[int, ...]:
        """Return an entry's 32-bit words."""


def split_words(value: int, count: int) -> tuple[int, ...]:
    """Return the 32-bit words of a v1model register, which packs them into one number, the first uppermost."""
    return tuple(value >> WORD_BITS * word & (1 << WORD_BITS) - 1 for word in reversed(range(count)))


def _signed(word: int) -> int:
    return (word ^ 0x8000_0000) - 0x8000_0000


@dataclass
class _ActiveJob:
    job: Job
    place: int
    installation: Installation


class ProgramSwitch(Switch):
    """Switch that runs the program of ``config`` in ``pipeline``; ``endpoint``: the switch's own addresses.

    ``running``: jobs that the pipeline already runs, by their place in it, from 0; without it the pipeline must
    be fresh.
    """

    def __init__(
        self,
        *,
        config: ProgramConfig,
        pipeline: Pipeline,
        endpoint: Endpoint,
        ports: Sequence[int],
        running: Mapping[int, Job] | None = None,
    ):
        self.config, self.pipeline, self.endpoint, self.ports = config, pipeline, endpoint, tuple(ports)
        self._jobs: dict[int, _ActiveJob] = {}
        self._removed_counters: dict[int, JobCounters] = {}
        self._forwarded = 0  # frames to stations that were removed
        if running is None:
            self._install(switch_installation(config, self.ports))
        for place, job in (running or {}).items():
            self._jobs[job.id] = _ActiveJob(job, place, job_installation(config, job, place, endpoint))
        self._stations = {station: station_installation(*station) for station in self._members()}

    def add_job(self, job: Job) -> None:  # noqa: D102
        for station in job.stations:
            if station.port not in self.ports:
                raise ValueError(f"port must be one of {list(self.ports)}, not {station.port!r}")
        check_jobs([*(active.job for active in self._jobs.values()), job])
        used_places = {active.place for active in self._jobs.values()}
        place = next((place for place in range(MAX_JOBS) if place not in used_places), MAX_JOBS)
        installation = job_installation(self.config, job, place, self.endpoint)
        for register in state_registers(self.config):
            self.pipeline.reset_register(register, job.base, job.slots)
        self._install(installation)
        self._jobs[job.id] = _ActiveJob(job, place, installation)
        self._removed_counters.pop(job.id, None)
        self._update_stations()

    def remove_job(self, job_id: int) -> None:  # noqa: D102
        self._removed_counters[job_id] = self.job_counters(job_id)
        self._uninstall(self._jobs.pop(job_id).installation)
        self._update_stations()

    def job_counters(self, job_id: int) -> JobCounters:  # noqa: D102
        if job_id in self._removed_counters:
            return self._removed_counters[job_id]
        entries = self._jobs[job_id].installation.verdicts
        return job_counters((entry, self._packets([entry])) for entry in entries)

    def counters(self) -> SwitchCounters:  # noqa: D102
        rejected = {name: self._packets(entries) for name, entries in switch_counters(self.config).items()}
        stations = (entry for station in self._stations.values() for entry in station.entries)
        return SwitchCounters(forwarded=self._forwarded + self._packets(stations), **rejected)

    def registers(self, job_id: int, index: int) -> SlotRegisters:
        """Return the state of a job's slot ``base + index``, in the reference switch's form."""
        slot = self._jobs[job_id].job.base + index
        read = self.pipeline.read_register
        number, seen = read(AGG_STATE, slot)
        sums = tuple(_signed(*read(name, slot)) for name in sum_registers(self.config)) if number else ()
        total, confirmed = bool(*read(AGG_ANSWERED, slot)), False
        ack_round, ack_seen = 0, 0
        if self.config.protocol.acknowledges:
            ack_round, ack_seen = read(ACK_STATE, slot)
            confirmed = bool(*read(ACK_ANSWERED, slot))
        return SlotRegisters(number, seen, sums, ack_round, ack_seen, total, confirmed)

    def inject(self, port: int, frame: bytes, time: int) -> list[Delivery]:  # noqa: D102
        return [(destination, answer, time) for destination, answer in self.pipeline.process(port, frame)]

    def _update_stations(self) -> None:
        """Install and remove entries so that other traffic is forwarded to exactly the members of all jobs."""
        members = self._members()
        for station in self._stations.keys() - members:
            installed = self._stations.pop(station)
            self._forwarded += self._packets(installed.entries)
            self._uninstall(installed)
        for station in sorted(members - self._stations.keys()):
            self._stations[station] = station_installation(*station)
            self._install(self._stations[station])

    def _members(self) -> set[tuple[int, int]]:
        """Return MAC address and port of each member and parent."""
        stations = (station for active in self._jobs.values() for station in active.job.stations)
        return {(station.endpoint.mac, station.port) for station in stations}

    def _packets(self, entries: Iterable[TableEntry]) -> int:
        return sum(self.pipeline.direct_counter(entry)[0] for entry in entries)

    def _install(self, installation: Installation) -> None:
        """Install groups, then entries, which may use the groups at once."""
        for group in installation.groups:
            self.pipeline.set_multicast_group(group)
        for entry in installation.entries:
            self.pipeline.insert(entry)

    def _uninstall(self, installation: Installation) -> None:
        for entry in reversed(installation.entries):
            self.pipeline.delete(entry)
        for group in installation.groups:
            self.pipeline.delete_multicast_group(group.id)
