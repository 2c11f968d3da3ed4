"""Installation of jobs as entries of the program's tables, and the meaning of their counters.

Each job has a *place*, one of ``MAX_JOBS``. Replica ids and multicast groups are few (BMv2 has 4096 groups), so
they are numbered by place, not by the job's id.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fanin.job import SLOTS, Job, JobCounters, Station, Uplink
from fanin.p4.aggregation import FLOOD_GROUP, MAX_JOBS, ProgramConfig, Target
from fanin.p4.control import Exact, MulticastGroup, Replica, TableEntry, Ternary
from fanin.wire.aggregation import AGGREGATION, MAX_WORKERS, Encap, Kind, Protocol
from fanin.wire.ethernet import ETHERNET, Endpoint

_BITS = {field.name: field.bits for field in AGGREGATION}
_MAC_BITS = next(field.bits for field in ETHERNET if field.name == "destination")
_PORT_BITS = 9
_PORTS_PER_PIPE = 128  # on Tofino; a register's entries are separate in each pipe
_GROUPS = 2 * MAX_WORKERS  # per place: one for all members, one per member, one for the parent
ADMISSION, VERDICT, REJECTED, FORWARD = (
    f"Aggregation.{name}" for name in ("admission", "verdict", "rejected", "forward")
)
DELIVERY = "Delivery.members"
FOREIGN_ENTRY = TableEntry(REJECTED, {}, "Aggregation.foreign", priority=1)
FLOOD_ENTRY = TableEntry(FORWARD, {}, "Aggregation.flood", priority=1)
_ANSWERS = dict(zip(Protocol.P4SGD.to_switch, Protocol.P4SGD.to_worker, strict=True))
# Counters of a member's packet by its verdict: names in JobCounters, for AGG and for ACK.
_COUNTERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "hold": (("aggregated", "acknowledged"),),
    "complete": (("aggregated", "acknowledged"), ("results", "confirms")),
    "duplicate": (("duplicate", "duplicate"),),
    "reply": (("duplicate", "duplicate"), ("replies", "replies")),
    "to_parent": (("aggregated", "acknowledged"), ("to_parent", "to_parent")),
    "to_parent_again": (("duplicate", "duplicate"), ("to_parent_again", "to_parent_again")),
    "stale": (("stale", "stale"),),
}
# The same for a parent's packet, for RESULT and for CONFIRM.
_PARENTS_COUNTERS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "complete": (("results", "confirms"),),
    "duplicate": (("duplicate", "duplicate"),),
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
    pipes = {station.port // _PORTS_PER_PIPE for station in job.stations}
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
    entries += [_addresses(config, station, place, switch) for station in job.stations]
    if job.uplink:
        replica = Replica(job.uplink.port, _replica_id_of(job.uplink, place))
        groups.append(MulticastGroup(_group(place, job.uplink), (replica,)))
        for kind in config.answers:
            entries += [_parent(job, job.uplink, kind), *_answer_verdicts(job, kind, place)]
    return Installation(tuple(entries), tuple(groups))


def replica_id(place: int, bitmap: int) -> int:
    """Return the replica id of the copy for the member with this bitmap."""
    return place * MAX_WORKERS + bitmap.bit_length()


def parent_replica_id(place: int) -> int:
    """Return the replica id of the packet to the parent; it follows those of the members of all places."""
    return MAX_JOBS * MAX_WORKERS + 1 + place


def _replica_id_of(station: Station, place: int) -> int:
    return parent_replica_id(place) if isinstance(station, Uplink) else replica_id(place, station.bitmap)


def _group(place: int, station: Station | None = None) -> int:
    first = (place + 1) * _GROUPS
    if isinstance(station, Uplink):
        return first + MAX_WORKERS + 1
    return first + station.bitmap.bit_length() if station else first


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
        action = "Aggregation.admit_agg" if kind is Kind.AGG else "Aggregation.admit_current"
        yield TableEntry(ADMISSION, match, action, priority=2)


def _parent(job: Job, uplink: Uplink, kind: Kind) -> TableEntry:
    """Return the entry that admits the parent's answers to packets with this switch's bit."""
    match = {
        "kind": _equal_to(kind, _BITS["kind"]),
        "job": _equal_to(job.id, _BITS["job"]),
        "port": _equal_to(uplink.port, _PORT_BITS),
        "bitmap": Ternary(uplink.bitmap, uplink.bitmap),
        "slot": Ternary(job.base, SLOTS - job.slots),
    }
    return TableEntry(ADMISSION, match, "Aggregation.admit_current", priority=2)


def _answer_verdicts(job: Job, kind: Kind, place: int) -> Iterator[TableEntry]:
    """Yield the entries of table ``verdict`` for the parent's answers of a kind.

    Priorities: 3 stale, 2 repeated answer (duplicate), 1 the first of its round (complete).
    """
    match = {"kind": _equal_to(kind, _BITS["kind"]), "job": _equal_to(job.id, _BITS["job"])}
    stale = {**match, "opened": _equal_to(0, _BITS["round"])}
    yield TableEntry(VERDICT, stale, "Aggregation.stale", priority=3)
    yield TableEntry(VERDICT, {**match, "answered": _equal_to(1, 1)}, "Aggregation.duplicate", priority=2)
    parameters = {"answer": int(kind), "members": job.bitmap, "to": _group(place)}
    yield TableEntry(VERDICT, match, "Aggregation.complete", parameters, priority=1)


def _verdicts(job: Job, kind: Kind, place: int) -> Iterator[TableEntry]:
    """Yield the entries of table ``verdict``, which decide on a packet of a member.

    Priorities:

    - 6: below the root, repetition in a complete round that the parent has not answered (to_parent_again).
    - 5: other repetition in a complete round (reply).
    - 4: other repetition (duplicate).
    - 3: wrong round (stale).
    - 2: last member of a round (complete; below the root to_parent).
    - 1: any other packet (hold).
    """
    job_match = {"kind": _equal_to(kind, _BITS["kind"]), "job": _equal_to(job.id, _BITS["job"])}
    answer = {"answer": int(_ANSWERS[kind]), "members": job.bitmap}
    uplink, up = job.uplink, dict[str, int]()
    if uplink:
        up = {"answer": int(kind), "members": uplink.bitmap, "to": _group(place, uplink)}
    bits = _BITS["bitmap"]
    for member in job.members:
        bit = member.bitmap
        match = {**job_match, "bitmap": _equal_to(bit, bits)}
        parameters = {**answer, "to": _group(place, member)}
        complete = {**match, "seen": _equal_to(job.bitmap, bits)}
        yield TableEntry(VERDICT, complete, "Aggregation.reply", parameters, priority=5)
        if uplink:
            unanswered = {**complete, "answered": _equal_to(0, 1)}
            yield TableEntry(VERDICT, unanswered, "Aggregation.to_parent_again", up, priority=6)
        yield TableEntry(VERDICT, {**match, "seen": Ternary(bit, bit)}, "Aggregation.duplicate", priority=4)
        last_match = {**match, "seen": _equal_to(job.bitmap ^ bit, bits)}
        if uplink:
            yield TableEntry(VERDICT, last_match, "Aggregation.to_parent", up, priority=2)
        else:
            parameters = {**answer, "to": _group(place)}
            yield TableEntry(VERDICT, last_match, "Aggregation.complete", parameters, priority=2)
    # No member seen and round not opened: wrong round. Above "complete", which would match in a job of one
    # member.
    stale_match = {**job_match, "opened": _equal_to(0, _BITS["round"]), "seen": _equal_to(0, bits)}
    yield TableEntry(VERDICT, stale_match, "Aggregation.stale", priority=3)
    yield TableEntry(VERDICT, job_match, "Aggregation.hold", priority=1)


def _addresses(config: ProgramConfig, station: Station, place: int, switch: Endpoint) -> TableEntry:
    endpoint = station.endpoint
    parameters = {"mac": endpoint.mac, "own_mac": switch.mac}
    if config.encap is Encap.UDP:
        parameters |= {
            "ip": endpoint.ip,
            "own_ip": switch.ip,
            "udp_port": endpoint.port,
            "own_udp_port": switch.port,
        }
    replica = {"replica": Exact(_replica_id_of(station, place))}
    return TableEntry(DELIVERY, replica, "Delivery.address", parameters)


def job_counters(counts: Iterable[tuple[TableEntry, int]]) -> JobCounters:
    """Return a job's counters from the packet counts of its ``verdicts``."""
    totals: Counter[str] = Counter()
    for entry, packets in counts:
        kind = entry.match["kind"]
        assert isinstance(kind, Ternary)
        verdict = entry.action.rpartition(".")[2]
        of_parent = kind.value in _ANSWERS.values()
        for names in (_PARENTS_COUNTERS if of_parent else _COUNTERS)[verdict]:
            totals[names[kind.value in (Kind.ACK, Kind.CONFIRM)]] += packets
    return JobCounters(**totals)
