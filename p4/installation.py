"""Installation of jobs as entries of the program's tables, and the meaning of their counters.

Each job has a *place*, one of ``MAX_JOBS``. Replica ids and multicast groups are few (BMv2 has 4096 groups), so
they are numbered by place, not by the job's id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fanin.job import SLOTS, Job, JobCounters, Member
from fanin.p4.aggregation import FLOOD_GROUP, MAX_JOBS, ProgramConfig, Target
from fanin.p4.control import Exact, MulticastGroup, Replica, TableEntry, Ternary
from fanin.wire.aggregation import AGGREGATION, MAX_WORKERS, Encap, Kind, Protocol
from fanin.wire.ethernet import ETHERNET, Endpoint

_BITS = {field.name: field.bits for field in AGGREGATION}
_MAC_BITS = next(field.bits for field in ETHERNET if field.name == "destination")
_PORT_BITS = 9
_PORTS_PER_PIPE = 128  # on Tofino; a register's entries are separate in each pipe
_GROUPS = 2 * MAX_WORKERS  # per place: one for all members, and one per member
ADMISSION, VERDICT, REJECTED, FORWARD = (
    f"Aggregation.{name}" for name in ("admission", "verdict", "rejected", "forward")
)
DELIVERY = "Delivery.members"
FOREIGN_ENTRY = TableEntry(REJECTED, {}, "Aggregation.foreign", priority=1)
FLOOD_ENTRY = TableEntry(FORWARD, {}, "Aggregation.flood", priority=1)
_ANSWERS = dict(zip(Protocol.P4SGD.to_switch, Protocol.P4SGD.to_worker, strict=True))
# Counters of a packet by its verdict: names in JobCounters, for AGG and for ACK.
_COUNTERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "hold": (("aggregated", "acknowledged"),),
    "complete": (("aggregated", "acknowledged"), ("results", "confirms")),
    "duplicate": (("duplicate", "duplicate"),),
    "reply": (("duplicate", "duplicate"), ("replies", "replies")),
    "stale": (("stale", "stale"),),
}


@dataclass(frozen=True)
class Installation:
    """Entries and groups that are added and removed together; ``verdicts`` count a job's packets."""

    entries: tuple[TableEntry, ...]
    groups: tuple[MulticastGroup, ...] = ()

    @property
    def verdicts(self) -> tuple[TableEntry, ...]:
        """Entries that count a job's packets."""
        return tuple(entry for entry in self.entries if entry.table == VERDICT)


def _equal_to(value: int, bits: int) -> Ternary:
    return Ternary(int(value), (1 << bits) - 1)


