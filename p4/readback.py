"""Configuration and jobs of a running switch, read back from it: the inverse of :mod:`installation`.

A later control plane needs no file. The names and sizes of tables and registers determine the program's
configuration; the entries determine its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fanin.job import SLOTS, Job, Member, Uplink
from fanin.p4.aggregation import ACK_STATE, AGG_STATE, MAX_JOBS, ProgramConfig, controls, register_words
from fanin.p4.control import Exact, TableEntry, Ternary
from fanin.p4.installation import (
    ADMISSION,
    DELIVERY,
    VERDICT,
    parent_replica_id,
    place_of_group,
    replica_id,
)
from fanin.wire.aggregation import Encap, Kind, Protocol
from fanin.wire.ethernet import Endpoint

JOB_TABLES = (ADMISSION, VERDICT, DELIVERY)  # tables whose entries determine the running jobs


@dataclass(frozen=True)
class RunningJob:
    """A job, its place, and the switch's addresses in its answers."""

    job: Job
    place: int
    switch: Endpoint


def program_config(
    registers: Mapping[str, int], tables: Mapping[str, int], actions: Mapping[str, Iterable[str]]
) -> ProgramConfig:
    """Return the v1model program's configuration from names, sizes, and parameters of actions.

    Raises ValueError unless the switch runs the aggregation program.
    """
    mismatch = ValueError("the switch runs another program than that of fanin p4 emit")
    try:
        config = ProgramConfig(
            protocol=Protocol.P4SGD if ACK_STATE in registers else Protocol.SWITCHML,
            workers=tables[DELIVERY] // MAX_JOBS - 1,
            slots=registers[AGG_STATE],
            values=sum(name.endswith(".total") for name in registers),
            encap=Encap.UDP if "ip" in actions["Delivery.address"] else Encap.L2,
        )
    except (LookupError, ValueError) as error:
        raise mismatch from error
    # The compiler chooses the size of a table without one.
    sizes = {f"{c.name}.{t.name}": t.size for c in controls(config)[1:] for t in c.tables if t.size}
    words = dict.fromkeys(register_words(config), config.slots)
    if dict(registers) != words or not sizes.items() <= dict(tables).items():
        raise mismatch
    return config


def running_jobs(config: ProgramConfig, entries: Iterable[TableEntry]) -> list[RunningJob]:
    """Return the jobs that ``entries`` of ``JOB_TABLES`` describe, by place.

    Raises ValueError for entries that do not fit one another, as after a command that was killed.
    """
    try:
        return _running_jobs(config, entries)
    except (LookupError, AssertionError) as error:
        raise ValueError(
            "the entries of its jobs are not whole: restart the switch, then add its jobs again"
        ) from error


def _running_jobs(config: ProgramConfig, entries: Iterable[TableEntry]) -> list[RunningJob]:
    senders: dict[int, list[TableEntry]] = {}
    parents: dict[int, TableEntry] = {}
    places: dict[int, int] = {}
    addresses: dict[int, Mapping[str, int]] = {}
    for entry in entries:
        if entry.table == DELIVERY:
            addresses[_value(entry, "replica")] = entry.parameters
        elif entry.action == "Aggregation.admit_agg":
            senders.setdefault(_value(entry, "job"), []).append(entry)
        elif entry.table == ADMISSION and _value(entry, "kind") == Kind.RESULT:
            parents[_value(entry, "job")] = entry
        elif (
            entry.action in ("Aggregation.complete", "Aggregation.to_parent")
            and _value(entry, "kind") == Kind.AGG
        ):
            places[_value(entry, "job")] = place_of_group(entry.parameters["to"])
    jobs = [
        _job(number, places[number], admissions, parents.get(number), addresses)
        for number, admissions in senders.items()
        if number in places
    ]
    return sorted(jobs, key=lambda job: job.place)


def _job(
    number: int,
    place: int,
    senders: Iterable[TableEntry],
    parent: TableEntry | None,
    addresses: Mapping[int, Mapping[str, int]],
) -> RunningJob:
    """Return a job.

    ``senders`` admit its members, ``parent`` its parent; ``addresses``: parameters of DELIVERY by replica.
    """
    members, switch, slot_match = [], Endpoint(0, 0), Ternary(0, 0)
    for entry in sorted(senders, key=lambda entry: _value(entry, "bitmap")):
        match = entry.match.get("slot", slot_match)  # a job of all slots has no match on them
        assert isinstance(match, Ternary)
        slot_match = match
        bitmap = _value(entry, "bitmap")
        parameters = addresses[replica_id(place, bitmap)]
        endpoint = _endpoint(parameters)
        switch = Endpoint(parameters["own_mac"], parameters.get("own_ip", 0), parameters.get("own_udp_port", 0))
        members.append(Member(_value(entry, "port"), bitmap, endpoint))
    slots = SLOTS - slot_match.mask  # the mask is SLOTS - slots, for a power of two
    uplink = None
    if parent:
        endpoint = _endpoint(addresses[parent_replica_id(place)])
        uplink = Uplink(_value(parent, "port"), _value(parent, "bitmap"), endpoint)
    job = Job(number, slot_match.value, slots, tuple(members), uplink)
    return RunningJob(job, place, switch)


def _endpoint(parameters: Mapping[str, int]) -> Endpoint:
    return Endpoint(parameters["mac"], parameters.get("ip", 0), parameters.get("udp_port", 0))


def _value(entry: TableEntry, key: str) -> int:
    match = entry.match[key]
    assert isinstance(match, Exact | Ternary)
    return match.value
