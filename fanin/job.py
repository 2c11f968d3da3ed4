"""Jobs of a switch: members and slots of an aggregation, and the switch's counters
(docs/systems/aggregation.md, docs/systems/trees.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from fanin.wire.aggregation import AGGREGATION, MAX_WORKERS
from fanin.wire.ethernet import Endpoint
from fanin.wire.fields import field_bits

FIRST_JOB = 1  #: id of a run's first job
JOBS = 1 << field_bits(AGGREGATION, "job")
SLOTS = 1 << field_bits(AGGREGATION, "slot")  # slots of a switch; one job may have all of them
RETRY_BITS = 16  # width of a worker's counter of a packet's retransmissions
MAX_RETRIES = (1 << RETRY_BITS) - 1
SWITCH = Endpoint(mac=0x02_00_00_00_01_00, ip=0x0A_00_00_FE)  # default addresses of the switch


def worker_endpoint(worker: int) -> Endpoint:
    """Return a worker's default addresses; those of worker 0 are 02:00:00:00:00:01 and 10.0.0.1."""
    return Endpoint(mac=0x02_00_00_00_00_01 + worker, ip=0x0A_00_00_01 + worker)


@dataclass(frozen=True)
class Station:
    """Connection of a switch to a sender of a job's packets.

    - ``port``: the switch's port to the station.
    - ``bitmap``: one-hot bit of the connection's lower end at its upper end.
    - ``endpoint``: addresses of the station.
    """

    port: int
    bitmap: int
    endpoint: Endpoint


class Member(Station):
    """A member of a job at a switch: a worker, or a switch of the level below."""


class Uplink(Station):
    """Parent of a switch below the root, as a station of that switch."""


def default_member(worker: int) -> Member:
    """Return a worker of a single switch: port, bit and addresses follow from its number."""
    return Member(worker, 1 << worker, worker_endpoint(worker))


@dataclass(frozen=True)
class Job:
    """A switch's part of a job: an id, slots [base, base + slots), fixed members.

    - ``uplink``: connection to the parent; None at the root of a tree, and at a job's only switch.
    """

    id: int
    base: int
    slots: int
    members: tuple[Member, ...]
    uplink: Uplink | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.id < JOBS:
            raise ValueError(f"job id must be 0 to {JOBS - 1}, not {self.id!r}")
        if self.slots < 1 or self.slots & (self.slots - 1):
            raise ValueError(f"slots must be a power of two, not {self.slots!r}")
        if self.base % self.slots or not 0 <= self.base <= SLOTS - self.slots:
            raise ValueError(
                f"base must be a multiple of slots ({self.slots}) and base + slots at most {SLOTS}, "
                f"not {self.base!r}"
            )
        bitmaps = [m.bitmap for m in self.members]
        if not 1 <= len(bitmaps) <= MAX_WORKERS or len(set(bitmaps)) != len(bitmaps):
            raise ValueError(
                f"members must be 1 to {MAX_WORKERS} with a bitmap each of their own, not {bitmaps}"
            )
        one_hot = [*bitmaps, *([self.uplink.bitmap] if self.uplink else [])]
        if any(b < 1 or b >> MAX_WORKERS or b & (b - 1) for b in one_hot):
            raise ValueError(f"bitmap must have exactly one of {MAX_WORKERS} bits set: {one_hot}")
        if self.uplink and self.uplink.port in [m.port for m in self.members]:
            raise ValueError(f"port {self.uplink.port} of the uplink is also a member's")

    @property
    def bitmap(self) -> int:
        """Bits of all members."""
        return sum(m.bitmap for m in self.members)

    @property
    def stations(self) -> tuple[Station, ...]:
        """Members and parent, whose MAC addresses the switch knows."""
        return (*self.members, self.uplink) if self.uplink else self.members


def check_jobs(jobs: Iterable[Job]) -> None:
    """Raise ValueError unless jobs can share a switch: distinct ids and slots, and one port per MAC."""
    ports: dict[int, int] = {}
    earlier_jobs: list[Job] = []
    for job in jobs:
        for other in earlier_jobs:
            if job.id == other.id:
                raise ValueError(f"job {job.id} exists")
            if job.base < other.base + other.slots and other.base < job.base + job.slots:
                raise ValueError(f"slots of job {job.id} overlap those of job {other.id}")
        for station in job.stations:
            mac = station.endpoint.mac
            if mac >> 40 & 1:
                raise ValueError(f"MAC {mac:012x} of job {job.id} is a group's, not a member's")
            if ports.setdefault(mac, station.port) != station.port:
                raise ValueError(
                    f"MAC {mac:012x} of job {job.id} is at port {station.port} and at port {ports[mac]}"
                )
        earlier_jobs.append(job)


@dataclass
class JobCounters:
    """Counters of a switch for the packets of one job."""

    aggregated: int = 0  # AGGs whose values were added
    acknowledged: int = 0  # ACKs that were new
    duplicate: int = 0  # AGGs and ACKs seen before in the current round
    stale: int = 0  # AGGs and ACKs of any round except the current and the next
    results: int = 0  # rounds completed: RESULT sent to all members
    confirms: int = 0  # rounds acknowledged by all: CONFIRM sent to all members
    replies: int = 0  # RESULTs and CONFIRMs sent to one member that repeated its packet
    to_parent: int = 0  # below the root: AGGs and ACKs sent up, once all members have sent theirs
    to_parent_again: int = 0  # below the root: AGGs and ACKs sent up again, after a member's duplicate

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass
class SwitchCounters:
    """Counters of a switch for packets that belong to no job, and for other traffic."""

    malformed: int = 0  # wrong version, kind, length, round or IPv4 checksum
    foreign: int = 0  # unknown job, not a member of it, or not its slot
    forwarded: int = 0  # other traffic to a known MAC
    flooded: int = 0  # other traffic to broadcast, multicast or an unknown MAC

    def as_dict(self) -> dict[str, int]:
        """Return the counters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