def check_job(config: ProgramConfig, job: Job) -> None:
    """Raise ValueError unless the program can run the job."""
    if job.base + job.slots > config.slots:
        raise ValueError(
            f"job {job.id} ends at slot {job.base + job.slots - 1}, and the switch has {config.slots} slots"
        )
    if job.bitmap >> config.workers:
        raise ValueError(f"bitmap must be one of the lowest {config.workers} bits, which the program knows")
    pipes = {member.port // _PORTS_PER_PIPE for member in job.members}
    if config.target is Target.TNA and len(pipes) > 1:
        raise ValueError(
            f"ports of job {job.id} are in pipes {sorted(pipes)}; a slot's registers are in one (port // 128)"
        )


def switch_counters(config: ProgramConfig) -> dict[str, tuple[TableEntry, ...]]:
    """Return the entries of each of the switch's counters; stations' entries count ``forwarded``."""
    malformed_keys = {"values": 0} | ({"bad_checksum": 1} if config.encap is Encap.UDP else {})
    malformed = (
        TableEntry(REJECTED, {key: _equal_to(value, 1)}, "Aggregation.malformed", priority=2 + number)
        for number, (key, value) in enumerate(malformed_keys.items())
    )
    return {"malformed": tuple(malformed), "foreign": (FOREIGN_ENTRY,), "flooded": (FLOOD_ENTRY,)}


def switch_installation(config: ProgramConfig, ports: Sequence[int]) -> Installation:
    """Return the entries without any job: rejected packets, and flooding of unknown destinations."""
    tna = config.target is Target.TNA
    replicas = tuple(Replica(port, exclusion=port if tna else None) for port in ports)
    entries = tuple(entry for counted in switch_counters(config).values() for entry in counted)
    return Installation(entries, (MulticastGroup(FLOOD_GROUP, replicas),))


def station_installation(mac: int, port: int) -> Installation:
    """Return the entries that send other traffic for a MAC address to its port, unless it comes from there."""
    destination = {"destination": _equal_to(mac, _MAC_BITS)}
    at_own_port = TableEntry(
        FORWARD, {**destination, "port": _equal_to(port, _PORT_BITS)}, "Aggregation.stay", priority=3
    )
    elsewhere_entry = TableEntry(FORWARD, destination, "Aggregation.to_port", {"to": port}, priority=2)
    return Installation((at_own_port, elsewhere_entry))


def job_installation(config: ProgramConfig, job: Job, place: int, switch: Endpoint) -> Installation:
    """Return the entries and groups of a job; ``switch`` has the switch's own addresses."""
    check_job(config, job)
    if not 0 <= place < MAX_JOBS:
        raise ValueError(f"the program runs {MAX_JOBS} jobs at a time")
    replicas = tuple(Replica(m.port, replica_id(place, m.bitmap)) for m in job.members)
    groups = [MulticastGroup(_group(place), replicas)]
    groups += [
        MulticastGroup(_group(place, m), (replica,)) for m, replica in zip(job.members, replicas, strict=True)
    ]
    entries = [e for kind in config.kinds for e in (*_members(job, kind), *_verdicts(job, kind, place))]
    entries += [_addresses(config, member, place, switch) for member in job.members]
    return Installation(tuple(entries), tuple(groups))


def replica_id(place: int, bitmap: int) -> int:
    """Return the replica id of the copy for the member with this bitmap."""
    return place * MAX_WORKERS + bitmap.bit_length()


def _group(place: int, member: Member | None = None) -> int:
    return (place + 1) * _GROUPS + (member.bitmap.bit_length() if member else 0)


def place_of_group(group: int) -> int:
    """Return the place of a job's multicast group."""
    return group // _GROUPS - 1


def _members(job: Job, kind: Kind) -> Iterator[TableEntry]:
    """Yield the entries that mark the sender in its slot, and admit the packet."""
    slots = Ternary(job.base, SLOTS - job.slots)
    for member in job.members:
        match = {
            "job": _equal_to(job.id, _BITS["job"]),
            "port": _equal_to(member.port, _PORT_BITS),
            "bitmap": _equal_to(member.bitmap, _BITS["bitmap"]),
            "slot": slots,
        }
        name = kind.name.lower()
        yield TableEntry(f"Aggregation.{name}", match, f"Aggregation.mark_{name}", priority=1)
        match = {"kind": _equal_to(kind, _BITS["kind"]), **match}
        yield TableEntry(ADMISSION, match, f"Aggregation.admit_{name}", priority=2)


def _verdicts(job: Job, kind: Kind, place: int) -> Iterator[TableEntry]:
    """Yield the entries of table ``verdict``, which decide on a packet of a member.

    Priorities: 5 repetition in a complete round (reply), 4 other repetition (duplicate), 3 stale, 2 last member
    of a round (complete), 1 any other packet (hold).
    """
    job_match = {"kind": _equal_to(kind, _BITS["kind"]), "job": _equal_to(job.id, _BITS["job"])}
    answer = {"answer": int(_ANSWERS[kind]), "members": job.bitmap}
    bits = _BITS["bitmap"]
    for member in job.members:
        bit = member.bitmap
        match = {**job_match, "bitmap": _equal_to(bit, bits)}
        parameters = {**answer, "to": _group(place, member)}
        complete = {**match, "seen": _equal_to(job.bitmap, bits)}
        yield TableEntry(VERDICT, complete, "Aggregation.reply", parameters, priority=5)
        yield TableEntry(VERDICT, {**match, "seen": Ternary(bit, bit)}, "Aggregation.duplicate", priority=4)
        last_match = {**match, "seen": _equal_to(job.bitmap ^ bit, bits)}
        parameters = {**answer, "to": _group(place)}
        yield TableEntry(VERDICT, last_match, "Aggregation.complete", parameters, priority=2)
    # No member seen and round not opened: wrong round. Above "complete", which would match in a job of one
    # member.
    stale_match = {**job_match, "opened": _equal_to(0, _BITS["round"]), "seen": _equal_to(0, bits)}
    yield TableEntry(VERDICT, stale_match, "Aggregation.stale", priority=3)
    yield TableEntry(VERDICT, job_match, "Aggregation.hold", priority=1)


def _addresses(config: ProgramConfig, member: Member, place: int, switch: Endpoint) -> TableEntry:
    endpoint = member.endpoint
    parameters = {"mac": endpoint.mac, "own_mac": switch.mac}
    if config.encap is Encap.UDP:
        parameters |= {
            "ip": endpoint.ip,
            "own_ip": switch.ip,
            "udp_port": endpoint.port,
            "own_udp_port": switch.port,
        }
    replica = {"replica": Exact(replica_id(place, member.bitmap))}
    return TableEntry(DELIVERY, replica, "Delivery.address", parameters)


def job_counters(counts: Iterable[tuple[TableEntry, int]]) -> JobCounters:
    """Return a job's counters from the packet counts of its ``verdicts``."""
    totals: Counter[str] = Counter()
    for entry, packets in counts:
        kind = entry.match["kind"]
        assert isinstance(kind, Ternary)
        for names in _COUNTERS[entry.action.rpartition(".")[2]]:
            totals[names[kind.value == Kind.ACK]] += packets
    return JobCounters(**totals)
